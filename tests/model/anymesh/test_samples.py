"""Training samples: packed as the operator packs meshes, whole after a shard."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
import trimesh

from model.anymesh.cells import Cells, make_cells
from model.anymesh.samples import (
    Sample,
    collate,
    damage,
    fuse,
    read_shard,
    reshape,
    shake,
    swell,
    upright,
    write_shard,
)


def ball(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    mesh = trimesh.creation.icosphere(3)
    noise = np.random.default_rng(seed).uniform(0.8, 1.2, (len(mesh.vertices), 1))
    return torch.from_numpy(mesh.vertices * noise).float(), torch.from_numpy(np.array(mesh.faces))


def sample_of(cells: Cells) -> Sample:
    n = len(cells.point)
    return Sample(
        cells.point,
        cells.normal,
        torch.zeros(n, 3).short(),
        torch.full((n, 3), 1 / 3),
        cells.cell,
        cells.cell_ptr,
        cells.parent.short(),
        cells.edge_index.short(),
        cells.edge_ptr,
        cells.heard.short(),
    )


def test_samples_side_by_side_are_the_cells_of_a_batch() -> None:
    meshes = [ball(0), ball(1), ball(2)]
    samples = [sample_of(make_cells(v, f, torch.tensor([0, len(v)]))) for v, f in meshes]
    cells, ptr = collate(samples)
    vertices = torch.cat([v for v, _ in meshes])
    faces = torch.cat([f + 642 * i for i, (_, f) in enumerate(meshes)])
    for mine, wanted in zip(cells, make_cells(vertices, faces, ptr), strict=True):
        assert mine.dtype == wanted.dtype and torch.equal(mine, wanted)


def test_a_shard_gives_back_what_was_put_in(tmp_path: Path) -> None:
    put = [sample_of(make_cells(v, f, torch.tensor([0, len(v)]))) for v, f in (ball(0), ball(1))]
    write_shard(tmp_path / "0.safetensors", put)
    for got, sample in zip(read_shard(tmp_path / "0.safetensors"), put, strict=True):
        for field in fields(Sample):
            assert torch.equal(getattr(got, field.name), getattr(sample, field.name))


def test_a_turned_body_is_turned_back() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(50, 3)) * [1, 2, 3]
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn *= np.linalg.det(turn)
    back = upright((reference @ turn * 2 + 5).astype(np.float32), reference)
    np.testing.assert_allclose(back, (reference - reference.mean(0)) * 2, atol=1e-4)


def test_damage_takes_faces_and_noise_takes_none() -> None:
    v, f = (t.numpy() for t in ball(0))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        assert 0 < len(damage(v, f, rng)) < len(f)
        assert 0 < np.abs(shake(v, rng) - v).max() < 0.05


def test_only_parts_far_apart_on_the_body_grow_together() -> None:
    """Two sheets a little apart: far along the surface for one reference, near for the other."""
    vertices = np.array(
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0.001], [1, 0, 0.001], [0, 1, 0.001]]
    )
    faces, place = np.array([[0, 1, 2], [3, 4, 5]]), np.arange(6)
    sheet = place // 3
    far = np.where(sheet[:, None] == sheet, 0.0, 1.0).astype(np.float16)
    rng = np.random.default_rng(0)
    joined = fuse(vertices.astype(np.float32), faces, place, far, rng)[2:]
    assert len(joined) > 0 and all(sheet[f].min() == 0 and sheet[f].max() == 1 for f in joined)
    assert len(fuse(vertices.astype(np.float32), faces, place, 0 * far, rng)) == 2


def test_reshaped_and_swollen_bodies_stay_near_themselves() -> None:
    vertices, faces = (t.numpy() for t in ball(0))
    rng = np.random.default_rng(1)
    for other in (reshape(vertices, rng), swell(vertices, faces, rng)):
        moved = np.linalg.norm(other - vertices, axis=1)
        assert other.dtype == np.float32 and 0 < moved.max() < 0.5
