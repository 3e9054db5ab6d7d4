"""What every peer does with a request: its JSON to tensors, one TorchScript call, arrays back.

Runs in the peers' own environments, so it needs torch and numpy only.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

SMALL = os.environ.get("PEER_MODEL", "mnist-superpixels") == "mnist-superpixels"


class Network:
    """model.ts with our operator's library loaded."""

    def __init__(self) -> None:
        torch.set_num_threads(int(os.environ.get("PEER_THREADS", "1")))
        torch.ops.load_library(os.environ["PEER_LIBRARY"])
        folder = Path(os.environ["PEER_BUNDLES"]) / os.environ["PEER_MODEL"] / "1"
        manifest = json.loads((folder / "manifest.json").read_text())
        self._inputs = [spec["name"] for spec in manifest["inputs"]]
        self._module: Any = torch.jit.load(str(folder / "model.ts")).eval()

    def __call__(self, graphs: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """Several graphs, of any sizes, side by side in one run."""
        first = "features" if SMALL else "vertices"
        sizes = [len(graph[first]) for graph in graphs]
        ptr = np.cumsum([0, *sizes])
        packed: dict[str, Any] = {"ptr": torch.from_numpy(ptr), "top_k": 1, "refine": 0}
        for name in graphs[0]:
            parts = [graph[name] for graph in graphs]
            if name in ("edge_index", "faces"):
                parts = [part + start for part, start in zip(parts, ptr[:-1], strict=True)]
            axis = 1 if name == "edge_index" else 0
            packed[name] = torch.from_numpy(np.concatenate(parts, axis=axis))
        with torch.inference_mode():
            results = self._module(*(packed[name] for name in self._inputs))
        if SMALL:
            rows = results[0].numpy()
            return [{"probabilities": row} for row in rows]
        index, confidence = (result[:, 0].numpy() for result in results[:2])
        return [
            {"correspondence": index[start:end], "confidence": confidence[start:end]}
            for start, end in zip(ptr[:-1], ptr[1:], strict=True)
        ]


def read(body: Any) -> dict[str, np.ndarray]:
    """The parsed JSON of a request."""
    if SMALL:
        graph = body["graph"]
        return {
            "features": np.asarray(graph["features"], np.float32),
            "positions": np.asarray(graph["positions"], np.float32),
            "edge_index": np.ascontiguousarray(np.asarray(graph["edges"], np.int64).T),
        }
    mesh = body["mesh"]
    return {
        "vertices": np.asarray(mesh["vertices"], np.float32),
        "faces": np.asarray(mesh["faces"], np.int64),
    }


def write(answer: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: array.tolist() for name, array in answer.items()}
