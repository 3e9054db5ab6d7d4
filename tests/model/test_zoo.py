import json

import numpy as np
import pytest
import torch
import trimesh

from model.errors import BundleError
from model.zoo import ZooEntry, read_reference, read_zoo, write_zoo
from tests.toys import TOYS, make_toy_zoo


@pytest.mark.parametrize("name", TOYS)
def test_what_is_written_is_what_is_read(name, tmp_path):
    zoo = make_toy_zoo(tmp_path, name)
    entry, net = read_zoo(zoo / name)
    assert entry == TOYS[name] and not net.training
    assert json.loads((zoo / name / "model.json").read_text())["task"] == entry.task


def test_half_precision_is_read_back_as_float32(tmp_path):
    entry = TOYS["toy-nodes"]
    net = entry.build()
    write_zoo(tmp_path, entry, net.state_dict(), half=True)
    _, read = read_zoo(tmp_path)
    for name, value in net.state_dict().items():
        assert torch.equal(read.state_dict()[name], value.half().float())


def test_weights_of_another_network_are_refused(tmp_path):
    make_toy_zoo(tmp_path, "toy-nodes", "toy-grid")
    weights = tmp_path / "toy-nodes" / "weights.safetensors"
    weights.write_bytes((tmp_path / "toy-grid" / "weights.safetensors").read_bytes())
    with pytest.raises(BundleError, match="belongs to another network"):
        read_zoo(tmp_path / "toy-nodes")


def test_weights_of_another_shape_or_not_finite_are_refused(tmp_path):
    entry = TOYS["toy-nodes"]
    weights = entry.build().state_dict()
    write_zoo(tmp_path, entry, weights | {"second.bias": torch.zeros(4)})
    with pytest.raises(BundleError, match=r"second.bias is \[4\], not \[3\]"):
        read_zoo(tmp_path)
    write_zoo(tmp_path, entry, weights | {"second.bias": torch.tensor([0, 1e30, 0])})
    with pytest.raises(BundleError, match="not finite, in second.bias"):
        read_zoo(tmp_path)


def test_broken_or_missing_files_are_refused(tmp_path):
    with pytest.raises(BundleError, match="model.json is missing"):
        read_zoo(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(BundleError, match="is not JSON"):
        read_zoo(tmp_path)
    (tmp_path / "model.json").write_text("[]")
    with pytest.raises(BundleError, match="must be an object with name, net"):
        read_zoo(tmp_path)
    make_toy_zoo(tmp_path, "toy-nodes")
    (tmp_path / "toy-nodes" / "weights.safetensors").write_bytes(b"pickle")
    with pytest.raises(BundleError, match="cannot be read"):
        read_zoo(tmp_path / "toy-nodes")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(name="../up"), "name must be letters"),
        (dict(name=""), "name must be letters"),
        (dict(version="a/b"), "version must be letters"),
        (dict(net="transformer"), "net must be one of"),
        (dict(parameters=[]), "parameters must be an object"),
        (dict(parameters={"colour": 3}), "do not fit a node network"),
        (
            dict(pseudo="polar"),
            "parameters do not fit a node network: polar pseudo-coordinates have 2",
        ),
        (dict(image="photo"), "image must be superpixels, grid or null"),
        (dict(net="correspondence"), "needs a reference mesh"),
        (dict(attributes="a.json"), "attributes are of a reference mesh, and there is none"),
        (
            dict(net="grid", task="graph-label", pseudo="polar"),
            "pseudo of a grid network cannot be 'polar'",
        ),
        (dict(reference="/etc/passwd"), "reference must be letters"),
        (dict(task="graph-label"), "is for node-labels, not graph-label"),
        (dict(colour=3), "unknown fields: colour"),
    ],
)
def test_a_bad_model_json_is_refused(change, message, tmp_path):
    directory = make_toy_zoo(tmp_path, "toy-nodes") / "toy-nodes"
    path = directory / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BundleError, match=message):
        read_zoo(directory)


def test_a_reference_keeps_the_order_of_its_vertices(tmp_path):
    mesh = trimesh.creation.icosphere(1)
    mesh.export(tmp_path / "a.ply")
    np.savez(tmp_path / "b.npz", vertices=mesh.vertices, faces=mesh.faces)
    for name in ("a.ply", "b.npz"):
        vertices, faces = read_reference(tmp_path / name)
        assert np.allclose(vertices, mesh.vertices, atol=1e-6)
        assert np.array_equal(faces, mesh.faces)
    with pytest.raises(BundleError, match="is not a reference mesh"):
        read_reference(tmp_path / "missing.ply")


def test_an_entry_says_which_task_it_is_for():
    assert ZooEntry("a", "grid", {}, "cartesian").task == "graph-label"
