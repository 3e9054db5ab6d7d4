"""Small random graphs and every shape of kernel, for the operator's tests."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

KERNELS = [
    (D, degree, is_open) for D in (1, 2, 3, 4) for degree in (1, 2, 3) for is_open in (0, 1, 2)
]  # 2 means that the dimensions alternate
CHANNELS = {1: (1, 7), 2: (64, 32), 3: (33, 45), 4: (70, 10)}  # [M_in, M_out] by D
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11}


class Case(NamedTuple):
    edge_index: Tensor  # [2, E]
    pseudo: Tensor  # [E, D]
    kernel_size: list[int]
    is_open: list[int]
    degree: int
    num_nodes: int
    x: Tensor  # [N, M_in]
    weight: Tensor  # [K, M_in, M_out]
    root: Tensor  # [M_in, M_out]
    bias: Tensor  # [M_out]


def make_case(
    D: int = 2,
    degree: int = 1,
    is_open: int = 1,
    dtype: torch.dtype = torch.float32,
    nodes: int = 90,
    edges: int = 400,
    channels: tuple[int, int] | None = None,
    seed: int = 0,
) -> Case:
    random = torch.Generator().manual_seed(seed)
    kernel_size = [degree + 1 + d % 3 for d in range(D)]
    opened = [d % 2 if is_open == 2 else is_open for d in range(D)]
    M_in, M_out = channels or CHANNELS[D]

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=dtype)

    pseudo = torch.rand(edges, D, generator=random, dtype=dtype)
    pseudo[0], pseudo[1], pseudo[2] = 0, 1, 0.5
    return Case(
        torch.randint(0, nodes, (2, edges), generator=random),
        pseudo,
        kernel_size,
        opened,
        degree,
        nodes,
        randn(nodes, M_in),
        randn(math.prod(kernel_size), M_in, M_out) / M_in**0.5,
        randn(M_in, M_out) / M_in**0.5,
        randn(M_out),
    )


def spline(case: Case) -> tuple[Tensor, Tensor, list[int], list[int], int, int]:
    """The arguments of `spline_plan`."""
    return case[:6]


def compress(dense: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """ptr, index and value of the rows of a mostly empty matrix."""
    row, index = torch.nonzero(dense, as_tuple=True)
    counts = torch.bincount(row, minlength=dense.size(0))
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), index, dense[row, index]
