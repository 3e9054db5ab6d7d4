import pytest
import torch

from model.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(40, 6), (6, 6), (3, 12)])
def test_orthogonal_matrices_come_from_the_singular_vectors(shape: tuple[int, int]):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    torch.testing.assert_close(orthogonal(matrix), u @ v)


def test_directions_without_a_gradient_stay_without_a_step():
    matrix = torch.zeros(8, 4)
    matrix[:, 0] = 1.0
    step = orthogonal(matrix)
    torch.testing.assert_close(step[:, 0], torch.full((8,), 8**-0.5))
    assert not step[:, 1:].any()
    assert not orthogonal(torch.zeros(8, 4)).any()


def test_a_first_step_is_orthogonal_and_scaled_by_the_shape():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(5, 8, 4))  # one matrix [40, 4]
    weight.grad = torch.randn_like(weight)
    Muon([weight], lr=0.1).step()
    gram = weight.detach().reshape(40, 4).t() @ weight.detach().reshape(40, 4)
    torch.testing.assert_close(gram, 0.01 * 10 * torch.eye(4), atol=1e-5, rtol=1e-4)


def test_it_finds_the_least_squares_answer():
    torch.manual_seed(0)
    a, wanted = torch.randn(64, 6), torch.randn(6, 4)
    weight = torch.nn.Parameter(torch.zeros(6, 4))
    optimiser = Muon([weight], lr=0.1)
    for step in range(200):
        optimiser.param_groups[0]["lr"] = 0.1 * (1 - step / 200)
        loss = (a @ weight - a @ wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.testing.assert_close(weight.detach(), wanted, atol=0.02, rtol=0)
