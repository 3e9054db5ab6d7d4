"""The served form of `bodies-any`: alone and in a batch, eager and scripted, turned and moved."""

import io

import numpy as np
import pytest
import torch
import trimesh
from torch import Tensor

from model.anymesh.net import AnyMeshNet
from model.anymesh.rotations import turn_by
from model.anymesh.serve import ServedAnyMesh


@pytest.fixture(scope="module")
def served(tiny_net: AnyMeshNet) -> ServedAnyMesh:
    return ServedAnyMesh(tiny_net).eval()


def body(seed: int) -> tuple[Tensor, Tensor]:
    """Three balls of different size in a bent row: no symmetry, a clear longest axis."""
    balls = [trimesh.creation.icosphere(2, radius) for radius in (0.5, 0.8, 0.4)]
    for ball, offset in zip(balls, ([0, 0, 0], [0.2, 0, 1.2], [0.3, 0.5, 2.4]), strict=True):
        ball.vertices += offset
    mesh = trimesh.util.concatenate(balls)
    noise = np.random.default_rng(seed).normal(0, 0.02, mesh.vertices.shape)
    return torch.from_numpy(mesh.vertices + noise).float(), torch.from_numpy(np.array(mesh.faces))


def ask(module: torch.nn.Module, *meshes: tuple[Tensor, Tensor], top_k: int = 2):
    sizes = [0, *(len(vertices) for vertices, _ in meshes)]
    ptr = torch.tensor(sizes).cumsum(0)
    faces = [f + start for (_, f), start in zip(meshes, ptr.tolist(), strict=False)]
    with torch.inference_mode():
        return module(torch.cat([v for v, _ in meshes]), torch.cat(faces), ptr, top_k)


def test_answers_name_reference_vertices_and_are_sure_between_0_and_1(served) -> None:
    index, confidence = ask(served, body(0), top_k=3)
    assert index.shape == confidence.shape == (len(body(0)[0]), 3)
    assert index.min() >= 0 and index.max() < 42
    assert (confidence[:, :-1] >= confidence[:, 1:]).all()
    assert confidence.min() >= 0 and confidence.max() <= 1


def test_a_mesh_gets_the_same_bits_alone_and_in_a_batch(served) -> None:
    alone = ask(served, body(1))
    together = ask(served, body(0), body(1))
    for a, b in zip(alone, together, strict=True):
        assert torch.equal(a, b[-len(a) :])


def test_the_scripted_module_gives_the_same_bits(served) -> None:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.freeze(torch.jit.script(served)), buffer)
    buffer.seek(0)
    for a, b in zip(ask(served, body(2)), ask(torch.jit.load(buffer), body(2)), strict=True):
        torch.testing.assert_close(a, b)


def test_turning_moving_and_scaling_change_the_confidence_by_rounding_only(served) -> None:
    vertices, faces = body(3)
    turn = turn_by(torch.tensor([[1.0, -2.0, 0.5]]))[0]
    _, plain = ask(served, (vertices, faces))
    _, moved = ask(served, (vertices @ turn.T * 100 + 7, faces))
    torch.testing.assert_close(plain, moved, rtol=0, atol=2e-3)


def test_more_answers_than_candidates_are_filled_up_without_confidence(served) -> None:
    index, confidence = ask(served, body(0), top_k=42)
    assert index.shape == (len(body(0)[0]), 42)
    assert (confidence[:, served.fewest :] == 0).all()


@pytest.mark.parametrize("faces", [[[0, 1, 2]], [[0, 0, 1]]])
def test_a_single_face_is_answered(served, faces) -> None:
    index, confidence = ask(served, (torch.eye(3), torch.tensor(faces)))
    assert index.shape == (3, 2) and torch.isfinite(confidence).all()
