"""The public functions of the operator: thin, typed, scriptable calls into torch.ops.splinecnn."""

from typing import NamedTuple

import torch
from torch import Tensor


class Plan(NamedTuple):
    """What every layer over one graph needs to know of it, computed once by `spline_plan`.

    A convolution sums, for target node i and weight p, A[(i, p)] = sum of coef * x[src], and then
    multiplies each such row by weight[p]. Rows are sorted by (tile, p, i): a tile is a run of
    ceil(num_nodes / tiles) target nodes, a group the rows of one weight in one tile.
    """

    coef: Tensor  # [Q] basis value of each entry, divided by the node's degree when averaging
    src: Tensor  # [Q] int32, source node of each entry
    pair: Tensor  # [Q] int32, which (edge, active function) e * S + s an entry came from
    row_ptr: Tensor  # [R + 1] int32, entries of each row
    row_node: Tensor  # [R] int32, target node of each row
    group_ptr: Tensor  # [G + 1] int32, rows of each group
    group_weight: Tensor  # [G] int32, weight index p of each group
    tile_ptr: Tensor  # [tiles + 1] int32, groups of each tile
    num_nodes: int
    num_sources: int
    back: list[Tensor]  # the first eight of the reversed graph's plan, for gradients; may be []


def spline_basis(
    pseudo: Tensor, kernel_size: list[int], is_open: list[int], degree: int = 1
) -> tuple[Tensor, Tensor]:
    """B-spline products and weight indices of every edge, [E, S] each (paper, section 3.2).

    pseudo [E, D] lies in [0, 1]; `is_open` says per dimension whether the spline is open (1) or
    closed (0); S = (degree + 1) ** D.
    """
    out: tuple[Tensor, Tensor] = torch.ops.splinecnn.basis(pseudo, kernel_size, is_open, degree)
    return out


def spline_plan(
    edge_index: Tensor,
    pseudo: Tensor,
    kernel_size: list[int],
    is_open: list[int],
    degree: int,
    num_nodes: int,
    num_sources: int = -1,
    mean: bool = True,
    backward: bool = False,
) -> Plan:
    """Everything about a graph that its convolutions share.

    edge_index [2, E]: row 0 the source, row 1 the target of each message. `num_sources` differs
    from `num_nodes` (the targets) only between two node sets. With `backward` the plan also holds
    the reversed graph, so that training sorts it once and not in every layer.
    """
    if num_sources < 0:
        num_sources = num_nodes
    coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr = (
        torch.ops.splinecnn.plan(
            edge_index,
            pseudo,
            kernel_size,
            is_open,
            degree,
            num_nodes,
            num_sources,
            mean,
            pseudo.requires_grad,
        )
    )
    back: list[Tensor] = []
    if backward:
        a, b, c, d, e, f, g, h = torch.ops.splinecnn.transpose(
            coef.detach(), src, row_ptr, row_node, group_ptr, group_weight, tile_ptr,
            num_nodes, num_sources,
        )  # fmt: skip
        back = [a, b, c, d, e, f, g, h]
    return Plan(
        coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr,
        num_nodes, num_sources, back,
    )  # fmt: skip


def spline_conv(
    x: Tensor, weight: Tensor, plan: Plan, root: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """A spline convolution over a planned graph (paper, eq. 2), [num_sources, M_in] to [N, M_out].

    weight is [K, M_in, M_out] with K the product of the kernel sizes; root [M_in, M_out] maps a
    node's own features, bias [M_out] is added last.
    """
    out: Tensor = torch.ops.splinecnn.conv(
        x, weight, root, bias, plan.coef, plan.src, plan.row_ptr, plan.row_node, plan.group_ptr,
        plan.group_weight, plan.tile_ptr, plan.num_nodes, plan.back,
    )  # fmt: skip
    return out


def spline_conv_sparse(
    ptr: Tensor,
    index: Tensor,
    value: Tensor | None,
    weight: Tensor,
    plan: Plan,
    root: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`spline_conv` of features given as compressed rows: ptr [N + 1], index and value [nnz].

    `value` None means ones. The features are multiplied by all weights first, which costs nnz
    instead of N * M_in, and the results are summed over the edges.
    """
    K, M_in, M_out = weight.size(0), weight.size(1), weight.size(2)
    wide = weight.transpose(0, 1).reshape(M_in, K * M_out)
    if root is not None:
        wide = torch.cat([wide, root], 1)
    y: Tensor = torch.ops.splinecnn.spmm(ptr, index, value, wide)  # [N, (K + 1) * M_out]
    out = _gather(y[:, : K * M_out].reshape(-1, K, M_out), plan, bias)
    return out if root is None else out + y[:, K * M_out :]


def _gather(y: Tensor, plan: Plan, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.splinecnn.gather(
        y, bias, plan.coef, plan.src, plan.row_ptr, plan.row_node, plan.group_ptr,
        plan.group_weight, plan.tile_ptr, plan.num_nodes, plan.back,
    )  # fmt: skip
    return out


def linear_top_k(
    x: Tensor, weight: Tensor, bias: Tensor | None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest outputs of a linear layer, their classes, and the log-sum-exp of all outputs.

    x [N, F], weight [C, F], bias [C] -> [N, k], [N, k], [N]. The [N, C] outputs are never stored;
    of equal outputs the lower class comes first.
    """
    out: tuple[Tensor, Tensor, Tensor] = torch.ops.splinecnn.head(x, weight, bias, k)
    return out
