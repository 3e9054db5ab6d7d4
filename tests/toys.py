"""Tiny seeded networks of every task, in a zoo or as bundles, for the tests."""

import json
from pathlib import Path
from typing import Any

import torch
import trimesh
from torch import Tensor, nn

from model import export
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


class NearestNet(nn.Module):
    """A served network that knows its reference: the nearest of its vertices, the surer the nearer.

    It refines by looking at distances ten times as closely.
    """

    reference: Tensor

    def __init__(self, reference: Tensor) -> None:
        super().__init__()
        self.refines = True
        self.register_buffer("reference", reference)

    def forward(
        self, vertices: Tensor, faces: Tensor, ptr: Tensor, top_k: int, refine: int
    ) -> tuple[Tensor, Tensor]:
        distance, index = torch.cdist(vertices, self.reference).sort(dim=1, stable=True)
        sharper = 10.0 if refine != 0 else 1.0
        return index[:, :top_k], torch.exp(-distance[:, :top_k] * sharper)


def make_nearest_bundle(
    repository: Path, mesh: trimesh.Trimesh, attributes: dict[str, Any] | None = None, **facts: Any
) -> Path:
    """A bundle `nearest` that answers from where vertices lie, and refines."""
    folder = repository.parent / f"{repository.name}-nearest-zoo"
    entry = ZooEntry(
        name="nearest",
        net="correspondence",
        parameters={"num_classes": len(mesh.vertices), "channels": [4, 8], "hidden": 16},
        pseudo="cartesian",
        reference="reference.ply",
        attributes=None if attributes is None else "attributes.json",
        **facts,
    )
    write_zoo(folder, entry, entry.build().state_dict())
    mesh.export(folder / "reference.ply")
    if attributes is not None:
        (folder / "attributes.json").write_text(json.dumps(attributes))
    honest = export.serve
    net = NearestNet(torch.tensor(mesh.vertices, dtype=torch.float32)).eval()
    export.serve = lambda _: net
    try:
        return export_bundle(folder, repository, with_onnx=False)
    finally:
        export.serve = honest
