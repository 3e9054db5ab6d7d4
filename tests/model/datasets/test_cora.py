from pathlib import Path

import numpy as np
import pytest

from model.datasets.cora import load_cora
from model.datasets.files import InvalidData, MissingData


def write(folder: Path, nodes: int = 1010, **changes: np.ndarray) -> None:
    arrays = {
        "x_indptr": np.arange(nodes + 1),
        "x_indices": np.arange(nodes) % 5,
        "x_shape": np.array([nodes, 5]),
        "y": np.arange(nodes) % 7,
        "edges_undirected": np.stack([np.arange(nodes - 1), np.arange(1, nodes)], 1),
    }
    np.savez(folder / "cora.npz", **(arrays | changes))


def test_the_last_500_nodes_test_and_the_first_train(tmp_path: Path):
    write(tmp_path)
    data = load_cora(tmp_path)
    assert data.train.tolist() == list(range(10))
    assert (data.validation[0], data.test[0], data.test[-1]) == (10, 510, 1009)
    assert data.graph.num_edges == 2 * 1009
    assert data.num_features == 5 and len(data.names) == 7


def test_the_directory_that_lacks_it_is_named(tmp_path: Path):
    with pytest.raises(MissingData, match="planetoid"):
        load_cora(tmp_path)


def test_labels_out_of_range_are_refused(tmp_path: Path):
    write(tmp_path, y=np.full(1010, 7))
    with pytest.raises(InvalidData, match=r"labels must lie in \[0, 7\)"):
        load_cora(tmp_path)


def test_rows_without_labels_are_refused(tmp_path: Path):
    write(tmp_path, y=np.zeros(3, int))
    with pytest.raises(InvalidData, match="1010 rows and y 3"):
        load_cora(tmp_path)
