"""Training of `bodies-any` learns, stops and goes on."""

import numpy as np
import pytest
import torch
import trimesh
from safetensors.torch import load_file

from model.anymesh import train as training
from model.anymesh.__main__ import parse
from model.anymesh.cells import make_cells
from model.anymesh.net import LandmarkNet, OrientationNet
from model.anymesh.reference import Tables
from model.anymesh.rotations import turn_by
from model.anymesh.samples import Sample, collate, write_shard
from model.anymesh.train import (
    RECIPES,
    Recipe,
    draw_rotations,
    landmark_loss,
    load_net,
    orientation_loss,
    train,
)
from model.datasets.files import MissingData


def make_sample(seed: int) -> Sample:
    """A lumpy ball whose vertices correspond to reference vertices by their number."""
    mesh = trimesh.creation.icosphere(3)
    noise = np.random.default_rng(seed).uniform(0.9, 1.1, (len(mesh.vertices), 1))
    vertices = torch.from_numpy(mesh.vertices * noise * [1, 1.2, 2]).float()
    n = len(vertices)
    cells = make_cells(vertices, torch.from_numpy(np.array(mesh.faces)), torch.tensor([0, n]))
    return Sample(
        cells.point,
        cells.normal,
        torch.arange(n)[:, None].expand(-1, 3).short(),
        torch.tensor([[1.0, 0.0, 0.0]]).expand(n, -1),
        cells.cell,
        cells.cell_ptr,
        cells.parent.short(),
        cells.edge_index.short(),
        cells.edge_ptr,
        cells.heard.short(),
    )


@pytest.fixture
def tables() -> Tables:
    landmark = (torch.arange(6890)[:, None] // 14 + torch.arange(20)) % 512
    return Tables(landmark, torch.arange(20).expand(6890, -1) * 0.01)


@pytest.mark.parametrize("part", RECIPES)
def test_training_stops_and_goes_on_from_its_checkpoint(
    part, tmp_path, tables, monkeypatch
) -> None:
    (tmp_path / "samples").mkdir()
    write_shard(tmp_path / "samples" / "0.safetensors", [make_sample(0), make_sample(1)])
    monkeypatch.setattr(training, "load_tables", lambda data: tables)
    recipe = Recipe(steps=2, batch=2, warm_up=1)
    path = tmp_path / "out" / f"{part}.safetensors"
    train(tmp_path, path.parent, part, recipe, stop_at=1)
    first = load_file(path)
    train(tmp_path, path.parent, part, recipe)
    second = load_file(path)
    assert (int(first["step"]), int(second["step"])) == (1, 2)
    assert first.keys() == second.keys()
    weight = "net.head.weight"
    assert not torch.equal(first[weight], second[weight])


def test_both_checkpoints_make_the_network(tmp_path, tables, monkeypatch) -> None:
    (tmp_path / "samples").mkdir()
    write_shard(tmp_path / "samples" / "0.safetensors", [make_sample(0)])
    monkeypatch.setattr(training, "load_tables", lambda data: tables)
    for part in RECIPES:
        train(tmp_path, tmp_path, part, Recipe(steps=1, batch=1))
    net = load_net(tmp_path, tmp_path)
    assert torch.equal(net.landmark.long(), tables.landmark)
    assert torch.equal(
        net.landmarks.head.bias, load_file(tmp_path / "landmarks.safetensors")["net.head.bias"]
    )


def test_without_samples_training_says_how_to_make_them(tmp_path, tables, monkeypatch) -> None:
    monkeypatch.setattr(training, "load_tables", lambda data: tables)
    with pytest.raises(MissingData, match="holds no samples: python -m model.anymesh data"):
        train(tmp_path, tmp_path / "out", "landmarks", Recipe(steps=1, batch=1))


def test_one_network_can_be_trained_for_a_while() -> None:
    given = parse(["train", "data", "out", "--part", "landmarks", "--stop-at", "7"])
    assert (given.part, given.stop_at, given.steps) == ("landmarks", 7, None)


def test_losses_are_those_of_chance_at_first_and_reach_every_weight(tables) -> None:
    torch.manual_seed(0)
    samples = [make_sample(0)]
    cells, ptr = collate(samples)
    landmarks, orientation = LandmarkNet(), OrientationNet()
    loss = landmark_loss(landmarks, cells, ptr, samples, tables, 0.1)
    of_class, of_turn = orientation_loss(orientation, cells)
    assert loss.item() == pytest.approx(np.log(512), rel=0.1)
    assert of_class.item() == pytest.approx(np.log(24), rel=0.3)
    (loss + of_class + of_turn).backward()
    for net in (landmarks, orientation):
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_drawn_rotations_are_rotations() -> None:
    torch.manual_seed(0)
    cells, _ = collate([make_sample(0)] * 8)
    turns = draw_rotations(cells)
    torch.testing.assert_close(turns @ turns.transpose(1, 2), torch.eye(3).expand(8, 3, 3))
    torch.testing.assert_close(torch.linalg.det(turns), torch.ones(8))
    assert turn_by(torch.zeros(1, 3)).equal(torch.eye(3)[None])
