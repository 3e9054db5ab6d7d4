"""Every bad argument raises a plain error that names it, under inference_mode too."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from op_cases import make_case, spline

from ops import linear_top_k, spline_basis, spline_conv, spline_plan

nan = float("nan")
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
U = torch.full((3, 2), 0.5)
CASE = make_case()
PLAN = spline_plan(*spline(CASE))


def plan(edge_index: Any = EDGES, pseudo: Any = U, size: Any = (3, 3), is_open: Any = (1, 1),
         degree: int = 1, nodes: int = 3, sources: int = -1) -> Any:  # fmt: skip
    return spline_plan(edge_index, pseudo, list(size), list(is_open), degree, nodes, sources)


def changed(row: int, column: int, value: float, tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.clone()
    copy[row, column] = value
    return copy


def conv(x: Any = CASE.x, weight: Any = CASE.weight, root: Any = CASE.root, bias: Any = CASE.bias,
         **plan: Any) -> Any:  # fmt: skip
    return spline_conv(x, weight, PLAN._replace(**plan), root, bias)


def head(x: Any = None, weight: Any = None, bias: Any = None, k: int = 1) -> Any:
    x = torch.ones(2, 4) if x is None else x
    return linear_top_k(x, torch.ones(5, 4) if weight is None else weight, bias, k)


def spmm(ptr: Any = (0, 1, 2), index: Any = (0, 3), value: Any = None, dense: Any = None) -> Any:
    dense = torch.ones(4, 2) if dense is None else dense
    return torch.ops.splinecnn.spmm(torch.tensor(ptr), torch.tensor(index), value, dense)


def ints(tensor: torch.Tensor, at: int, value: int) -> torch.Tensor:
    copy = tensor.clone()
    copy[at] = value
    return copy


CASES: list[tuple[Callable[[], Any], str]] = [
    (lambda: spline_basis(U[0], [3, 3], [1, 1]), r"pseudo must be \[E, D\]"),
    (lambda: spline_basis(U, [3, 3], [1, 1], 4), "degree must be 1, 2 or 3, got 4"),
    (lambda: spline_basis(U[:, :0], [], []), "at least one dimension, got none"),
    (lambda: spline_basis(U, [3], [1, 1]), r"one entry per dimension of pseudo \(2\), got 1 and 2"),
    (lambda: spline_basis(U, [3, 2], [1, 1], 2), "at least degree \\+ 1 = 3, got 2 in dimension 1"),
    (lambda: spline_basis(changed(2, 1, 1.5, U), [3, 3], [1, 1]), "got 1.5 at edge 2, dimension 1"),
    (lambda: plan(pseudo=changed(1, 0, -0.25, U)), "got -0.25 at edge 1, dimension 0"),
    (lambda: plan(pseudo=changed(1, 1, nan, U)), "got nan at edge 1, dimension 1"),
    (lambda: plan(edge_index=EDGES[0]), r"edge_index must be \[2, E\]"),
    (lambda: plan(edge_index=EDGES[:, :2]), "same number of edges, got 2 and 3"),
    (lambda: plan(nodes=2), r"edge_index must lie in \[0, 2\), got 2 at \[0, 2\]"),
    (lambda: plan(sources=9, nodes=2), r"edge_index must lie in \[0, 2\), got 2 at \[1, 1\]"),
    (lambda: plan(EDGES - 1), r"edge_index must lie in \[0, 3\), got -1 at \[0, 0\]"),
    (lambda: spline_basis(U, [3, 3], [1, 2]), "is_open must be 0 or 1, got 2 in dimension 1"),
    (lambda: plan(is_open=(-1, 1)), "is_open must be 0 or 1, got -1 in dimension 0"),
    (lambda: spline_basis(U.half(), [3, 3], [1, 1]), "must be float32 or float64, got float16"),
    (lambda: spline_basis(U.long(), [3, 3], [1, 1]), "must be float32 or float64, got int64"),
    (lambda: spline_basis(torch.ones(1, 31), [2] * 31, [1] * 31),
     "product below 2\\^31, too large in dimension 30"),
    (lambda: spline_basis(U, [2**16, 2**16], [1, 1]), "product below 2\\^31"),
    (lambda: plan(torch.empty(2, 1, dtype=torch.long).expand(2, 2**30),
                  torch.empty(1, 2).expand(2**30, 2)), "E \\* S must stay below 2\\^31"),
    (lambda: plan(EDGES.int()), "edge_index must be int64, got int32"),
    (lambda: plan(nodes=-1), "num_nodes must lie in"),
    (lambda: conv(x=CASE.x[0]), r"x must be \[num_sources, M_in\], got \[64\]"),
    (lambda: conv(x=CASE.x.half()), "x must be float32 or float64, got float16"),
    (lambda: conv(x=CASE.x[:5]), "root needs as many sources as nodes, got 5 and 90"),
    (lambda: conv(x=CASE.x[:5], root=None), r"src must lie in \[0, 5\), got \d+ at \d+"),
    (lambda: conv(weight=CASE.weight.double()), "weight must be float32, got float64"),
    (lambda: conv(weight=CASE.weight[0]), r"weight must be \[K, M_in, M_out\], got \[64, 32\]"),
    (lambda: conv(weight=CASE.weight[:, 1:]), "weight must have size 64 in dimension 1"),
    (lambda: conv(weight=CASE.weight[:2]), "weight must have at least 6 rows for this plan, got 2"),
    (lambda: conv(root=CASE.root[1:]), "root must have size 64 in dimension 0"),
    (lambda: conv(root=CASE.root[:, 1:]), "root must have size 32 in dimension 1"),
    (lambda: conv(bias=CASE.bias[1:]), "bias must have size 32 in dimension 0"),
    (lambda: conv(num_nodes=-1), "num_nodes must not be negative, got -1"),
    (lambda: conv(coef=PLAN.coef.double()), "coef must be float32, got float64"),
    (lambda: conv(src=PLAN.src.long()), "src must be int32, got int64"),
    (lambda: conv(src=PLAN.src[1:]), "src must have size"),
    (lambda: conv(src=ints(PLAN.src, 4, 90)), r"src must lie in \[0, 90\), got 90 at 4"),
    (lambda: conv(src=ints(PLAN.src, 4, -1)), r"src must lie in \[0, 90\), got -1 at 4"),
    (lambda: conv(row_ptr=PLAN.row_ptr[1:]), "row_ptr must have size"),
    (lambda: conv(row_ptr=ints(PLAN.row_ptr, 0, 1)), "row_ptr must run from 0 to"),
    (lambda: conv(row_ptr=ints(PLAN.row_ptr, 3, 2**30)), "row_ptr must not decrease"),
    (lambda: conv(row_node=ints(PLAN.row_node, 0, 2**30)), "row_node must ascend"),
    (lambda: conv(row_node=ints(PLAN.row_node, 0, -1)), "row_node must ascend"),
    (lambda: conv(row_node=ints(PLAN.row_node, 1, int(PLAN.row_node[0]))), "row_node must ascend"),
    (lambda: conv(group_ptr=ints(PLAN.group_ptr, -1, 1)), "group_ptr must run from 0 to"),
    (lambda: conv(group_ptr=ints(PLAN.group_ptr, 1, 2**30)), "group_ptr must not decrease"),
    (lambda: conv(group_weight=ints(PLAN.group_weight, 0, -1)), "group_weight must lie in"),
    (lambda: conv(tile_ptr=PLAN.tile_ptr[:0]), "tile_ptr must not be empty"),
    (lambda: conv(tile_ptr=ints(PLAN.tile_ptr, -1, 0)), "tile_ptr must run from 0 to"),
    (lambda: head(x=torch.ones(4)), r"x must be \[N, F\], got \[4\]"),
    (lambda: head(weight=torch.ones(5, 3)), "weight must have size 4 in dimension 1"),
    (lambda: head(bias=torch.ones(4)), "bias must have size 5 in dimension 0"),
    (lambda: head(k=0), r"k must lie in \[1, 5\], got 0"),
    (lambda: head(k=6), r"k must lie in \[1, 5\], got 6"),
    (lambda: spmm(index=(0, 4)), r"index must lie in \[0, 4\), got 4 at 1"),
    (lambda: spmm(ptr=(0, 1, 3)), "ptr must run from 0 to 2, got 0 to 3"),
    (lambda: spmm(ptr=(0, 2, 1, 2)), "ptr must not decrease, got 1 after 2 at 2"),
    (lambda: spmm(value=torch.ones(3)), "value must have size 2 in dimension 0"),
    (lambda: spmm(dense=torch.ones(4)), "dense must be"),
]  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_bad_argument_is_named(number, inference):
    call, message = CASES[number]
    with torch.inference_mode(inference), pytest.raises(RuntimeError, match=message):
        call()


def on_cpu(name: str, *arguments: Any) -> Any:
    """The kernel of the CPU, whatever device its arguments are on."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return getattr(torch.ops.splinecnn, name).default.redispatch(keys, *arguments)


def test_an_argument_on_another_device_is_named():
    arrays = [PLAN.coef, PLAN.src, *PLAN[3:8]]
    arguments = [CASE.x, CASE.weight, CASE.root, CASE.bias, *arrays, PLAN.num_nodes, []]
    assert torch.equal(on_cpu("conv", *arguments), conv())
    names = ["weight", "root", "bias", "coef", "src", "row_ptr", "row_node", "group_ptr"]
    for at, name in enumerate([*names, "group_weight", "tile_ptr"], 1):
        elsewhere = [*arguments[:at], arguments[at].to("meta"), *arguments[at + 1 :]]
        with pytest.raises(RuntimeError, match=f"^{name} must be on the same device as the other"):
            on_cpu("conv", *elsewhere)
    kernel = (CASE.kernel_size, CASE.is_open, CASE.degree, 90, 90, True, False)
    with pytest.raises(RuntimeError, match="edge_index must be on the same device as the other"):
        on_cpu("plan", CASE.edge_index.to("meta"), CASE.pseudo, *kernel)
    with pytest.raises(RuntimeError, match="bias must be on the same device as the other"):
        on_cpu("head", torch.ones(2, 4), torch.ones(5, 4), torch.ones(5).to("meta"), 1)


def test_arguments_need_not_be_contiguous():
    wide = torch.randn(90, 128)
    torch.testing.assert_close(conv(x=wide[:, ::2]), conv(x=wide[:, ::2].contiguous()))
    flipped = CASE.weight.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(conv(weight=flipped), conv())
    torch.testing.assert_close(plan(EDGES.T.contiguous().T, U.T.contiguous().T).coef, plan().coef)
