import json
from pathlib import Path

import numpy as np
import pytest
import trimesh

from model import plots
from model.datasets.meshes import Meshes
from model.datasets.mnist import make_superpixels
from model.errors import UnsupportedTask
from model.evaluate import evaluate, score_meshes
from model.geodesics import Surface, princeton_curve
from model.zoo import read_entry
from tests.model.test_train import bars, make
from tests.toys import make_toy_zoo


@pytest.fixture(scope="module")
def sphere() -> trimesh.Trimesh:
    return trimesh.creation.icosphere(2)


def faces(mesh: trimesh.Trimesh) -> np.ndarray:
    return np.asarray(mesh.faces, np.int64)


def test_distances_follow_the_surface(sphere: trimesh.Trimesh):
    surface = Surface(np.asarray(sphere.vertices), faces(sphere))
    pole, opposite = 0, int(np.argmin(sphere.vertices @ sphere.vertices[0]))
    assert surface.distance(pole, opposite) == pytest.approx(np.pi, rel=0.03)
    assert surface.distance(3, 3) == 0
    assert surface.diameter == pytest.approx(np.pi, rel=0.03)


def test_errors_are_shares_of_the_diameter(sphere: trimesh.Trimesh):
    surface = Surface(np.asarray(sphere.vertices), faces(sphere))
    found = np.arange(len(sphere.vertices))
    opposite = int(np.argmin(sphere.vertices @ sphere.vertices[0]))
    found[0] = opposite
    errors = surface.errors(found)
    assert errors[0] == pytest.approx(1, rel=0.02) and (errors[1:] == 0).all()


def test_the_curve_counts_vertices_within_a_radius():
    errors = np.array([[0, 0, 0.02, 0.5]])
    assert princeton_curve(errors, np.array([0, 0.01, 0.02, 1])).tolist() == [50, 50, 75, 100]


def test_a_perfect_network_scores_one(sphere: trimesh.Trimesh, tmp_path: Path):
    shape = np.asarray(sphere.vertices, np.float32)
    some = np.stack([shape, shape * 2, shape * 3])
    meshes = Meshes(faces(sphere), shape, some, some, some)

    def knows_all(vertices, faces, ptr, top_k):
        import torch

        return torch.arange(len(vertices))[:, None], torch.ones(len(vertices), 1)

    told: list[tuple[int, int]] = []
    scores = score_meshes(
        knows_all, meshes, tmp_path, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert scores["exact"] == scores["within_5_percent"] == 1 and scores["test_shapes"] == 3
    for name in ("princeton.png", "errors.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"


def test_a_zoo_entry_is_scored_drawn_and_recorded(tmp_path: Path):
    digits = bars()
    np.savez(
        tmp_path / "mnist.npz",
        x_train=digits.images, y_train=digits.labels, x_test=digits.images, y_test=digits.labels,
    )  # fmt: skip
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-grid") / "toy-grid"
    told: list[tuple[int, int]] = []
    scores = evaluate(
        zoo, tmp_path, tmp_path / "out", "mnist-grid", limit=10, record=True,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(1, 1)]
    assert scores["test_graphs"] == 10 and 0 <= scores["accuracy"] <= 1
    assert json.loads((tmp_path / "out" / "scores.json").read_text()) == scores
    assert read_entry(zoo).scores == scores
    assert {p.name for p in (tmp_path / "out").glob("*.png")} == {"confusion.png", "kernels.png"}


def test_a_network_of_unknown_data_needs_a_task(tmp_path: Path):
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-nodes") / "toy-nodes"
    with pytest.raises(UnsupportedTask, match="does not say what it was trained on"):
        evaluate(zoo, tmp_path, tmp_path / "out")


def test_splines_are_compared_over_degree_and_coordinates(tmp_path: Path):
    digits = bars()
    some = slice(0, 20)
    np.savez(
        tmp_path / "mnist.npz",
        x_train=digits.images, y_train=digits.labels,
        x_test=digits.images[some], y_test=digits.labels[some],
    )  # fmt: skip
    make_superpixels(tmp_path, processes=1)
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-superpixels") / "toy-superpixels"
    evaluate(zoo, tmp_path, tmp_path / "out", "mnist-superpixels", limit=5, splines=2)
    found = json.loads((tmp_path / "out" / "splines.json").read_text())
    assert {name: len(scores) for name, scores in found.items()} == {"cartesian": 3, "polar": 3}
    assert (tmp_path / "out" / "splines.png").exists()


def test_kernels_in_three_dimensions_are_drawn_too(tmp_path: Path):
    plots.draw_kernels(make("bodies").net, tmp_path / "kernels.png")
    assert (tmp_path / "kernels.png").stat().st_size < 150_000


def test_networks_without_planar_kernels_have_no_picture(tmp_path: Path):
    plots.draw_kernels(make("cora").net, tmp_path / "kernels.png")
    assert not (tmp_path / "kernels.png").exists()
