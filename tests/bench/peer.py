"""Runs torch-spline-conv in its own environment: a request per line in, an answer per line out."""

import json
import sys
import time
from typing import Any

import torch
from torch.nn.functional import elu, linear
from torch_spline_conv import spline_conv


def conv(case: dict[str, Any], x: torch.Tensor, layer: dict[str, Any]) -> torch.Tensor:
    return spline_conv(
        x, case["edge_index"].flip(0), case["pseudo"], layer["weight"],
        torch.tensor(case["kernel_size"]), torch.tensor(case["is_open"], dtype=torch.uint8),
        case["degree"], True, layer["root"], layer["bias"],
    )  # fmt: skip


def forward(case: dict[str, Any]) -> torch.Tensor:
    x = case["x"]
    for layer in case["layers"]:
        x = conv(case, x, layer)
        if len(case["layers"]) > 1:
            x = elu(x)
    if "head" in case:
        x = elu(linear(x, *case["hidden"]))
        x = linear(x, *case["head"]).argmax(1)
    return x


def forward_backward(case: dict[str, Any]) -> torch.Tensor:
    layer = case["layers"][0]
    leaves = [case["x"], *layer.values()]
    for leaf in leaves:
        leaf.requires_grad_().grad = None
    forward(case).backward(case["grad"])
    return torch.cat([leaf.grad.flatten() for leaf in leaves])


def main() -> None:
    for line in sys.stdin:
        ask = json.loads(line)
        torch.set_num_threads(ask["threads"])
        clock = time.process_time if ask["clock"] == "cpu" else time.perf_counter
        case = torch.load(ask["case"])
        run = forward_backward if ask["backward"] else forward
        best = float("inf")
        with torch.set_grad_enabled(ask["backward"]):
            for _ in range(ask["repeat"]):
                start = clock()
                out = run(case)
                best = min(best, clock() - start)
        torch.save(out.detach(), ask["case"] + ".out")
        print(json.dumps(best), flush=True)


if __name__ == "__main__":
    main()
