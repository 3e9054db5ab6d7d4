"""Activations that treat an element alike wherever in a batch it lies, to the last bit."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake


def elu(x: Tensor) -> Tensor:
    """x where it is positive, else exp(x) - 1."""
    out: Tensor = torch.ops.splinecnn.elu(x)
    return out


def exp(x: Tensor) -> Tensor:
    """e to the x, for x from -87 to 88; beyond that the value at the end."""
    out: Tensor = torch.ops.splinecnn.exp(x)
    return out


def softmax(x: Tensor) -> Tensor:
    """The probabilities of each row of scores [N, C]."""
    out: Tensor = torch.ops.splinecnn.softmax(x)
    return out


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save_both(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], output)


def _elu_backward(ctx: Any, grad: Tensor) -> Tensor:
    x, out = ctx.saved_tensors
    return grad * torch.where(x > 0, 1, out + 1)


def _exp_backward(ctx: Any, grad: Tensor) -> Tensor:
    return grad * ctx.saved_tensors[1]


def _softmax_backward(ctx: Any, grad: Tensor) -> Tensor:
    _, out = ctx.saved_tensors
    weighted = grad * out
    return weighted - out * weighted.sum(1, keepdim=True)


for _name, _backward in (
    ("elu", _elu_backward),
    ("exp", _exp_backward),
    ("softmax", _softmax_backward),
):
    register_fake(f"splinecnn::{_name}")(_like)
    register_autograd(f"splinecnn::{_name}", _backward, setup_context=_save_both)
