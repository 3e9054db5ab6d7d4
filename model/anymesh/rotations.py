"""Rotations in space: the 24 of a cube, about an axis, and to a body's own axes."""

import itertools

import torch
from torch import Tensor


def cube_rotations() -> Tensor:
    """All turns of a cube into itself [24, 3, 3]; the first turns nothing."""
    found = []
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            matrix = torch.zeros(3, 3)
            for row, (column, sign) in enumerate(zip(order, signs, strict=True)):
                matrix[row, column] = sign
            if torch.linalg.det(matrix) > 0:
                found.append(matrix)
    return torch.stack(found)


def half_turn() -> Tensor:
    """From front to back, about the upright axis. [3, 3]"""
    return torch.tensor([[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]])


def compose(first: Tensor, second: Tensor) -> Tensor:
    """first @ second of each pair [n, 3, 3]; written out, so that n does not change the bits."""
    return (first[:, :, :, None] * second[:, None, :, :]).sum(2)


def undo(first: Tensor, second: Tensor) -> Tensor:
    """The transpose of first, times second. [n, 3, 3]"""
    return compose(first.transpose(1, 2), second)


def turn_by(vector: Tensor) -> Tensor:
    """The rotations [n, 3, 3] about each vector [n, 3], by its length in radians (Rodrigues)."""
    angle = torch.sqrt((vector * vector).sum(1) + 1e-12)
    axis = vector / angle[:, None]
    x, y, z = axis[:, 0], axis[:, 1], axis[:, 2]
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).view(-1, 3, 3)
    eye = torch.eye(3, dtype=vector.dtype, device=vector.device)
    s, c = torch.sin(angle)[:, None, None], torch.cos(angle)[:, None, None]
    return eye + s * cross + (1 - c) * compose(cross, cross)


def axis_angle(rotation: Tensor) -> Tensor:
    """Axis times angle [n, 3] of rotations by less than a half turn."""
    trace = rotation[:, 0, 0] + rotation[:, 1, 1] + rotation[:, 2, 2]
    angle = torch.acos(((trace - 1) / 2).clamp(-1 + 1e-6, 1 - 1e-6))
    skew = torch.stack(
        [
            rotation[:, 2, 1] - rotation[:, 1, 2],
            rotation[:, 0, 2] - rotation[:, 2, 0],
            rotation[:, 1, 0] - rotation[:, 0, 1],
        ],
        1,
    )
    return skew * (angle / (2 * torch.sin(angle)))[:, None]


def principal_axes(position: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    """Rotations to the longest axis up and the shortest to the side: four readings. [4, B, 3, 3]

    Which end of an axis is which is told by where more of the mesh lies, as far as it can be.
    """
    flips = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]])
    readings: list[Tensor] = []
    for b in range(ptr.numel() - 1):
        rows = position[int(ptr[b]) : int(ptr[b + 1])].double()
        share = weight[int(ptr[b]) : int(ptr[b + 1])].double()
        share = share / share.sum().clamp(min=1e-12)
        rows = rows - (rows * share[:, None]).sum(0)
        axes = torch.linalg.eigh((rows * share[:, None]).t() @ rows)[1].t()  # shortest first
        along = rows @ axes.t()
        skew = (along * along * along * share[:, None]).sum(0)
        axes = axes * torch.where(skew < 0, -1.0, 1.0)[:, None]
        # shortest, middle, longest -> front-back (y), side (x), up (z), right-handed
        frame = torch.stack([axes[1], axes[0], axes[2]])
        if bool(torch.linalg.det(frame) < 0):
            frame = torch.stack([-axes[1], axes[0], axes[2]])
        readings.append(flips.to(frame)[:, :, None] * frame)
    return torch.stack(readings, 1).to(position.dtype)
