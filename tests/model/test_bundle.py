import json
import os
from pathlib import Path

import pytest
import trimesh

import model.bundle
from model.bundle import open_bundle, write_bundle
from model.errors import BundleError
from tests.toys import make_nearest_bundle, make_toy_bundles


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_toy_bundles(tmp_path / "bundles", "toy-nodes", with_onnx=False)["toy-nodes"]


def edit(path: Path, **change: object) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))


def test_an_intact_bundle_opens_with_its_facts(bundle):
    opened = open_bundle(str(bundle))
    facts = opened.manifest
    assert (facts.name, facts.version, facts.task) == ("toy-nodes", "1", "node-labels")
    assert (facts.num_classes, facts.num_features) == (3, 20)
    assert facts.labels == ["red", "green", "blue"] and facts.scores == {"accuracy": 0.4}
    assert [spec.name for spec in facts.inputs][-1] == "ptr"
    assert opened.sample["graph"]["num_nodes"] == 12
    assert opened.file("model.ts").is_file()
    with pytest.raises(BundleError, match="holds no secrets.txt"):
        opened.file("secrets.txt")


@pytest.mark.parametrize("name", ["model.ts", "sample.json"])
def test_a_tampered_file_is_refused_before_anything_is_loaded(bundle, name):
    file = bundle / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(BundleError, match=f"{name} was altered"):
        open_bundle(bundle)


def test_a_missing_or_linked_file_is_refused(bundle, tmp_path):
    (bundle / "model.ts").rename(tmp_path / "model.ts")
    with pytest.raises(BundleError, match="model.ts is missing"):
        open_bundle(bundle)
    (bundle / "model.ts").symlink_to(tmp_path / "model.ts")
    with pytest.raises(BundleError, match="not a plain file"):
        open_bundle(bundle)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(format=2), "bundle format must be 1, got 2"),
        (dict(task="dance"), "task must be one of"),
        (dict(name="../x"), "name must be letters"),
        (dict(files={}), "files must name model.ts"),
        (dict(files={"model.ts": "", "../../etc/passwd": ""}), "a file name must be letters"),
        (dict(inputs=[{"colour": 1}]), "is not a manifest"),
        (dict(colour=1), "check colour"),
        (dict(doubt=2), "doubt must be a number from 0 to 1 or null, got 2"),
        (dict(default="yes"), "default must be true or false, got 'yes'"),
        (dict(files={"model.ts": "", "attributes.json": ""}), "there is none"),
    ],
)
def test_a_bad_manifest_is_refused(bundle, change, message):
    edit(bundle, **change)
    with pytest.raises(BundleError, match=message):
        open_bundle(bundle)


def test_a_directory_that_is_no_bundle_is_refused(tmp_path):
    with pytest.raises(BundleError, match="this is not a bundle"):
        open_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(BundleError, match="cannot be read"):
        open_bundle(tmp_path)


def test_a_full_disk_leaves_nothing_and_keeps_the_old_bundle(bundle, monkeypatch):
    manifest = open_bundle(bundle).manifest
    before = {file.name: file.read_bytes() for file in bundle.iterdir()}
    written = []

    def full(fd: int) -> None:
        written.append(fd)
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(model.bundle.os, "fsync", full)
    with pytest.raises(BundleError, match="could not be written: the disk is full"):
        write_bundle(bundle.parent.parent, manifest, {"model.ts": b"a", "sample.json": b"b"})
    assert [entry.name for entry in bundle.parent.iterdir()] == ["1"]
    assert {file.name: file.read_bytes() for file in bundle.iterdir()} == before


def test_an_interrupted_rename_brings_the_old_bundle_back(bundle, monkeypatch):
    manifest = open_bundle(bundle).manifest
    rename = os.rename

    def fail_to_replace(a: Path, b: Path) -> None:
        if Path(b) == bundle and Path(a).name != "replaced":
            raise OSError(5, "Input/output error")
        rename(a, b)

    monkeypatch.setattr(model.bundle.os, "rename", fail_to_replace)
    with pytest.raises(BundleError, match="Input/output error"):
        write_bundle(bundle.parent.parent, manifest, {"model.ts": b"a"})
    assert open_bundle(bundle).manifest == manifest
    assert [entry.name for entry in bundle.parent.iterdir()] == ["1"]


def test_a_file_name_that_climbs_out_is_never_written(bundle, tmp_path):
    manifest = open_bundle(bundle).manifest
    with pytest.raises(BundleError, match="a file name must be letters"):
        write_bundle(bundle.parent.parent, manifest, {"../../escaped": b"x"})
    assert not list(tmp_path.rglob("escaped"))
    assert [entry.name for entry in bundle.parent.iterdir()] == ["1"]


def test_a_repository_that_cannot_be_made_is_a_bundle_error(bundle, tmp_path):
    manifest = open_bundle(bundle).manifest
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="could not be written"):
        write_bundle(tmp_path / "file", manifest, {})


def test_a_manifest_of_an_older_version_without_the_optional_facts_opens(bundle):
    manifest = json.loads((bundle / "manifest.json").read_text())
    del manifest["doubt"], manifest["default"]
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert (open_bundle(bundle).manifest.doubt, open_bundle(bundle).manifest.default) == (
        None,
        False,
    )


def test_a_network_that_refines_says_so_and_carries_its_attributes(tmp_path):
    ball = trimesh.creation.icosphere(1)
    segments = {"names": ["low", "high"], "of_vertex": [int(z > 0) for z in ball.vertices[:, 2]]}
    attributes = {"landmarks": {"top": 7}, "segments": segments}
    path = make_nearest_bundle(tmp_path / "b", ball, attributes, doubt=0.5, default=True)
    opened = open_bundle(path)
    assert [spec.name for spec in opened.manifest.inputs][-2:] == ["top_k", "refine"]
    assert opened.manifest.refines and opened.manifest.default and opened.manifest.doubt == 0.5
    assert opened.attributes is not None and opened.attributes.landmarks == {"top": 7}
    assert opened.attributes.segments.tolist() == segments["of_vertex"]
