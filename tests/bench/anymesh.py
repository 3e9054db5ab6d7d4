"""How long `bodies-any` takes beside `bodies`, and what a large scan costs: `make bench-any`."""

import json
import platform
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import ops  # noqa: F401  (registers the operators)
from model.anymesh.topologies import fine_topology
from model.bundle import open_bundle

THREADS, ROUNDS = 2, 7


def ask(module: torch.nn.Module, vertices: np.ndarray, faces: np.ndarray, *options: int) -> float:
    """The shortest of some runs, in seconds."""
    inputs = (
        torch.from_numpy(vertices),
        torch.from_numpy(faces),
        torch.tensor([0, len(vertices)]),
        1,
        *options,
    )
    taken = []
    with torch.inference_mode():
        for _ in range(ROUNDS):
            started = time.perf_counter()
            module(*inputs)
            taken.append(time.perf_counter() - started)
    return min(taken)


def peak() -> float:
    """Most memory this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main(bundles: Path) -> None:
    torch.set_num_threads(THREADS)
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
    any_mesh = torch.jit.load(open_bundle(bundles / "bodies-any" / "1").file("model.ts"))
    bodies = open_bundle(bundles / "bodies" / "1")
    paper = torch.jit.load(bodies.file("model.ts"))
    body = json.loads(bodies.file("sample.json").read_bytes())["mesh"]
    vertices, faces = np.array(body["vertices"], np.float32), np.array(body["faces"], np.int64)
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {THREADS} threads, torch {torch.__version__}")
    one = ask(paper, vertices, faces)
    alone, refined = (ask(any_mesh, vertices, faces, refine) for refine in (0, 1))
    print(f"{len(vertices)} vertices: bodies {1000 * one:.0f} ms, bodies-any {1000 * alone:.0f} ms "
          f"({alone / one:.2f}x), refined {1000 * refined:.0f} ms")  # fmt: skip
    fine = fine_topology(3)
    scan, before = fine.place(vertices), peak()
    for name, refine in (("alone", 0), ("refined", 1)):
        seconds = ask(any_mesh, scan, fine.faces, refine)
        print(f"{len(scan)} vertices: {name} {seconds:.2f} s, peak {peak():.0f} MB "
              f"(before {before:.0f})")  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "bundles"))
