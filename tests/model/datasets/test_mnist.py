from pathlib import Path

import numpy as np
import pytest

from model.datasets.files import InvalidData, MissingData
from model.datasets.mnist import load_digits, load_superpixels, make_superpixels
from model.superpixels import superpixel_graph


def write(folder: Path, **changes: np.ndarray) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28)).astype(np.uint8)
    arrays = {
        "x_train": images,
        "y_train": np.arange(6),
        "x_test": images[:2],
        "y_test": np.ones(2),
    }
    np.savez(folder / "mnist.npz", **(arrays | changes))


def test_digits_come_with_their_labels(tmp_path: Path):
    write(tmp_path)
    train, test = load_digits(tmp_path)
    assert train.images.shape == (6, 28, 28) and train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert test.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((6, 28, 28))}, "x_train is float64"),
        ({"x_test": np.zeros((2, 32, 32), np.uint8)}, r"x_test is uint8 \[2, 32, 32\]"),
        ({"y_train": np.full(6, 10)}, r"y_train must lie in \[0, 10\)"),
    ],
)
def test_something_else_under_that_name_is_refused(tmp_path: Path, changes, message: str):
    write(tmp_path, **changes)
    with pytest.raises(InvalidData, match=message):
        load_digits(tmp_path)


def test_superpixels_are_made_once_and_are_those_of_serving(tmp_path: Path):
    write(tmp_path)
    done = []
    path = make_superpixels(tmp_path, lambda n, total: done.append((n, total)), processes=1)
    train, test = load_superpixels(tmp_path)
    assert path.exists() and not list(tmp_path.glob("*partial*"))
    features, positions, edge_index = superpixel_graph(load_digits(tmp_path)[0].images[3])
    nodes = slice(*train.node_ptr[3:5])
    assert np.array_equal(train.features[nodes], features)
    assert np.array_equal(train.positions[nodes], positions)
    assert np.array_equal(train.edges[:, slice(*train.edge_ptr[3:5])], edge_index)
    assert test.node_ptr[-1] == len(test.features)


def test_no_digits_say_where_people_get_them(tmp_path: Path):
    with pytest.raises(MissingData, match="keras"):
        load_superpixels(tmp_path)
