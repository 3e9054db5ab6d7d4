"""The shipped `bodies-any`: moved, turned and renumbered meshes, and shapes that are no bodies."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from numpy.typing import NDArray
from skimage.measure import marching_cubes

from model.anymesh.rotations import turn_by
from model.export import arguments, run
from model.request import request_graph
from model.serving import serve
from model.tasks import mesh_graph
from model.zoo import read_entry, read_reference, read_zoo

ZOO = Path(__file__).parents[3] / "zoo" / "bodies-any"
Arrays = tuple[NDArray[Any], NDArray[Any]]


@cache
def served() -> torch.nn.Module:
    return serve(read_zoo(ZOO)[1])


@cache
def sample() -> Arrays:
    graph = request_graph("correspondence", json.loads((ZOO / "sample.json").read_bytes()), None)
    return graph.arrays["vertices"], graph.arrays["faces"]


@cache
def reference() -> NDArray[np.float64]:
    """Where the reference's vertices are, times 100 over the square root of its area."""
    vertices, faces = read_reference(ZOO / "reference.npz")
    area = trimesh.Trimesh(vertices, faces, process=False).area
    return 100 * vertices.astype(np.float64) / np.sqrt(area)


def ask(vertices: NDArray[Any], faces: NDArray[Any], refine: int = 0) -> Arrays:
    inputs = {**arguments([mesh_graph(vertices, faces)]), "refine": refine}
    index, confidence = run(served(), inputs)
    return index[:, 0], confidence[:, 0]


@cache
def answer(refine: int = 0) -> Arrays:
    return ask(*sample(), refine)


def turned(vertices: NDArray[Any]) -> NDArray[Any]:
    turn = turn_by(torch.tensor([[1.1, -2.0, 0.7]]))[0].numpy()
    return np.asarray(vertices @ turn.T, np.float32)


MOVES = {
    "turned": turned,
    "upside down": lambda v: v * np.array([1, -1, -1], np.float32),
    "in millimetres": lambda v: v * np.float32(1000),
    "elsewhere": lambda v: v + np.array([3, -4, 5], np.float32),
}


@pytest.mark.parametrize("move", MOVES)
def test_where_a_body_is_and_how_it_lies_does_not_matter(move: str) -> None:
    vertices, faces = sample()
    index, confidence = ask(MOVES[move](vertices), faces)
    moved = np.linalg.norm(reference()[index] - reference()[answer()[0]], axis=1)
    assert moved.mean() < 0.2 and (moved > 3).mean() < 0.002
    assert np.abs(confidence - answer()[1]).mean() < 0.02


def test_the_numbering_of_vertices_and_faces_does_not_matter() -> None:
    vertices, faces = sample()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(vertices))  # the vertex now at n was order[n]
    place = np.argsort(order)
    index, _ = ask(vertices[order], place[faces][rng.permutation(len(faces))])
    moved = np.linalg.norm(reference()[index[place]] - reference()[answer()[0]], axis=1)
    assert moved.mean() < 0.2 and (moved > 3).mean() < 0.002


def test_finer_triangles_change_little() -> None:
    vertices, faces = sample()
    finer = trimesh.Trimesh(vertices, faces, process=False).subdivide()
    index, _ = ask(np.array(finer.vertices), np.array(finer.faces))
    moved = np.linalg.norm(reference()[index[: len(vertices)]] - reference()[answer()[0]], axis=1)
    assert moved.mean() < 1


def test_refining_changes_little_and_is_as_sure() -> None:
    moved = np.linalg.norm(reference()[answer(1)[0]] - reference()[answer()[0]], axis=1)
    assert 0 < moved.mean() < 1.5
    assert answer(1)[1].mean() > answer()[1].mean() - 0.05


def test_the_sample_lands_where_it_should() -> None:
    """It stands with y up and looks along z; the reference with z up and along -y."""
    vertices, _ = sample()
    index, confidence = answer()
    place = reference()[index]
    assert np.corrcoef(vertices[:, 1], place[:, 2])[0, 1] > 0.95
    assert np.corrcoef(vertices[:, 0], place[:, 0])[0, 1] > 0.8
    assert confidence.mean() > 0.8


def mannequin(arm: float, leg: float, stout: float) -> tuple[Arrays, list[str]]:
    """A jointed figure of sticks and balls grown together, and the part that each vertex is of.

    Left is +x, the front -y, z up; arms and legs are spread by angles. Nobody like it was learned.
    """
    parts: list[tuple[str, NDArray[Any], NDArray[Any], float]] = []

    def add(name: str, a: Any, b: Any, radius: float) -> None:
        parts.append((name, np.array(a, float), np.array(b, float), radius * stout))

    add("head", [0, 0, 1.6], [0, -0.02, 1.68], 0.095)
    add("head", [0, -0.1, 1.6], [0, -0.11, 1.6], 0.02)
    add("neck", [0, 0, 1.45], [0, 0, 1.55], 0.055)
    add("chest", [-0.1, 0, 1.3], [0.1, 0, 1.3], 0.12)
    add("abdomen", [-0.06, 0, 1.1], [0.06, 0, 1.1], 0.11)
    add("pelvis", [-0.08, 0, 0.95], [0.08, 0, 0.95], 0.12)
    for side, s in (("left", 1), ("right", -1)):
        along = np.array([s * np.sin(arm), 0, -np.cos(arm)])
        shoulder = np.array([s * 0.19, 0, 1.38])
        add(f"{side} upper arm", shoulder, shoulder + 0.3 * along, 0.047)
        add(f"{side} forearm", shoulder + 0.3 * along, shoulder + 0.57 * along, 0.036)
        add(f"{side} hand", shoulder + 0.61 * along, shoulder + 0.73 * along, 0.026)
        along = np.array([s * np.sin(leg), 0, -np.cos(leg)])
        hip = np.array([s * 0.1, 0, 0.9])
        ankle = hip + 0.84 * along
        add(f"{side} thigh", hip, hip + 0.42 * along, 0.072)
        add(f"{side} shin", hip + 0.42 * along, ankle, 0.048)
        add(f"{side} foot", ankle + [0, 0.02, -0.03], ankle + [0, -0.17, -0.05], 0.034)

    def depth(x: NDArray[Any]) -> NDArray[Any]:
        """How far outside each part a point is. [parts, ...]"""
        found = []
        for _, a, b, radius in parts:
            t = np.clip((x - a) @ (b - a) / ((b - a) ** 2).sum(), 0, 1)
            found.append(np.linalg.norm(x - a - t[..., None] * (b - a), axis=-1) - radius)
        return np.stack(found)

    step, low = 0.02, np.array([-1.0, -0.3, -0.1])
    grid = [np.arange(a, b, step) for a, b in zip(low, [1, 0.3, 1.9], strict=True)]
    volume = np.exp(-depth(np.stack(np.meshgrid(*grid, indexing="ij"), -1)) / 0.02).sum(0)
    vertices, faces, _, _ = marching_cubes(-np.log(volume), 0, spacing=(step,) * 3)
    vertices = vertices + low
    names = [parts[n][0] for n in depth(vertices).argmin(0)]
    return (vertices.astype(np.float32), faces[:, ::-1].astype(np.int64)), names


@pytest.mark.parametrize("arm, leg, stout", [(0.6, 0.15, 1), (1.4, 0.15, 1), (0.3, 0.1, 0.85)])
def test_a_mannequin_has_its_limbs_where_they_are(arm: float, leg: float, stout: float) -> None:
    (vertices, faces), names = mannequin(arm, leg, stout)
    index, confidence = ask(turned(vertices), faces)
    segments = json.loads((ZOO / "attributes.json").read_bytes())["segments"]
    found = [segments["names"][segments["of_vertex"][n]] for n in index]
    wrong_side = [{a.split()[0], b.split()[0]} == {"left", "right"}
                  for a, b in zip(found, names, strict=True)]  # fmt: skip
    assert np.mean(wrong_side) < 0.01
    assert np.mean([a == b for a, b in zip(found, names, strict=True)]) > 0.7
    assert confidence.mean() > (read_entry(ZOO).doubt or 0)


def flat() -> trimesh.Trimesh:
    across = np.arange(30)
    x, y = np.meshgrid(across, across)
    corner = (across[:-1, None] * 30 + across[:-1]).ravel()
    faces = [[corner, corner + 1, corner + 30], [corner + 1, corner + 31, corner + 30]]
    vertices = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], 1)
    return trimesh.Trimesh(vertices, np.concatenate([np.stack(f, 1) for f in faces]), process=False)


@pytest.mark.parametrize(
    "shape",
    [
        flat,
        lambda: trimesh.creation.icosphere(4),
        lambda: trimesh.creation.torus(1, 0.3),
        lambda: trimesh.creation.capsule(2, 0.4),
        lambda: trimesh.creation.box((1, 2, 3)),
    ],
    ids=["plane", "ball", "ring", "capsule", "box"],
)
def test_what_is_no_body_is_doubted(shape: Any) -> None:
    mesh = shape()
    _, confidence = ask(np.array(mesh.vertices), np.array(mesh.faces))
    doubt = read_entry(ZOO).doubt
    assert doubt is not None and confidence.mean() < doubt
