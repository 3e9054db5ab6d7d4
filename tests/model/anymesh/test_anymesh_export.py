"""`bodies-any` goes the way of every network: zoo, bundle, served."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from model.anymesh.net import AnyMeshNet
from model.bundle import open_bundle
from model.errors import UnsupportedTask
from model.evaluate import evaluate
from model.export import arguments, export_bundle, run
from model.request import request_graph
from model.serving import serve
from model.zoo import ZooEntry, read_entry, read_zoo, write_zoo


@pytest.fixture
def zoo(tiny_net: AnyMeshNet, tmp_path: Path) -> Path:
    entry = ZooEntry(
        name="tiny-any",
        net="any-mesh",
        parameters={"reference": 42, "landmarks": 12, "seen_by": 4},
        pseudo="cartesian",
        reference="reference.ply",
    )
    zoo = tmp_path / "zoo" / "tiny-any"
    write_zoo(zoo, entry, tiny_net.state_dict())
    trimesh.creation.icosphere(1).export(zoo / "reference.ply")
    return zoo


def test_zoo_entry_becomes_a_bundle_that_answers_its_sample(zoo: Path, tmp_path: Path) -> None:
    entry = read_entry(zoo)
    bundle = open_bundle(export_bundle(zoo, tmp_path / "bundles"))
    assert bundle.manifest.num_classes == bundle.manifest.reference == 42
    assert "model.onnx" not in bundle.manifest.files

    inputs = arguments([request_graph(entry.task, bundle.sample, None)], top_k=2)
    scripted = torch.jit.load(bundle.file("model.ts"))
    _, net = read_zoo(zoo)
    for a, b in zip(run(serve(net), inputs), run(scripted, inputs), strict=True):
        assert np.array_equal(a, b)


def test_half_precision_keeps_the_landmarks(tiny_net: AnyMeshNet) -> None:
    assert torch.equal(tiny_net.landmark.half().long(), tiny_net.landmark.long())


def test_measuring_it_says_which_command_does_before_it_is_exported(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("model.evaluate.export_bundle")
    with pytest.raises(UnsupportedTask, match="python -m model.anymesh evaluate DATA"):
        evaluate(zoo, tmp_path, tmp_path / "out")
