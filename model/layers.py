"""The layers networks are made of: parameters, and one call into the operator each."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ops
from ops import Plan


class SplineConv(nn.Module):
    """A spline convolution M_in -> M_out (paper, eq. 2) with root weight and bias."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: list[int],
        is_open: list[int],
        degree: int = 1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.is_open, self.degree = kernel_size, is_open, degree
        K = math.prod(kernel_size)
        self.weight = nn.Parameter(torch.empty(K, in_channels, out_channels))
        self.root = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(K * M_in), as in the paper's own code."""
        bound = 1 / math.sqrt(self.weight.size(0) * self.weight.size(1))
        for parameter in (self.weight, self.root, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def plan(
        self, edge_index: Tensor, pseudo: Tensor, num_nodes: int, backward: bool = False
    ) -> Plan:
        """What this layer, and any other of the same kernel, needs to know of a graph."""
        return ops.spline_plan(
            edge_index, pseudo, self.kernel_size, self.is_open, self.degree, num_nodes,
            backward=backward,
        )  # fmt: skip

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        return ops.spline_conv(x, self.weight, plan, self.root, self.bias)


class SparseSplineConv(SplineConv):
    """A spline convolution of features given as compressed rows."""

    def forward(  # type: ignore[override]
        self, ptr: Tensor, index: Tensor, value: Tensor, plan: Plan
    ) -> Tensor:
        return ops.spline_conv_sparse(ptr, index, value, self.weight, plan, self.root, self.bias)


class Linear(nn.Linear):
    """A linear layer whose rows, when not training, do not depend on how many rows there are.

    BLAS libraries choose their kernels by the number of rows, so that a graph's answer would
    change in its last bits with the company it keeps. The operator's own product does not.
    """

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            return F.linear(input, self.weight, self.bias)
        none = torch.zeros(0, dtype=torch.int32, device=input.device)
        zero = torch.zeros(1, dtype=torch.int32, device=input.device)
        root = self.weight.t().contiguous()
        tiles = torch.zeros(input.size(0) // 256 + 2, dtype=torch.int32, device=input.device)
        # a spline convolution over no edges at all: root weight and bias are what is left
        plan = Plan(
            torch.zeros(0, dtype=input.dtype, device=input.device), none, none, zero, none, zero,
            none, tiles, input.size(0), input.size(0), [],
        )  # fmt: skip
        return ops.spline_conv(input, root[None], plan, root, self.bias)
