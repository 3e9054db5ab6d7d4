"""The CUDA kernels that make a plan: basis, sort, rows, groups, tiles, and its reverse."""

import pytest
import torch
from cuda_cases import DTYPES, GRAPHS, assert_near, coordinates, graph, judge, kernel, numbers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D, degree", [(1, 1), (1, 3), (2, 2), (3, 1), (3, 3), (4, 1), (10, 1)])
def test_basis_is_the_reference(backend, dtype, D, degree):
    u, (kernel_size, is_open) = coordinates(40, D, dtype), kernel(D, degree)
    value, index = backend("basis", u, kernel_size, is_open, degree)
    expected, expected_index = judge("basis", u, kernel_size, is_open, degree)
    assert_near(value, expected)
    assert torch.equal(index, expected_index)
    grad = numbers(*value.shape, dtype=dtype)
    found = backend("basis_grad", grad, u, kernel_size, is_open, degree)
    assert_near(found, judge("basis_grad", grad, u, kernel_size, is_open, degree))


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("mean, keep_zeros", [(True, False), (False, True)])
def test_plan_is_the_reference(backend, kind, mean, keep_zeros):
    edge_index, N = graph(kind)
    u, (kernel_size, is_open) = coordinates(edge_index.size(1), 2, torch.float32), kernel(2, 1)
    arguments = (edge_index, u, kernel_size, is_open, 1, N, N, mean, keep_zeros)
    coef, *indices = backend("plan", *arguments)
    expected_coef, *expected = judge("plan", *arguments)
    assert_near(coef, expected_coef)
    assert all(torch.equal(a, b) for a, b in zip(indices, expected, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_plan_of_every_dtype_has_the_same_entries(backend, dtype):
    edge_index, N = graph("random")
    kernel_size, is_open = kernel(3, 2)
    u = coordinates(edge_index.size(1), 3, dtype)
    # zeros are kept: in half precision some products round to zero that are none in double
    arguments = (edge_index, u, kernel_size, is_open, 2, N, N, True, True)
    coef, *indices = backend("plan", *arguments)
    expected_coef, *expected = judge("plan", *arguments)
    assert coef.dtype == dtype
    assert_near(coef, expected_coef)
    assert all(torch.equal(a, b) for a, b in zip(indices, expected, strict=True))


def test_plan_drops_what_rounds_to_zero(kernels):
    edge_index = torch.tensor([[0, 1], [1, 0]])
    u = torch.tensor([[2.0**-9] * 3, [0.625] * 3], dtype=torch.float16)
    coef, _, pair, *_ = kernels("plan", edge_index, u, [4] * 3, [0] * 3, 3, 2, 2, False, False)
    assert (coef != 0).all() and coef.numel() < 128 and pair[pair >= 64].numel() == 64


def test_plan_between_two_node_sets_and_many_keys(backend):
    """More weights and nodes than one pass of the sort tells apart, sources beyond the targets."""
    random = torch.Generator().manual_seed(3)
    edge_index = torch.stack(
        [torch.randint(0, 500, (700,), generator=random), torch.randint(0, 90, (700,))]
    )
    u = torch.rand(700, 2, generator=random, dtype=torch.float64)
    arguments = (edge_index, u, [60, 70], [1, 0], 1, 90, 500, True, False)
    plan = backend("plan", *arguments)
    expected = judge("plan", *arguments)
    assert_near(plan[0], expected[0])
    assert all(torch.equal(a, b) for a, b in zip(plan[1:], expected[1:], strict=True))
    coef, src, _, *rest = plan
    turned = backend("transpose", coef, src, *rest, 90, 500)
    expected = judge("transpose", coef, src, *rest, 90, 500)
    assert all(torch.equal(a, b) for a, b in zip(turned, expected, strict=True))


@pytest.mark.parametrize("kind", GRAPHS)
def test_transpose_is_the_reference(backend, kind):
    edge_index, N = graph(kind)
    u, (kernel_size, is_open) = coordinates(edge_index.size(1), 2, torch.float64), kernel(2, 2)
    coef, src, _, *rest = judge("plan", edge_index, u, kernel_size, is_open, 2, N, N, True, False)
    found = backend("transpose", coef, src, *rest, N, N)
    expected = judge("transpose", coef, src, *rest, N, N)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("value", [-0.25, 1.25, float("nan"), float("inf")])
def test_first_bad_coordinate_is_named(backend, value):
    edge_index, N = graph("ragged")
    u = coordinates(edge_index.size(1), 2, torch.float32)
    u[60, 0], u[17, 1] = 7, value
    message = rf"pseudo must lie in \[0, 1\], got {value:g} at edge 17, dimension 1"
    with pytest.raises(RuntimeError, match=message):
        backend("plan", edge_index, u, [3, 3], [1, 1], 1, N, N, True, False)
    with pytest.raises(RuntimeError, match=message):
        backend("basis", u, [3, 3], [1, 1], 1)


@pytest.mark.parametrize("row, bound", [(0, 50), (1, 33)])
@pytest.mark.parametrize("value", [-1, 50])
def test_first_bad_index_is_named(backend, row, bound, value):
    edge_index, N = graph("ragged")
    edge_index[row, 80] = -7
    edge_index[row, 12] = value
    u = coordinates(edge_index.size(1), 2, torch.float32)
    message = rf"edge_index must lie in \[0, {bound}\), got {value} at \[{row}, 12\]"
    with pytest.raises(RuntimeError, match=message):
        backend("plan", edge_index, u, [3, 3], [1, 1], 1, N, 50, True, False)
