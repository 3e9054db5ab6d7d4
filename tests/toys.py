"""Tiny seeded networks of every task, in a zoo or as bundles, for the tests."""

from pathlib import Path

import torch
import trimesh

from model.export import export_bundle
from model.zoo import ZooEntry, write_zoo

TOYS = {
    "toy-body": ZooEntry(
        name="toy-body",
        net="correspondence",
        parameters={"num_classes": 42, "channels": [4, 8], "hidden": 16, "kernel_size": 3},
        pseudo="cartesian",
        description="An icosphere's vertices, untrained",
        reference="reference.ply",
        scores={"exact": 0.5},
    ),
    "toy-nodes": ZooEntry(
        name="toy-nodes",
        net="node",
        parameters={"num_features": 20, "num_classes": 3, "hidden": 8},
        pseudo="degree",
        description="Three classes of nodes, untrained",
        labels=["red", "green", "blue"],
        scores={"accuracy": 0.4},
    ),
    "toy-superpixels": ZooEntry(
        name="toy-superpixels",
        net="superpixels",
        parameters={"num_classes": 10, "channels": [4, 8], "hidden": 8, "kernel_size": 3},
        pseudo="cartesian",
        description="Digits as superpixels, untrained",
        labels=[str(digit) for digit in range(10)],
        image="superpixels",
        scores={"accuracy": 0.1},
    ),
    "toy-grid": ZooEntry(
        name="toy-grid",
        net="grid",
        parameters={"num_classes": 10, "channels": [4, 8], "hidden": 8, "kernel_size": 3},
        pseudo="cartesian",
        description="Digits as grids of pixels, untrained",
        labels=[str(digit) for digit in range(10)],
        image="grid",
        scores={"accuracy": 0.1},
    ),
}


def make_toy_zoo(zoo: Path, *names: str) -> Path:
    """Write the named toys (all by default) as `zoo/<name>/`, with seeded random weights."""
    for name in names or TOYS:
        entry = TOYS[name]
        torch.manual_seed(1)
        net = entry.build()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(2)  # answers that differ clearly from node to node
        write_zoo(zoo / name, entry, net.state_dict(), half=False)
        if entry.reference:
            trimesh.creation.icosphere(1).export(zoo / name / entry.reference)
    return zoo


def make_toy_bundles(repository: Path, *names: str, with_onnx: bool = True) -> dict[str, Path]:
    """Export the named toys (all by default) into `repository` and tell where each lies."""
    zoo = make_toy_zoo(repository.parent / f"{repository.name}-zoo", *names)
    return {
        name: export_bundle(zoo / name, repository, with_onnx=with_onnx) for name in names or TOYS
    }
