"""Every operator of the library in plain torch, for machines where the extension was not built."""

import torch
from torch import Tensor

from ops import reference
from ops.checks import (
    check_basis,
    check_conv,
    check_count,
    check_dims,
    check_edges,
    check_features,
    check_floating,
    check_gather,
    check_head,
    check_like,
    check_plan,
    check_pseudo,
    check_size,
    check_sparse,
)
from ops.geodesic import hierarchy as hierarchy
from ops.geodesic import match as match
from ops.pooling import pool as pool
from ops.positions import cartesian as cartesian
from ops.positions import cluster_mean as cluster_mean

TILE = 256  # target nodes per tile


def tile_count(num_nodes: int) -> int:
    return -(-num_nodes // TILE)


def tile_size(num_nodes: int, tile_ptr: Tensor) -> int:
    """Tiles are runs of ceil(N / tiles) nodes; the last ones may be empty."""
    return -(-num_nodes // max(1, tile_ptr.numel() - 1))


def _starts(sorted_keys: Tensor, count: int) -> Tensor:
    """Where each key 0..count-1 begins in a sorted list, closed by its length. [count + 1]"""
    keys = torch.arange(count + 1, device=sorted_keys.device)
    return torch.searchsorted(sorted_keys, keys).int()


def _arrange(
    coef: Tensor, source: Tensor, target: Tensor, weight: Tensor, pair: Tensor, num_nodes: int
) -> tuple[Tensor, ...]:
    """Sort entries by (tile, weight, target) and write down where rows, groups and tiles begin."""
    tiles = tile_count(num_nodes)
    size = -(-num_nodes // max(1, tiles))
    K = int(weight.max()) + 1 if weight.numel() else 1
    group = target // max(1, size) * K + weight
    row_key, order = torch.sort(group * max(1, num_nodes) + target, stable=True)
    row_key, row_size = torch.unique_consecutive(row_key, return_counts=True)
    row_group = row_key // max(1, num_nodes)
    group_key, group_size = torch.unique_consecutive(row_group, return_counts=True)

    def offsets(sizes: Tensor) -> Tensor:
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()

    return (
        coef[order],
        source[order].int(),
        pair[order].int(),
        offsets(row_size),
        (row_key % max(1, num_nodes)).int(),
        offsets(group_size),
        (group_key % K).int(),
        _starts(group_key // K, tiles),
    )


def plan(
    edge_index: Tensor,
    pseudo: Tensor,
    kernel_size: list[int],
    is_open: list[int],
    degree: int,
    num_nodes: int,
    num_sources: int,
    mean: bool,
    keep_zeros: bool,
) -> tuple[Tensor, ...]:
    check_basis(pseudo, kernel_size, is_open, degree)
    check_edges(edge_index, pseudo, num_nodes, num_sources)
    check_pseudo(pseudo)
    value, weight = reference.basis(pseudo, kernel_size, is_open, degree)
    S = value.size(1)
    source, target = edge_index[0].repeat_interleave(S), edge_index[1].repeat_interleave(S)
    if mean:
        count = torch.bincount(edge_index[1], minlength=num_nodes)
        value = value / count[edge_index[1], None].to(value.dtype)
    coef, weight = value.flatten(), weight.flatten()
    pair = torch.arange(coef.numel(), device=coef.device)
    if not keep_zeros:
        kept = coef != 0
        coef, source, target, weight, pair = (t[kept] for t in (coef, source, target, weight, pair))
    return _arrange(coef, source, target, weight, pair, num_nodes)


def _entries(
    row_ptr: Tensor, row_node: Tensor, group_ptr: Tensor, group_weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Row, target node and weight of every entry."""
    row = torch.repeat_interleave(row_ptr.diff().long())
    row_weight = group_weight.long()[torch.repeat_interleave(group_ptr.diff().long())]
    return row, row_node.long()[row], row_weight[row]


def transpose(
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
    num_nodes: int,
    num_sources: int,
) -> tuple[Tensor, ...]:
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_floating(coef, "coef")
    check_plan(plan, coef, num_nodes, num_sources, 2**31 - 1)
    _, target, weight = _entries(row_ptr, row_node, group_ptr, group_weight)
    entry = torch.arange(coef.numel(), device=coef.device)
    return _arrange(coef, target, src.long(), weight, entry, num_sources)


def _gather_rows(x: Tensor, coef: Tensor, src: Tensor, row_ptr: Tensor) -> Tensor:
    """A[(i, p)] = sum of coef * x[source] over the entries of a row. [R, M_in]"""
    row = torch.repeat_interleave(row_ptr.diff().long())
    rows = x.new_zeros(row_ptr.numel() - 1, x.size(1))
    return rows.index_add_(0, row, coef[:, None] * x[src.long()])


def conv(
    x: Tensor,
    weight: Tensor,
    root: Tensor | None,
    bias: Tensor | None,
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
    num_nodes: int,
    back: list[Tensor],
) -> Tensor:
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_conv(x, weight, root, bias, num_nodes)
    check_plan(plan, x, num_nodes, x.size(0), weight.size(0))
    rows = _gather_rows(x, coef, src, row_ptr)
    out = x.new_zeros(num_nodes, weight.size(2))
    node = row_node.long()
    for g, p in enumerate(group_weight.tolist()):
        r = slice(int(group_ptr[g]), int(group_ptr[g + 1]))
        out.index_add_(0, node[r], rows[r] @ weight[p])
    if root is not None:
        out += x @ root
    return out if bias is None else out.add_(bias)


def conv_weight_grad(
    grad: Tensor,
    x: Tensor,
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
    num_weights: int,
) -> Tensor:
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_features(x)
    check_like(grad, "grad", x, 2, "[num_nodes, M_out]")
    check_count(num_weights, "num_weights")
    check_plan(plan, x, grad.size(0), x.size(0), num_weights)
    rows = _gather_rows(x, coef, src, row_ptr)
    out = x.new_zeros(num_weights, x.size(1), grad.size(1))
    for g, p in enumerate(group_weight.tolist()):
        r = slice(int(group_ptr[g]), int(group_ptr[g + 1]))
        out[p] += rows[r].T @ grad[row_node[r].long()]
    return out


def conv_coef_grad(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
) -> Tensor:
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_features(x)
    check_like(grad, "grad", x, 2, "[num_nodes, M_out]")
    check_conv(x, weight, None, None, grad.size(0))
    check_size(grad, "grad", 1, weight.size(2))
    check_plan(plan, x, grad.size(0), x.size(0), weight.size(0))
    rows = grad.new_empty(row_node.numel(), x.size(1))
    for g, p in enumerate(group_weight.tolist()):
        r = slice(int(group_ptr[g]), int(group_ptr[g + 1]))
        rows[r] = grad[row_node[r].long()] @ weight[p].T
    row = torch.repeat_interleave(row_ptr.diff().long())
    return (rows[row] * x[src.long()]).sum(1)


def gather(
    y: Tensor,
    bias: Tensor | None,
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
    num_nodes: int,
    back: list[Tensor],
) -> Tensor:
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_gather(y)
    if bias is not None:
        check_like(bias, "bias", y, 1, "[C]")
        check_size(bias, "bias", 0, y.size(2))
    check_count(num_nodes, "num_nodes")
    check_plan(plan, y, num_nodes, y.size(0), y.size(1))
    _, target, weight = _entries(row_ptr, row_node, group_ptr, group_weight)
    out = y.new_zeros(num_nodes, y.size(2))
    out.index_add_(0, target, coef[:, None] * y[src.long(), weight])
    return out if bias is None else out.add_(bias)


def gather_grad(
    grad: Tensor,
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
    num_sources: int,
    num_weights: int,
) -> Tensor:
    """The gradient of `gather` for y; the plan is the transposed one. [num_sources, K, C]"""
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_floating(grad, "grad")
    check_dims(grad, "grad", 2, "[num_nodes, C]")
    check_count(num_sources, "num_sources")
    check_count(num_weights, "num_weights")
    check_plan(plan, grad, num_sources, grad.size(0), num_weights)
    _, node, weight = _entries(row_ptr, row_node, group_ptr, group_weight)
    out = grad.new_zeros(num_sources * num_weights, grad.size(1))
    out.index_add_(0, node * num_weights + weight, coef[:, None] * grad[src.long()])
    return out.view(num_sources, num_weights, grad.size(1))


def gather_coef_grad(
    grad: Tensor,
    y: Tensor,
    coef: Tensor,
    src: Tensor,
    row_ptr: Tensor,
    row_node: Tensor,
    group_ptr: Tensor,
    group_weight: Tensor,
    tile_ptr: Tensor,
) -> Tensor:
    plan = (coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr)
    check_gather(y)
    check_like(grad, "grad", y, 2, "[num_nodes, C]")
    check_size(grad, "grad", 1, y.size(2))
    check_plan(plan, y, grad.size(0), y.size(0), y.size(1))
    _, target, weight = _entries(row_ptr, row_node, group_ptr, group_weight)
    return (grad[target] * y[src.long(), weight]).sum(1)


def basis_grad(
    grad: Tensor, pseudo: Tensor, kernel_size: list[int], is_open: list[int], degree: int
) -> Tensor:
    check_basis(pseudo, kernel_size, is_open, degree)
    check_like(grad, "grad", pseudo, 2, "[E, S]")
    check_size(grad, "grad", 0, pseudo.size(0))
    check_size(grad, "grad", 1, (degree + 1) ** pseudo.size(1))
    with torch.enable_grad():
        u = pseudo.detach().requires_grad_()
        value, _ = reference.basis(u, kernel_size, is_open, degree)
        return torch.autograd.grad(value, u, grad)[0]


def spmm(ptr: Tensor, index: Tensor, value: Tensor | None, dense: Tensor) -> Tensor:
    check_sparse(ptr, index, value, dense, dense.size(0))
    row = torch.repeat_interleave(ptr.diff().long())
    picked = dense[index.long()] if value is None else value[:, None] * dense[index.long()]
    return dense.new_zeros(ptr.numel() - 1, dense.size(1)).index_add_(0, row, picked)


def spmm_t(
    ptr: Tensor, index: Tensor, value: Tensor | None, dense: Tensor, num_columns: int
) -> Tensor:
    check_sparse(ptr, index, value, dense, num_columns)
    check_size(dense, "dense", 0, ptr.numel() - 1)
    check_count(num_columns, "num_columns")
    row = torch.repeat_interleave(ptr.diff().long())
    picked = dense[row] if value is None else value[:, None] * dense[row]
    return dense.new_zeros(num_columns, dense.size(1)).index_add_(0, index.long(), picked)


def basis(
    pseudo: Tensor, kernel_size: list[int], is_open: list[int], degree: int
) -> tuple[Tensor, Tensor]:
    check_basis(pseudo, kernel_size, is_open, degree)
    check_pseudo(pseudo)
    return reference.basis(pseudo, kernel_size, is_open, degree)


def head(x: Tensor, weight: Tensor, bias: Tensor | None, k: int) -> tuple[Tensor, Tensor, Tensor]:
    check_head(x, weight, bias, k)
    return reference.head(x, weight, bias, k)


def elu(x: Tensor) -> Tensor:
    check_floating(x, "x")
    return reference.elu(x)


def exp(x: Tensor) -> Tensor:
    check_floating(x, "x")
    return reference.exp(x)


def softmax(x: Tensor) -> Tensor:
    check_floating(x, "x")
    check_dims(x, "x", 2, "[N, C]")
    return reference.softmax(x)


def simd_level() -> str:
    return "none"
