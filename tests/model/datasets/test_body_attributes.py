"""The shipped landmarks and segments of the reference body, against its geometry."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from model.attributes import Attributes, parse_attributes
from model.zoo import read_entry, read_reference

BODIES = Path(__file__).parents[3] / "zoo" / "bodies"
WHERE = {  # the segment that each landmark must be on, of its own side
    "eye": "head", "ear": "head", "wrist": "hand|forearm", "heel": "foot", "big toe tip": "foot",
    "little toe tip": "foot", "thumb tip": "hand", "index finger tip": "hand",
    "middle finger tip": "hand", "ring finger tip": "hand", "little finger tip": "hand",
    "nipple": "chest", "shoulder": "upper arm|chest", "elbow": "upper arm|forearm",
    "hip": "pelvis|thigh", "knee": "thigh|shin", "ankle": "shin|foot", "nose tip": "head",
    "chin": "head", "forehead": "head", "top of head": "head", "navel": "abdomen",
    "neck front": "neck", "neck back": "neck", "chest": "chest", "upper back": "chest",
    "lower back": "abdomen|pelvis", "crotch": "pelvis",
}  # fmt: skip


@pytest.fixture(scope="module")
def mesh() -> tuple[np.ndarray, np.ndarray]:
    return read_reference(BODIES / "reference.npz")


@pytest.fixture(scope="module")
def attributes(mesh: tuple[np.ndarray, np.ndarray]) -> Attributes:
    name = read_entry(BODIES).attributes
    assert name is not None
    return parse_attributes((BODIES / name).read_bytes(), len(mesh[0]))


def split(name: str) -> tuple[str, str]:
    side, _, rest = name.partition(" ")
    return (side, rest) if side in ("left", "right") else ("", name)


def test_every_landmark_is_on_its_part_and_its_side(attributes, mesh):
    seen = set()
    for name, vertex in attributes.landmarks.items():
        side, what = split(name)
        seen.add(what)
        on_side, part = split(attributes.segment_names[attributes.segments[vertex]])
        assert part in WHERE[what].split("|"), name
        assert on_side in ("", side), name
        x = mesh[0][vertex, 0]  # the subject's left is +x
        assert {"left": x > 0.01, "right": x < -0.01, "": abs(x) < 0.015}[side], name
    assert seen == WHERE.keys()


def test_left_and_right_mirror_each_other(attributes, mesh):
    vertices = mesh[0]
    for name, vertex in attributes.landmarks.items():
        side, what = split(name)
        if side == "left":
            other = vertices[attributes.landmarks[f"right {what}"]]
            assert vertices[vertex] * [-1, 1, 1] == pytest.approx(other, abs=2e-3), name
    count = np.bincount(attributes.segments)
    for n, name in enumerate(attributes.segment_names):
        side, what = split(name)
        if side == "left":
            assert count[n] == count[attributes.segment_names.index(f"right {what}")]


def test_landmarks_stick_out_where_they_should(attributes, mesh):
    vertices, at = mesh[0], attributes.landmarks
    assert vertices[at["top of head"], 2] == vertices[:, 2].max()
    head = vertices[attributes.segments == attributes.segment_names.index("head")]
    assert vertices[at["nose tip"], 1] == head[:, 1].min()  # it looks along -y
    heights = [vertices[at[name], 2] for name in (
        "top of head", "forehead", "nose tip", "chin", "neck front", "chest", "navel", "crotch",
        "left knee", "left ankle", "left heel")]  # fmt: skip
    assert heights == sorted(heights, reverse=True)
    assert vertices[at["neck back"], 1] > vertices[at["neck front"], 1] + 0.05
    tips = [vertices[vertex] for name, vertex in at.items() if name.endswith("finger tip")]
    assert len(tips) == 8 and len({tuple(tip) for tip in tips}) == 8


def test_every_segment_is_one_piece(attributes, mesh):
    vertices, faces = mesh
    ends = faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    for n in range(len(attributes.segment_names)):
        own = ends[(attributes.segments[ends] == n).all(1)]
        graph = coo_matrix((np.ones(len(own)), own.T), shape=(len(vertices),) * 2)
        piece = connected_components(graph, directed=False)[1][attributes.segments == n]
        assert len(np.unique(piece)) == 1, attributes.segment_names[n]
