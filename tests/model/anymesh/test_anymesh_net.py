"""The networks of `bodies-any`: averaging, smoothing, and finding upright."""

import numpy as np
import pytest
import torch
import trimesh

from model.anymesh.cells import make_cells, make_level, metric, pool, thin
from model.anymesh.net import AnyMeshNet, OrientationNet
from model.anymesh.rotations import compose, half_turn, turn_by


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
    assert sure.item() == pytest.approx(np.exp(-9), rel=0.01)


def test_probabilities_stay_probabilities_when_averaged(tiny_net: AnyMeshNet) -> None:
    several = AnyMeshNet(42, 12, 4, refined=3).eval()
    several.load_state_dict(tiny_net.state_dict())
    with torch.inference_mode():
        (once, sure), (more, same) = tiny_net(*ball()), several(*ball(), 1)
    torch.testing.assert_close(more.sum(1), torch.ones(len(more)))
    assert torch.equal(sure, same) and 0 < sure.item() <= 1
    assert not torch.allclose(once, more)
    assert torch.jit.script(several)(*ball(), 1)[0].shape == more.shape


def test_a_body_seen_from_behind_is_turned_round(tiny_net: AnyMeshNet) -> None:
    """Whichever of the two it starts from, the clearer one is kept."""
    vertices, faces, ptr = ball()
    cells = make_cells(vertices, faces, ptr)
    front = turn_by(torch.tensor([[0.2, 0.1, 0.4]]))
    back = compose(half_turn()[None], front)
    with torch.inference_mode():
        kept = tiny_net.face(cells, front, ptr)
        assert torch.equal(kept, tiny_net.face(cells, back, ptr))
        few, few_ptr = thin(cells, ptr, 1024)
        clear = [tiny_net.clarity(few, r, few_ptr).sum() for r in (front, back)]
    assert torch.equal(kept, front if clear[0] > clear[1] else back)


def test_fewer_vertices_hear_the_same(tiny_net: AnyMeshNet) -> None:
    vertices, faces, ptr = ball()
    two = make_cells(
        torch.cat([vertices, vertices]),
        torch.cat([faces, faces + 642]),
        ptr.new_tensor([0, 642, 1284]),
    )
    turn = torch.eye(3).expand(2, 3, 3)
    few, few_ptr = thin(two, torch.tensor([0, 642, 1284]), 100)
    assert few_ptr.tolist() == [0, 92, 184]
    with torch.inference_mode():
        whole = tiny_net.landmarks(two, turn, torch.tensor([0, 642, 1284]))
        part = tiny_net.landmarks(few, turn, few_ptr)
    torch.testing.assert_close(part[:92], whole[:642:7])
    torch.testing.assert_close(part[92:], whole[642::7])
