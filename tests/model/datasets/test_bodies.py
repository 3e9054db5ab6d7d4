import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from model.datasets import bodies
from model.datasets.bodies import Census, load_bodies, make_bodies
from model.datasets.files import MissingData

BONES = [f"{limb}.{side}" for limb in bodies._LIMBS for side in "LR"]
BONES += [f"finger{f}-{j}.{side}" for f in range(2, 6) for j in range(1, 4) for side in "LR"]
BONES += [*bodies._TRUNK, "root"]


class MadeBody:
    """Stands in for anny: all vertices of a body are its height, to tell bodies apart."""

    bone_labels = BONES
    local_change_labels = ["nose-up", "l-ear-up", "r-ear-up"]

    def __call__(self, **given: Any) -> dict[str, torch.Tensor]:
        pose = given["pose_parameters"]
        turn = pose[:, :, :3, :3]
        eye = torch.eye(3, dtype=turn.dtype).expand_as(turn)
        assert torch.allclose(turn @ turn.transpose(-1, -2), eye, atol=1e-9)
        height = given["phenotype_kwargs"]["height"]
        changes = given["local_changes_kwargs"]
        assert (changes["l-ear-up"] - changes["r-ear-up"]).abs().max() < 0.2
        return {"vertices": height[:, None, None].expand(-1, 20000, 3)}


def test_no_person_is_in_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "anny", SimpleNamespace(Anny=lambda local_changes: MadeBody()))
    monkeypatch.setattr(bodies, "BATCH", 20)
    told: list[tuple[int, int]] = []
    census = Census(train=25, validation=2, test=3)
    make_bodies(tmp_path, census, lambda done, total: told.append((done, total)))
    assert told == [(20, 30), (25, 30), (27, 30), (30, 30)]
    meshes = load_bodies(tmp_path)
    assert meshes.train.shape == (25, 6890, 3) and meshes.train.dtype == np.float32
    assert meshes.faces.shape == (13776, 3) and meshes.reference.shape == (6890, 3)
    heights = [float(shape[0, 0]) for shape in (*meshes.train, *meshes.validation, *meshes.test)]
    assert len(set(heights)) == 30


def test_training_poses_reach_beyond_those_of_the_test():
    rng = np.random.default_rng(0)
    ranges = ((-70.0, 0.0), (-8.0, 8.0), (0.0, 0.0))
    low, high = np.array(ranges).T
    usual = bodies._draw(ranges, 4000, rng, 1.0)
    wide = bodies._draw(ranges, 4000, rng, 1.2)
    assert (usual >= low).all() and (usual <= high).all()
    assert wide[:, 0].min() < -70 and wide[:, 0].max() > 0 and np.abs(wide[:, 0] + 35).max() <= 42
    assert not wide[:, 2].any()


def test_more_training_bodies_leave_the_test_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "anny", SimpleNamespace(Anny=lambda local_changes: MadeBody()))
    make_bodies(tmp_path / "few", Census(train=2, validation=2, test=3, reach=1.0))
    make_bodies(tmp_path / "many", Census(train=30, validation=2, test=3))
    few, many = load_bodies(tmp_path / "few"), load_bodies(tmp_path / "many")
    assert (few.test == many.test).all() and (few.validation == many.validation).all()


def test_without_anny_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "anny", None)
    with pytest.raises(MissingData, match="pip install anny"):
        make_bodies(tmp_path)


def test_bodies_not_made_yet_say_how_to_make_them(tmp_path: Path):
    with pytest.raises(MissingData, match="splinecnn data bodies"):
        load_bodies(tmp_path)
