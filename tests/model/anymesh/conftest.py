"""An untrained `bodies-any` with a tiny reference."""

import pytest
import torch

from model.anymesh.net import AnyMeshNet

REFERENCE, LANDMARKS, SEEN_BY = 42, 12, 4


@pytest.fixture(scope="session")
def tiny_net() -> AnyMeshNet:
    """Random weights; landmarks and reference vertices around a circle."""
    torch.manual_seed(0)
    net = AnyMeshNet(REFERENCE, LANDMARKS, SEEN_BY)
    place, at = torch.arange(REFERENCE) / REFERENCE, torch.arange(LANDMARKS) / LANDMARKS
    gap = (place[:, None] - at).abs()
    near, landmark = torch.minimum(gap, 1 - gap).topk(SEEN_BY, dim=1, largest=False)
    net.landmark.copy_(landmark)
    net.near.copy_(near * 0.4)
    return net.eval()
