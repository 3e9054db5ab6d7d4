"""Landmarks and segments of a reference: what is read, and what is refused with which words."""

import json
from typing import Any

import pytest
import trimesh

from model.attributes import parse_attributes
from model.bundle import hash_file, open_bundle
from model.errors import BundleError
from tests.toys import make_nearest_bundle

GOOD: dict[str, Any] = {
    "landmarks": {"tip": 2},
    "segments": {"names": ["a", "b"], "of_vertex": [0, 1, 1]},
}


def test_landmarks_and_segments_are_read():
    found = parse_attributes(json.dumps(GOOD).encode(), 3)
    assert found.landmarks == {"tip": 2} and found.segment_names == ["a", "b"]
    assert found.segments.tolist() == [0, 1, 1]


def test_either_may_be_left_out():
    assert parse_attributes(b'{"landmarks": {"tip": 0}}', 1).segment_names == []
    assert parse_attributes(json.dumps({"segments": GOOD["segments"]}).encode(), 3).landmarks == {}


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(landmarks=[1]), "landmarks must be an object"),
        (dict(landmarks={"tip": 3}), "landmark 'tip' must be a whole number from 0 to 2, got 3"),
        (dict(landmarks={"tip": True}), "from 0 to 2, got True"),
        (dict(landmarks={"": 1}), "must have a name of 1 to 60 letters"),
        (dict(landmarks={"a\nb": 1}), "must have a name"),
        (dict(segments=[0, 1, 1]), "segments must be an object with names and of_vertex"),
        (dict(segments={"names": [], "of_vertex": [0, 0, 0]}), "a list that is not empty"),
        (dict(segments={"names": ["a", "a"], "of_vertex": [0, 0, 0]}), "must not repeat"),
        (dict(segments={"names": ["a"], "of_vertex": [0, 0]}), "each of the 3 .* got 2"),
        (dict(segments={"names": ["a"], "of_vertex": [0, 0, 1]}), r"of_vertex\[2\] .* got 1"),
        (dict(colour=1), "must be an object with landmarks, segments or both"),
    ],
)
def test_wrong_attributes_are_refused_by_field(change, message):
    with pytest.raises(BundleError, match=message):
        parse_attributes(json.dumps(GOOD | change).encode(), 3)


def test_attributes_that_are_no_json_are_refused():
    with pytest.raises(BundleError, match="is not JSON"):
        parse_attributes(b"{", 3)


def test_wrong_ones_are_refused_when_exported_and_when_opened(tmp_path):
    ball = trimesh.creation.icosphere(1)
    with pytest.raises(BundleError, match="landmark 'top' must be a whole number from 0 to 41"):
        make_nearest_bundle(tmp_path / "b", ball, {"landmarks": {"top": 42}})
    path = make_nearest_bundle(tmp_path / "b", ball, {"landmarks": {"top": 41}})
    (path / "attributes.json").write_text('{"landmarks": {"top": 42}}')
    with pytest.raises(BundleError, match="attributes.json was altered"):
        open_bundle(path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["attributes.json"] = hash_file(path / "attributes.json")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="from 0 to 41, got 42"):
        open_bundle(path)
