"""Graphs that CUDA kernels find hard, and the judge's answers for them in float64."""

from typing import Any

import torch
from torch import Tensor

from ops import fallback

TILE = 32  # nodes of a tile on CUDA
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: 2e-5,
    torch.float64: 1e-12,
    torch.float16: 6e-3,
    torch.bfloat16: 4e-2,
}


def graph(kind: str, seed: int = 0) -> tuple[Tensor, int]:
    """edge_index and the number of nodes."""
    random = torch.Generator().manual_seed(seed)

    def draw(nodes: int, edges: int) -> Tensor:
        return torch.randint(0, nodes, (2, edges), generator=random)

    if kind == "random":
        return draw(70, 300), 70  # three tiles, isolated nodes, double edges
    if kind == "hub":
        hub = draw(40, 400)
        hub[1, 50:] = 7  # almost every edge ends in one node
        return hub, 40
    if kind == "ragged":
        return draw(33, 90), 33  # the last tile is smaller than the others
    if kind == "no edges":
        return draw(1, 0), 45
    assert kind == "nothing"
    return draw(1, 0), 0


GRAPHS = ["random", "hub", "ragged", "no edges", "nothing"]


def coordinates(edges: int, D: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    """In steps of 1/32, which every dtype holds: so many lie on knots."""
    random = torch.Generator().manual_seed(seed)
    return (torch.randint(0, 33, (edges, D), generator=random) / 32).to(dtype)


def kernel(D: int, degree: int) -> tuple[list[int], list[int]]:
    """Kernel sizes and openness that differ from dimension to dimension."""
    return [degree + 1 + d % 3 for d in range(D)], [(d + degree) % 2 for d in range(D)]


def numbers(*shape: int, dtype: torch.dtype, seed: int = 2) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)


def judge(name: str, *arguments: Any) -> Any:
    """The plain-torch operator in float64, with tiles as on CUDA."""

    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    tile, fallback.TILE = fallback.TILE, TILE
    try:
        return getattr(fallback, name)(*[wide(a) for a in arguments])
    finally:
        fallback.TILE = tile


def assert_near(found: Tensor, expected: Tensor, scale: float = 1.0) -> None:
    """Equal up to the rounding of `found`'s dtype, relative to the largest number."""
    assert found.shape == expected.shape
    if not expected.numel():
        return
    largest = max(1e-3, expected.abs().max().item())
    error = (found.double() - expected.double()).abs().max().item()
    assert error <= TOLERANCE[found.dtype] * largest * scale, (error, largest)
