"""The CUDA kernels at the two ends of a network: sparse features and the fused head."""

import pytest
import torch
from cuda_cases import DTYPES, TOLERANCE, assert_near, judge, numbers
from torch import Tensor


def rows(N: int, columns: int, index_type: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows of very different length, some of them empty."""
    random = torch.Generator().manual_seed(0)
    length = torch.randint(0, 9, (N,), generator=random)
    length[N // 2] = 300
    ptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    index = torch.randint(0, columns, (int(ptr[-1]),), generator=random)
    return ptr.to(index_type), index.to(index_type)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_sparse_products_are_the_reference(backend, dtype, index_type):
    ptr, index = rows(30, 1200, index_type)
    dense, grad = numbers(1200, 7, dtype=dtype), numbers(30, 7, dtype=dtype)
    for value in (None, numbers(index.numel(), dtype=dtype, seed=3)):
        assert_near(
            backend("spmm", ptr, index, value, dense), judge("spmm", ptr, index, value, dense)
        )
        arguments = (ptr, index, value, grad, 1200)
        assert_near(backend("spmm_t", *arguments), judge("spmm_t", *arguments))


def test_empty_sparse_products_are_zero(kernels):
    ptr, index = torch.zeros(4, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    assert torch.equal(kernels("spmm", ptr, index, None, torch.ones(5, 2)), torch.zeros(3, 2))
    assert torch.equal(kernels("spmm_t", ptr, index, None, torch.ones(3, 2), 5), torch.zeros(5, 2))
    assert kernels("spmm", ptr[:1], index, None, torch.ones(5, 2)).shape == (0, 2)


def test_bad_sparse_rows_are_named(backend):
    ptr, index = rows(30, 50, torch.int64)
    dense = torch.ones(50, 2)
    wrong = index.clone()
    wrong[11] = 50
    with pytest.raises(RuntimeError, match=r"index must lie in \[0, 50\), got 50 at 11"):
        backend("spmm", ptr, wrong, None, dense)
    with pytest.raises(RuntimeError, match=f"ptr must run from 0 to {index.numel() - 1}"):
        backend("spmm", ptr, index[:-1], None, dense)
    wrong = ptr.clone()
    wrong[3] = wrong[4] + 1
    with pytest.raises(RuntimeError, match="ptr must not decrease, .* at 4"):
        backend("spmm", wrong, index, None, dense)


def check_head(run, dtype: torch.dtype, N: int, F: int, C: int, k: int) -> None:
    # small whole numbers: products are exact in every dtype, and many of them are equal
    random = torch.Generator().manual_seed(0)
    x = torch.randint(-2, 3, (N, F), generator=random).to(dtype)
    weight = torch.randint(-1, 2, (C, F), generator=random).to(dtype)
    bias = torch.randint(-2, 3, (C,), generator=random).to(dtype)
    value, index, logsumexp = run("head", x, weight, bias, k)
    expected, expected_index, expected_sum = judge("head", x, weight, bias, k)
    assert torch.equal(value.double(), expected)
    assert torch.equal(index, expected_index)  # of equal outputs the lower class comes first
    scale = TOLERANCE[dtype] * max(1.0, expected_sum.abs().max().item())
    assert (logsumexp.double() - expected_sum).abs().max() <= scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 5])
def test_head_is_the_reference(backend, dtype, k):
    check_head(backend, dtype, 20, 12, 150, k)


def test_head_joins_many_splits_and_tiles(kernels):
    check_head(kernels, torch.float32, 70, 40, 2200, 3)


@pytest.mark.parametrize("C", [70, 1100])
def test_head_can_return_every_class(kernels, C):
    check_head(kernels, torch.float64, 3, 5, C, C)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_head_without_tensor_cores_is_the_reference(portable_kernels, dtype):
    check_head(portable_kernels, dtype, 20, 12, 150, 3)


def test_head_of_real_numbers_is_the_reference(kernels):
    x, weight = numbers(40, 33, dtype=torch.float64), numbers(90, 33, dtype=torch.float64, seed=3)
    for found, expected in zip(
        kernels("head", x, weight, None, 4), judge("head", x, weight, None, 4), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_head_keeps_torchs_order_of_infinities_and_nan(kernels):
    x = torch.tensor([[1.0], [float("nan")]])
    weight = torch.tensor([[1.0], [-float("inf")], [2.0], [float("inf")]])
    value, index, logsumexp = kernels("head", x, weight, None, 4)
    expected, expected_index, expected_sum = judge("head", x, weight, None, 4)
    assert torch.equal(index, expected_index)
    torch.testing.assert_close(value.double(), expected, equal_nan=True)
    torch.testing.assert_close(logsumexp.double(), expected_sum, equal_nan=True)


def test_head_of_no_rows_is_empty(kernels):
    value, index, logsumexp = kernels("head", torch.ones(0, 4), torch.ones(5, 4), None, 2)
    assert value.shape == index.shape == (0, 2) and logsumexp.shape == (0,)


def test_head_refuses_more_than_all_classes(kernels):
    with pytest.raises(RuntimeError, match=r"k must lie in \[1, 5\], got 6"):
        kernels("head", torch.ones(2, 4), torch.ones(5, 4), None, 6)
