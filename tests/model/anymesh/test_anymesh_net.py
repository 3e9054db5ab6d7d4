"""The networks of `bodies-any`: averaging, smoothing, and finding upright."""

import pytest
import torch
import trimesh

from model.anymesh.cells import make_cells, make_level, metric, pool
from model.anymesh.net import AnyMeshNet, OrientationNet
from model.anymesh.rotations import turn_by


def ball() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mesh = trimesh.creation.icosphere(3)
    vertices = torch.tensor(mesh.vertices).float() * torch.tensor([1.0, 1.3, 2.0])
    vertices[:, 0] += 0.2 * vertices[:, 2] ** 2
    return vertices, torch.tensor(mesh.faces), torch.tensor([0, len(vertices)])


def test_offsets_fill_the_kernel_and_what_lies_beyond_is_its_rim() -> None:
    offset = torch.tensor([[0.0, 0.1, -0.1], [0.05, 9.0, -9.0]])
    wanted = torch.tensor([[0.5, 1.0, 0.0], [0.75, 1.0, 0.0]])
    torch.testing.assert_close(metric(offset, 0.1), wanted)


def test_pooling_takes_the_largest_and_leaves_empty_cells_at_nothing() -> None:
    x = torch.tensor([[-1.0, 5.0], [-2.0, 7.0], [3.0, 0.0]])
    wanted = torch.tensor([[-1.0, 7.0], [0.0, 0.0], [3.0, 0.0]])
    assert torch.equal(pool(x, torch.tensor([0, 0, 2]), 3), wanted)


def test_levels_turn_with_the_mesh() -> None:
    vertices, faces, ptr = ball()
    turn = turn_by(torch.tensor([[0.3, 0.2, -1.0]]))
    turned = make_level(make_cells(vertices @ turn[0].T, faces, ptr), 1, torch.eye(3)[None])
    level = make_level(make_cells(vertices, faces, ptr), 1, turn)
    torch.testing.assert_close(level.feature, turned.feature, rtol=0, atol=1e-4)


def test_a_correction_undoes_the_turn_that_the_network_sees() -> None:
    """A network that always says "turned so" must turn everything back by just that."""
    net = OrientationNet().eval()
    cells = make_cells(*ball())
    seen, beyond = 7, torch.tensor([0.1, -0.2, 0.3])
    with torch.no_grad():
        net.head.weight.zero_()
        bias = net.head.bias.view(24, 4)
        bias.zero_()
        bias[seen, 0] = 9
        bias[seen, 1:] = beyond
        rotation, sure = net.correct(cells, torch.eye(3)[None])
    wanted = (net.cube[seen] @ turn_by(beyond[None])[0]).T
    torch.testing.assert_close(rotation[0], wanted, rtol=0, atol=1e-5)
    assert sure.item() == pytest.approx(-9, abs=0.1)


def test_probabilities_stay_probabilities_when_averaged(tiny_net: AnyMeshNet) -> None:
    several = AnyMeshNet(42, 12, 4, refined=3).eval()
    several.load_state_dict(tiny_net.state_dict())
    with torch.inference_mode():
        (once, sure), (more, same) = tiny_net(*ball()), several(*ball(), 1)
    torch.testing.assert_close(more.sum(1), torch.ones(len(more)))
    assert torch.equal(sure, same) and 0 < sure.item() <= 1
    assert not torch.allclose(once, more)
    assert torch.jit.script(several)(*ball(), 1)[0].shape == more.shape
