"""Rotations: the cube's, about an axis and back, and a body's own axes."""

import torch

from model.anymesh.rotations import (
    axis_angle,
    compose,
    cube_rotations,
    principal_axes,
    turn_by,
    undo,
)


def test_a_cube_has_24_different_turns_and_the_first_is_none() -> None:
    turns = cube_rotations()
    assert len({tuple(t.flatten().tolist()) for t in turns}) == 24
    assert torch.equal(turns[0], torch.eye(3))
    torch.testing.assert_close(torch.linalg.det(turns), torch.ones(24))


def test_a_quarter_turn_about_z_takes_x_to_y() -> None:
    turn = turn_by(torch.tensor([[0.0, 0.0, torch.pi / 2]]))[0]
    torch.testing.assert_close(turn @ torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 1, 0]))


def test_axis_and_angle_are_found_again() -> None:
    vector = torch.randn(20, 3, generator=torch.manual_seed(0)) * 0.6
    torch.testing.assert_close(axis_angle(turn_by(vector)), vector, rtol=1e-3, atol=1e-4)


def test_undoing_a_turn_leaves_nothing() -> None:
    turn = turn_by(torch.randn(5, 3, generator=torch.manual_seed(1)))
    torch.testing.assert_close(undo(turn, turn), torch.eye(3).expand(5, 3, 3))
    torch.testing.assert_close(compose(turn, turn), turn @ turn)


def test_own_axes_turn_with_the_body() -> None:
    generator = torch.manual_seed(2)
    position = torch.rand(40, 3, generator=generator) ** 2 * torch.tensor([1.0, 0.5, 3.0])
    weight, ptr = torch.ones(40), torch.tensor([0, 40])
    turn = turn_by(torch.tensor([[0.4, 1.0, -2.0]]))[0]
    before = principal_axes(position, weight, ptr)[:, 0]
    after = principal_axes(position @ turn.T, weight, ptr)[:, 0]
    torch.testing.assert_close(before @ position.T, after @ turn @ position.T, rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.linalg.det(before), torch.ones(4))
    assert (before[0] @ (position - position.mean(0)).T).std(1).argmax() == 2
