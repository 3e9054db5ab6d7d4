"""MaxP(c): clusters of nodes become one node, with the largest features and the mean position."""

import torch
from torch import Tensor

import ops  # noqa: F401  (registers the clustering operator)

ROUNDS = 8
"""Rounds of a matching; on superpixel graphs the tenth changes nothing any more."""


def cluster(
    edge_index: Tensor, ptr: Tensor, seed: int = 0, rounds: int = ROUNDS
) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters of up to four nodes: members [C, 4], the edges among them, and their ptr [B + 1].

    Two Graclus-style matchings by normalised cut. The same graph is always clustered the same
    way, alone or in a batch; another `seed` breaks ties another way, for variety in training.
    """
    out: tuple[Tensor, Tensor, Tensor] = torch.ops.splinecnn.pool(edge_index, ptr, 2, rounds, seed)
    return out


def max_pool(x: Tensor, members: Tensor) -> Tensor:
    """The largest value of each feature among a cluster's nodes. [C, M]"""
    gathered = torch.index_select(x, 0, members.flatten())
    return gathered.view(members.size(0), members.size(1), x.size(1)).amax(1)


def mean_pool(positions: Tensor, members: Tensor) -> Tensor:
    """The mean position of a cluster's nodes, each counted once. [C, D]"""
    out: Tensor = torch.ops.splinecnn.cluster_mean(positions, members)
    return out


def average_pool(x: Tensor, ptr: Tensor) -> Tensor:
    """The mean of all nodes of each graph. [B, M]"""
    size = (ptr[1:] - ptr[:-1]).clamp(min=1)
    total = torch.segment_reduce(x, "sum", offsets=ptr, axis=0)
    return total / size[:, None].to(x.dtype)


def cell_index(positions: Tensor, ptr: Tensor, cell: float, side: int) -> Tensor:
    """Which of its graph's side x side square cells each node lies in, graphs in order. [N]"""
    graph = torch.repeat_interleave(ptr[1:] - ptr[:-1])
    at = torch.floor(positions / cell).clamp(0, side - 1).long()
    return (graph * side + at[:, 1]) * side + at[:, 0]


def cell_max_pool(x: Tensor, index: Tensor, num_cells: int) -> Tensor:
    """The largest value of each feature among a cell's nodes, 0 in an empty one. [cells, M]"""
    out = x.new_zeros(num_cells, x.size(1))
    return out.scatter_reduce(
        0, index[:, None].expand(-1, x.size(1)), x, "amax", include_self=False
    )
