"""Output shapes and dtypes of the operators, for torch.export and torch.compile."""

from typing import Any

import torch
from torch import Tensor
from torch.library import get_ctx, register_fake


@register_fake("splinecnn::basis")
def _basis(pseudo: Tensor, kernel_size: Any, is_open: Any, degree: int) -> Any:
    S = (degree + 1) ** pseudo.size(1)
    value = pseudo.new_empty(pseudo.size(0), S)
    return value, torch.empty_like(value, dtype=torch.long)


@register_fake("splinecnn::basis_grad")
def _basis_grad(grad: Tensor, pseudo: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(pseudo)


def _plan_tensors(like: Tensor) -> Any:
    """Eight tensors whose lengths depend on the data: entries, rows, groups and tiles."""
    ctx = get_ctx()
    Q, R, G = (ctx.new_dynamic_size() for _ in range(3))
    tile_ptr = ctx.new_dynamic_size(min=1)

    def ints(n: Any) -> Tensor:
        return like.new_empty(n, dtype=torch.int32)

    coef, rows, groups = like.new_empty(Q), ints(R), ints(G)
    return coef, ints(Q), ints(Q), ints(R + 1), rows, ints(G + 1), groups, ints(tile_ptr)


@register_fake("splinecnn::plan")
def _plan(edge_index: Tensor, pseudo: Tensor, *_: Any) -> Any:
    return _plan_tensors(pseudo)


@register_fake("splinecnn::transpose")
def _transpose(coef: Tensor, *_: Any) -> Any:
    return _plan_tensors(coef)


@register_fake("splinecnn::conv")
def _conv(x: Tensor, weight: Tensor, root: Any, bias: Any, *rest: Any) -> Tensor:
    return x.new_empty(rest[-2], weight.size(2))


@register_fake("splinecnn::conv_weight_grad")
def _conv_weight_grad(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(rest[-1], x.size(1), grad.size(1))


@register_fake("splinecnn::conv_coef_grad")
def _conv_coef_grad(grad: Tensor, x: Tensor, weight: Tensor, coef: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(coef)


@register_fake("splinecnn::gather")
def _gather(y: Tensor, bias: Any, *rest: Any) -> Tensor:
    return y.new_empty(rest[-2], y.size(2))


@register_fake("splinecnn::gather_grad")
def _gather_grad(grad: Tensor, *rest: Any) -> Tensor:
    return grad.new_empty(rest[-2], rest[-1], grad.size(1))


@register_fake("splinecnn::gather_coef_grad")
def _gather_coef_grad(grad: Tensor, y: Tensor, coef: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(coef)


@register_fake("splinecnn::spmm")
def _spmm(ptr: Tensor, index: Tensor, value: Any, dense: Tensor) -> Tensor:
    return dense.new_empty(ptr.size(0) - 1, dense.size(1))


@register_fake("splinecnn::spmm_t")
def _spmm_t(ptr: Tensor, index: Tensor, value: Any, dense: Tensor, num_columns: int) -> Tensor:
    return dense.new_empty(num_columns, dense.size(1))


@register_fake("splinecnn::head")
def _head(x: Tensor, weight: Tensor, bias: Any, k: int) -> Any:
    value = x.new_empty(x.size(0), k)
    return value, torch.empty_like(value, dtype=torch.long), x.new_empty(x.size(0))


@register_fake("splinecnn::pool")
def _pool(edge_index: Tensor, ptr: Tensor, matchings: int, *_: Any) -> Any:
    ctx = get_ctx()
    clusters, edges = ctx.new_dynamic_size(), ctx.new_dynamic_size()
    members = edge_index.new_empty(clusters, 2**matchings)
    return members, edge_index.new_empty(2, edges), torch.empty_like(ptr)


@register_fake("splinecnn::hierarchy")
def _hierarchy(vertices: Tensor, faces: Tensor, ptr: Tensor, sizes: Any, *_: Any) -> Any:
    ctx = get_ctx()
    C, P, E, H = (ctx.new_dynamic_size() for _ in range(4))

    def ints(*shape: Any) -> Tensor:
        return faces.new_empty(shape)

    point, normal = torch.empty_like(vertices), torch.empty_like(vertices)
    cell = vertices.new_empty(C, 7)
    cell_ptr = ints(len(sizes), ptr.size(0))
    return point, normal, cell, cell_ptr, ints(P), ints(2, E), ints(len(sizes) + 1), ints(2, H)


@register_fake("splinecnn::match")
def _match(score: Tensor, *rest: Any) -> Any:
    value = score.new_empty(score.size(0), rest[-1])
    return torch.empty_like(value, dtype=torch.long), value
