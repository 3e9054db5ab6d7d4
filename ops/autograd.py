"""Gradients of the operators, registered for eager and scripted code alike."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd

_ops = torch.ops.splinecnn


def _basis_setup(ctx: Any, inputs: Any, output: Any) -> None:
    pseudo, *ctx.spline = inputs
    ctx.save_for_backward(pseudo)
    ctx.mark_non_differentiable(output[1])


def _basis_backward(ctx: Any, grad: Tensor, _: Any) -> Any:
    (pseudo,) = ctx.saved_tensors
    return _ops.basis_grad(grad.contiguous(), pseudo, *ctx.spline), None, None, None


def _plan_setup(ctx: Any, inputs: Any, output: Any) -> None:
    edge_index, pseudo, kernel_size, is_open, degree, num_nodes, _, ctx.mean, _ = inputs
    ctx.spline, ctx.num_nodes = (kernel_size, is_open, degree), num_nodes
    ctx.save_for_backward(edge_index, pseudo, output[2])
    ctx.mark_non_differentiable(*output[1:])


def _plan_backward(ctx: Any, grad_coef: Tensor, *_: Any) -> Any:
    edge_index, pseudo, pair = ctx.saved_tensors
    S = (ctx.spline[2] + 1) ** pseudo.size(1)
    grad = grad_coef.new_zeros(pseudo.size(0) * S)
    grad[pair.long()] = grad_coef
    grad = grad.view(-1, S)
    if ctx.mean:
        count = torch.bincount(edge_index[1], minlength=ctx.num_nodes)
        grad = grad / count[edge_index[1], None]
    return (None, _ops.basis_grad(grad, pseudo, *ctx.spline), *([None] * 7))


def _back_plan(back: list[Tensor], plan: Any, num_nodes: int, num_sources: int) -> list[Tensor]:
    """The reversed graph's coef, src, row_ptr, …: given with the plan, or made here."""
    made = back or list(_ops.transpose(*plan, num_nodes, num_sources))
    return [made[0], made[1], *made[3:]]


def _sum_of_products(x: Tensor, grad: Tensor) -> Tensor:
    """x^T grad as the gradient of a weight that every node applies to itself: the same bits
    whatever the number of threads, which torch.mm does not promise. [M_in, M_out]"""
    node = torch.arange(x.size(0) + 1, dtype=torch.int32, device=x.device)
    whole = node[[0, -1]]
    plan = (
        x.new_ones(x.size(0)),
        node[:-1],
        node,
        node[:-1],
        whole,
        whole[:1],
        node.new_tensor([0, 1]),
    )
    return _ops.conv_weight_grad(grad, x, *plan, 1)[0]


def _conv_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, root, bias, *plan, num_nodes, back = inputs
    ctx.save_for_backward(x, weight, root, *plan, *back)
    ctx.num_nodes = num_nodes


def _conv_backward(ctx: Any, grad: Tensor) -> Any:
    x, weight, root, *rest = ctx.saved_tensors
    plan, back = rest[:7], rest[7:]
    need_x, need_weight, need_root, need_bias, need_coef = ctx.needs_input_grad[:5]
    grad = grad.contiguous()
    grad_x = grad_weight = grad_root = grad_bias = grad_coef = None
    if need_x:
        # the gradient for x is the same convolution over the reversed graph, weights transposed
        reverse = _back_plan(back, plan, ctx.num_nodes, x.size(0))
        flipped = weight.transpose(1, 2).contiguous()
        own = None if root is None else root.T.contiguous()
        grad_x = _ops.conv(grad, flipped, own, None, *reverse, x.size(0), [])
    if need_weight:
        grad_weight = _ops.conv_weight_grad(grad, x, *plan, weight.size(0))
    if need_root:
        grad_root = _sum_of_products(x, grad)
    if need_bias:
        grad_bias = _sum_of_products(grad.new_ones(grad.size(0), 1), grad)[0]
    if need_coef:
        grad_coef = _ops.conv_coef_grad(grad, x, weight, *plan)
    return (grad_x, grad_weight, grad_root, grad_bias, grad_coef, *([None] * 7), [None] * len(back))


def _gather_setup(ctx: Any, inputs: Any, output: Any) -> None:
    y, bias, *plan, num_nodes, back = inputs
    ctx.save_for_backward(y, *plan, *back)
    ctx.num_nodes = num_nodes


def _gather_backward(ctx: Any, grad: Tensor) -> Any:
    y, *rest = ctx.saved_tensors
    plan, back = rest[:7], rest[7:]
    need_y, need_bias, need_coef = ctx.needs_input_grad[:3]
    grad = grad.contiguous()
    grad_y = grad_bias = grad_coef = None
    if need_y:
        reverse = _back_plan(back, plan, ctx.num_nodes, y.size(0))
        grad_y = _ops.gather_grad(grad, *reverse, y.size(0), y.size(1))
    if need_bias:
        grad_bias = _sum_of_products(grad.new_ones(grad.size(0), 1), grad)[0]
    if need_coef:
        grad_coef = _ops.gather_coef_grad(grad, y, *plan)
    return (grad_y, grad_bias, grad_coef, *([None] * 7), [None] * len(back))


def _spmm_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ptr, index, value, dense = inputs
    if value is not None and value.requires_grad:
        raise RuntimeError("splinecnn::spmm has no gradient for value; detach it first")
    ctx.save_for_backward(ptr, index, value)
    ctx.num_columns = dense.size(0)


def _spmm_backward(ctx: Any, grad: Tensor) -> Any:
    ptr, index, value = ctx.saved_tensors
    return None, None, None, _ops.spmm_t(ptr, index, value, grad.contiguous(), ctx.num_columns)


def _head_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _ = inputs
    _, index, logsumexp = output
    ctx.save_for_backward(x, weight, bias, index, logsumexp)
    ctx.mark_non_differentiable(index)


def _head_backward(ctx: Any, grad_value: Tensor, _: Any, grad_lse: Tensor) -> Any:
    """Logits are computed again, a few rows at a time: [N, C] never exists here either."""
    x, weight, bias, index, logsumexp = ctx.saved_tensors
    grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
    grad_bias = None if bias is None else torch.zeros_like(bias)
    for rows in torch.arange(x.size(0), device=x.device).split(512):
        logits = torch.nn.functional.linear(x[rows], weight, bias)
        g = grad_lse[rows, None] * torch.exp(logits - logsumexp[rows, None])
        g.scatter_add_(1, index[rows], grad_value[rows])
        grad_x[rows] = g @ weight
        grad_weight += g.T @ x[rows]
        if grad_bias is not None:
            grad_bias += g.sum(0)
    return grad_x, grad_weight, grad_bias, None


register_autograd("splinecnn::basis", _basis_backward, setup_context=_basis_setup)
register_autograd("splinecnn::plan", _plan_backward, setup_context=_plan_setup)
register_autograd("splinecnn::conv", _conv_backward, setup_context=_conv_setup)
register_autograd("splinecnn::gather", _gather_backward, setup_context=_gather_setup)
register_autograd("splinecnn::spmm", _spmm_backward, setup_context=_spmm_setup)
register_autograd("splinecnn::head", _head_backward, setup_context=_head_setup)
