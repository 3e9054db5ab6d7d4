"""The operator in plain torch, straight from the paper: slow, obvious, judge of every kernel."""

import torch
from torch import Tensor


def bspline(v: Tensor, degree: int) -> Tensor:
    """The degree+1 B-spline values at the fraction v of a knot interval. [..., degree+1]"""
    if degree == 1:
        return torch.stack([1 - v, v], -1)
    if degree == 2:
        return torch.stack([0.5 * (1 - v) ** 2, 0.5 + v - v * v, 0.5 * v * v], -1)
    c = 1 - v
    return (
        torch.stack([c**3, 4 - 6 * v * v + 3 * v**3, 4 - 6 * c * c + 3 * c**3, v**3], -1) / 6
    )  # [..., 4]


def basis(
    pseudo: Tensor, kernel_size: list[int], is_open: list[int], degree: int
) -> tuple[Tensor, Tensor]:
    """Basis products B_p(u) and flat weight indices p of every edge (paper, eq. 3 and section 4).

    D dimensions, S = (degree+1)^D active functions; dimension 0 varies fastest in both outputs.
    """
    E = pseudo.size(0)
    value = pseudo.new_ones(E, 1)
    index = torch.zeros(E, 1, dtype=torch.long, device=pseudo.device)
    stride = 1
    for d, k in enumerate(kernel_size):
        # an open spline over k weights has k - degree intervals, a closed one has k
        intervals = k - degree if is_open[d] else k
        v = pseudo[:, d] * intervals
        cell = v.detach().floor().clamp(0, intervals - 1)
        step = torch.arange(degree + 1, device=pseudo.device)
        p = (cell.long()[:, None] + step) % k  # [E, degree+1]
        b = bspline(v - cell, degree)  # [E, degree+1]
        value = (b[:, :, None] * value[:, None, :]).flatten(1)
        index = (p[:, :, None] * stride + index[:, None, :]).flatten(1)
        stride *= k
    return value, index  # [E, S], [E, S]


def spline_conv(
    x: Tensor,
    edge_index: Tensor,
    pseudo: Tensor,
    weight: Tensor,
    kernel_size: list[int],
    is_open: list[int],
    degree: int,
    num_nodes: int,
    mean: bool = True,
    root: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """One spline convolution (paper, eq. 2): every edge, every active weight, one product each."""
    source, target = edge_index[0], edge_index[1]
    value, index = basis(pseudo, kernel_size, is_open, degree)
    out = x.new_zeros(num_nodes, weight.size(2))
    for s in range(value.size(1)):
        message = torch.bmm(x[source, None, :], weight[index[:, s]]).squeeze(1)  # [E, M_out]
        out = out.index_add(0, target, value[:, s, None] * message)
    if mean:
        count = torch.bincount(target, minlength=num_nodes).clamp(min=1)
        out = out / count[:, None]
    if root is not None:
        out = out + x @ root
    return out if bias is None else out + bias


def head(x: Tensor, weight: Tensor, bias: Tensor | None, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best classes of a linear layer, with the log-sum-exp of all of them."""
    logits = torch.nn.functional.linear(x, weight, bias)  # [N, C]
    # a stable sort, so that of equal logits the lower class wins, as in the kernels
    value, index = torch.sort(logits, dim=1, descending=True, stable=True)
    return value[:, :k].contiguous(), index[:, :k].contiguous(), torch.logsumexp(logits, 1)


def elu(x: Tensor) -> Tensor:
    return torch.nn.functional.elu(x)


def exp(x: Tensor) -> Tensor:
    return torch.exp(x)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, 1)
