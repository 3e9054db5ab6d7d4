"""Where nodes lie, in plain torch: what CUDA runs, and the judge of the CPU kernels."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake


def cartesian(positions: Tensor, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """c / (2 max|c|) + 1/2 for the offsets c = position(j) - position(i). [E, D]

    The largest is that of the edge's own graph; a graph without any extent has 1/2 everywhere.
    """
    offset, graph, largest = _offsets(positions, edge_index, ptr)
    twice = 2 * largest[graph, None]
    return torch.where(twice > 0, offset / twice, torch.zeros_like(offset)) + 0.5


def _offsets(positions: Tensor, edge_index: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every edge its offset [E, D] and its graph [E]; the largest of each graph [B]."""
    offset = positions[edge_index[0]] - positions[edge_index[1]]
    graph = torch.bucketize(edge_index[1], ptr[1:], right=True)
    largest = positions.new_zeros(ptr.numel() - 1)
    return offset, graph, largest.scatter_reduce(0, graph, offset.abs().amax(1), "amax")


def cluster_mean(positions: Tensor, members: Tensor) -> Tensor:
    """The mean position of each cluster's nodes [C, M], each counted once. [C, D]"""
    share = _share(members, positions.dtype)
    total = positions.new_zeros(members.size(0), positions.size(1))
    for m in range(members.size(1)):  # one after the other: the same sum on every device
        total = total + positions[members[:, m]] * share[:, m : m + 1]
    return total / share.sum(1, keepdim=True)


def _share(members: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where a node is named for the first time, 0 where again. [C, M]"""
    same = members[:, :, None] == members[:, None, :]
    return (~torch.tril(same, -1).any(2)).to(dtype)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _cartesian_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    positions, edge_index, ptr = ctx.saved_tensors
    source, target = edge_index[0], edge_index[1]
    offset, graph, largest = _offsets(positions, edge_index, ptr)
    twice = 2 * largest[graph, None]
    out = torch.where(twice > 0, grad / twice, torch.zeros_like(grad))
    # the largest offset of a graph scales all of them; several that are equally large share that
    widest = (offset.abs() == largest[graph, None]).to(grad.dtype)
    count, slope = torch.zeros_like(largest), torch.zeros_like(largest)
    count = count.index_add(0, graph, widest.sum(1))
    slope = slope.index_add(0, graph, -(out * offset).sum(1)) / (largest * count)
    out = out + torch.where(twice > 0, widest * offset.sign() * slope[graph, None], 0)
    return (
        torch.zeros_like(positions).index_add(0, source, out).index_add(0, target, -out),
        None,
        None,
    )


def _cluster_mean_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    positions, members = ctx.saved_tensors
    share = _share(members, grad.dtype)
    part = (grad / share.sum(1, keepdim=True))[:, None] * share[:, :, None]  # [C, M, D]
    out = torch.zeros_like(positions)
    return out.index_add(0, members.flatten(), part.flatten(0, 1)), None


def register() -> None:
    """Shapes and gradients; called once the operators exist."""
    register_fake("splinecnn::cartesian")(
        lambda positions, edge_index, ptr: positions.new_empty(
            edge_index.size(1), positions.size(1)
        )
    )
    register_fake("splinecnn::cluster_mean")(
        lambda positions, members: positions.new_empty(members.size(0), positions.size(1))
    )
    register_autograd("splinecnn::cartesian", _cartesian_backward, setup_context=_save)
    register_autograd("splinecnn::cluster_mean", _cluster_mean_backward, setup_context=_save)
