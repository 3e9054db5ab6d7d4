"""The fused head against a plain linear layer."""

import pytest
import torch

from ops import linear_top_k, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "N, F, C, k",
    [(1, 1, 1, 1), (5, 3, 7, 7), (40, 256, 1000, 1), (33, 100, 300, 5), (250, 65, 257, 3)],
)
def test_head_equals_the_reference(N, F, C, k, dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(N, F, dtype=dtype), torch.randn(C, F, dtype=dtype) / F**0.5
    for bias in (None, torch.randn(C, dtype=dtype)):
        value, index, logsumexp = linear_top_k(x, weight, bias, k)
        want = reference.head(x, weight, bias, k)
        torch.testing.assert_close(value, want[0], rtol=1e-5, atol=1e-5)
        assert torch.equal(index, want[1])
        torch.testing.assert_close(logsumexp, want[2], rtol=1e-5, atol=1e-5)


def test_of_equal_logits_the_lower_class_wins():
    x, weight = torch.ones(20, 4), torch.ones(600, 4)
    weight[:10] = 0
    value, index, logsumexp = linear_top_k(x, weight, None, 3)
    assert index.tolist() == [[10, 11, 12]] * 20
    assert value.tolist() == [[4.0] * 3] * 20


def test_large_and_tiny_logits_do_not_overflow():
    x = torch.tensor([[1.0], [-1.0], [0.0]])
    weight = torch.linspace(-3e4, 3e4, 500)[:, None]
    value, index, logsumexp = linear_top_k(x, weight, None, 1)
    assert index.flatten().tolist() == [499, 0, 0]
    torch.testing.assert_close(logsumexp, torch.tensor([3e4, 3e4, torch.tensor(500.0).log()]))


def test_impossible_classes_and_broken_rows_stay_where_they_are():
    x = torch.tensor([[1.0, 1.0], [float("nan"), 1.0]])
    bias = torch.full((300,), -torch.inf)
    bias[7] = 2
    value, index, logsumexp = linear_top_k(x, torch.ones(300, 2), bias, 2)
    assert index[0, 0] == 7 and value[0].tolist() == [4.0, -torch.inf] and logsumexp[0] == 4
    assert logsumexp[1].isnan() and 0 <= int(index.min()) <= int(index.max()) < 300


def test_head_gradients_are_right():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(4, 3), torch.randn(6, 3), torch.randn(6)
    inputs = [t.double().requires_grad_() for t in (x, weight, bias)]

    def run(x, weight, bias):
        value, _, logsumexp = linear_top_k(x, weight, bias, 2)
        return value, logsumexp

    assert torch.autograd.gradcheck(run, inputs)
