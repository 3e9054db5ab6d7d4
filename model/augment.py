"""Training digits seen slightly turned, stretched and shifted."""

import torch
from torch import Tensor
from torch.nn import functional as F


def random_maps(count: int) -> Tensor:
    """Linear maps of the plane near the identity: up to about 7 degrees and 8 %. [count, 2, 2]"""
    noise = torch.rand(count, 2, 2) * 2 - 1
    angle = noise[:, 0, 0] * 0.12
    scale = 1 + noise[:, 0, 1:] * 0.08  # [count, 1]
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    shear = torch.eye(2).repeat(count, 1, 1)
    shear[:, 0, 1] = noise[:, 1, 0] * 0.1
    shear[:, 1, 1] = 1 + noise[:, 1, 1] * 0.08
    return turn @ shear * scale[:, :, None]


def stretch_positions(positions: Tensor, ptr: Tensor) -> Tensor:
    """Node positions [N, 2], every graph of the batch by its own map."""
    graph = torch.repeat_interleave(ptr[1:] - ptr[:-1])
    maps = random_maps(ptr.numel() - 1)
    return torch.einsum("nij,nj->ni", maps[graph], positions)


def stretch_images(images: Tensor) -> Tensor:
    """Images [B, 1, H, W], each by its own map and shifted by up to two pixels."""
    B, _, H, W = images.shape
    shift = (torch.rand(B, 2, 1) * 2 - 1) * torch.tensor([[4 / W], [4 / H]])
    theta = torch.cat([random_maps(B), shift], 2)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)
