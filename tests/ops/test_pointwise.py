import pytest
import torch
from torch.library import opcheck

import ops
from ops import reference

NAMES = ["elu", "exp", "softmax"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_an_activation_is_what_torch_computes(name, dtype):
    x = torch.cat([torch.randn(50, 7) * 20, torch.randn(50, 7) * 1e-3]).to(dtype)
    found, expected = getattr(ops, name)(x), getattr(reference, name)(x)
    assert torch.allclose(
        found, expected, rtol=3e-7 if dtype == torch.float32 else 1e-15, atol=1e-37
    )


@pytest.mark.skipif(not ops.NATIVE, reason="torch's own functions do not promise it")
@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_the_same_bits_wherever_it_lies(name):
    function = getattr(ops, name)
    x = torch.randn(3001, 7)
    whole = function(x)
    for start, end in ((0, 1), (5, 6), (5, 8), (100, 3001), (2999, 3001)):
        assert torch.equal(function(x[start:end]), whole[start:end])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_right(name):
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(ops, name), x)


@pytest.mark.parametrize("name", NAMES)
def test_torch_knows_shapes_and_gradients(name):
    x = torch.randn(4, 5, requires_grad=True)
    opcheck(getattr(torch.ops.splinecnn, name).default, (x,))


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_strided_tensors_are_welcome(name):
    function = getattr(ops, name)
    assert function(torch.zeros(0, 3)).shape == (0, 3)
    x = torch.randn(5, 3)
    assert torch.equal(function(x.T), function(x.T.contiguous()))


def test_what_is_not_a_number_stays_so_and_huge_scores_do_not_overflow():
    assert torch.isnan(ops.elu(torch.tensor([float("nan")]))).all()
    assert torch.isnan(ops.exp(torch.tensor([float("nan")]))).all()
    assert ops.softmax(torch.tensor([[1e30, -1e30]])).tolist() == [[1, pytest.approx(0)]]
