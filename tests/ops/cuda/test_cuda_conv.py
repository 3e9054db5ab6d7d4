"""The CUDA kernels of the convolution and of the other order of work, with all gradients."""

from typing import Any

import pytest
import torch
from cuda_cases import DTYPES, GRAPHS, assert_near, coordinates, graph, judge, kernel, numbers
from torch import Tensor

KINDS = [(kind, torch.float32) for kind in GRAPHS] + [("random", d) for d in DTYPES[1:]]


def made_plan(kind: str, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor], int, int]:
    """A plan, its reverse, the number of nodes and of weights."""
    edge_index, N = graph(kind)
    kernel_size, is_open = kernel(2, 1)
    u = coordinates(edge_index.size(1), 2, torch.float64)
    coef, src, _, *rest = judge("plan", edge_index, u, kernel_size, is_open, 1, N, N, True, False)
    plan = [coef.to(dtype), src, *rest]
    coef, src, _, *rest = judge("transpose", *plan, N, N)
    return plan, [coef.to(dtype), src, *rest], N, kernel_size[0] * kernel_size[1]


def check_conv(run: Any, kind: str, dtype: torch.dtype, M_in: int, M_out: int) -> None:
    plan, _, N, K = made_plan(kind, dtype)
    x = numbers(N, M_in, dtype=dtype)
    weight = (numbers(K, M_in, M_out, dtype=torch.float64, seed=3) / 8).to(dtype)
    root, bias = numbers(M_in, M_out, dtype=dtype, seed=4), numbers(M_out, dtype=dtype, seed=5)
    arguments = (x, weight, root, bias, *plan, N, [])
    assert_near(run("conv", *arguments), judge("conv", *arguments))
    arguments = (x, weight, None, None, *plan, N, [])
    assert_near(run("conv", *arguments), judge("conv", *arguments))
    grad = numbers(N, M_out, dtype=dtype, seed=6)
    assert_near(
        run("conv_weight_grad", grad, x, *plan, K + 1),
        judge("conv_weight_grad", grad, x, *plan, K + 1),
    )
    assert_near(
        run("conv_coef_grad", grad, x, weight, *plan),
        judge("conv_coef_grad", grad, x, weight, *plan),
    )


@pytest.mark.parametrize("kind, dtype", KINDS)
def test_convolution_is_the_reference(backend, kind, dtype):
    check_conv(backend, kind, dtype, M_in=20, M_out=40)


@pytest.mark.parametrize("M_in, M_out", [(1, 32), (3, 65), (70, 1), (33, 130)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_convolution_of_any_width_is_the_reference(kernels, dtype, M_in, M_out):
    check_conv(kernels, "ragged", dtype, M_in, M_out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_without_tensor_cores_are_the_reference(portable_kernels, dtype):
    check_conv(portable_kernels, "random", dtype, M_in=20, M_out=40)


@pytest.mark.parametrize("kind, dtype", KINDS)
def test_gather_is_the_reference(backend, kind, dtype):
    plan, back, N, K = made_plan(kind, dtype)
    y, bias = numbers(N, K, 20, dtype=dtype), numbers(20, dtype=dtype, seed=3)
    grad = numbers(N, 20, dtype=dtype, seed=4)
    for name, *arguments in (
        ("gather", y, bias, *plan, N, []),
        ("gather", y, None, *plan, N, []),
        ("gather_grad", grad, *back, N, K),
        ("gather_coef_grad", grad, y, *plan),
    ):
        assert_near(backend(name, *arguments), judge(name, *arguments))


@pytest.mark.parametrize("C", [1, 70])
def test_gather_of_any_width_is_the_reference(kernels, C):
    plan, back, N, K = made_plan("ragged", torch.float64)
    y, grad = numbers(N, K, C, dtype=torch.float64), numbers(N, C, dtype=torch.float64)
    assert_near(kernels("gather", y, None, *plan, N, []), judge("gather", y, None, *plan, N, []))
    assert_near(kernels("gather_grad", grad, *back, N, K), judge("gather_grad", grad, *back, N, K))


def test_every_order_gives_the_same_bits(kernels, monkeypatch):
    plan, back, N, K = made_plan("random", torch.float32)
    x, grad = numbers(N, 33, dtype=torch.float32), numbers(N, 40, dtype=torch.float32)
    weight, y = numbers(K, 33, 40, dtype=torch.float32), numbers(N, K, 40, dtype=torch.float32)
    results = []
    for order in ("forward", "reverse", "random:5", "random:6"):
        monkeypatch.setenv("EMULATOR_ORDER", order)
        results.append(
            [
                kernels("conv", x, weight, None, None, *plan, N, []),
                kernels("conv_weight_grad", grad, x, *plan, K),
                kernels("conv_coef_grad", grad, x, weight, *plan),
                kernels("gather", y, None, *plan, N, []),
                kernels("gather_grad", grad, *back, N, K),
                *kernels("head", x, weight[0].T.contiguous(), None, 3),
            ]
        )
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_graph_has_the_same_bits_alone_and_in_a_batch(kernels):
    edge_index, N = graph("random")
    other, M = graph("hub")
    batch = torch.cat([other, edge_index + M], 1)
    kernel_size, is_open = kernel(2, 1)
    u, v = (coordinates(e.size(1), 2, torch.float32) for e in (edge_index, other))
    weight, x = numbers(6, 20, 40, dtype=torch.float32), numbers(N, 20, dtype=torch.float32)

    def run(edges: Tensor, pseudo: Tensor, features: Tensor) -> Tensor:
        nodes = features.size(0)
        coef, src, _, *rest = kernels(
            "plan", edges, pseudo, kernel_size, is_open, 1, nodes, nodes, True, False
        )
        return kernels("conv", features, weight, None, None, coef, src, *rest, nodes, [])

    alone = run(edge_index, u, x)
    together = run(batch, torch.cat([v, u]), torch.cat([x[:M], x]))
    assert torch.equal(alone, together[M:])


def test_a_plan_of_other_tensors_gives_nan_and_not_foreign_memory(kernels):
    plan, _, N, K = made_plan("random", torch.float32)
    x, weight = numbers(N, 8, dtype=torch.float32), numbers(K, 8, 8, dtype=torch.float32)
    few_sources = kernels("conv", x[:10], weight, None, None, *plan, N, [])
    few_weights = kernels("conv", x, weight[:2], None, None, *plan, N, [])
    assert few_sources.isnan().any() and few_weights.isnan().any()
    y = numbers(10, K, 8, dtype=torch.float32)
    assert kernels("gather", y, None, *plan, N, []).isnan().any()


def test_a_plan_with_larger_tiles_is_refused(kernels):
    plan, _, N, K = made_plan("random", torch.float32)
    plan[-1] = plan[-1][[0, -1]]  # one tile for all
    x, weight = numbers(N, 8, dtype=torch.float32), numbers(K, 8, 8, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="make the plan on the device that uses it"):
        kernels("conv", x, weight, None, None, *plan, N, [])


def test_other_dtypes_and_shapes_are_refused(kernels):
    plan, _, N, K = made_plan("random", torch.float32)
    x, weight = numbers(N, 8, dtype=torch.float32), numbers(K, 8, 8, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="weight must be float32, got float64"):
        kernels("conv", x, weight.double(), None, None, *plan, N, [])
    with pytest.raises(RuntimeError, match="weight must have size 8 in dimension 1"):
        kernels("conv", x, weight[:, :7], None, None, *plan, N, [])
    with pytest.raises(RuntimeError, match="coef must be float64, got float32"):
        kernels("conv", x.double(), weight.double(), None, None, *plan, N, [])
