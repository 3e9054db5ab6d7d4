import numpy as np
import pytest
import torch

from model.errors import InvalidGraph, UnsupportedTask
from model.graph import Graph, pack, unpack
from model.tasks import mesh_graph, node_graph

TRIANGLE = mesh_graph([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
SQUARE = mesh_graph([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])


def test_packing_shifts_node_indices_and_tells_where_each_graph_begins():
    packed = pack([TRIANGLE, SQUARE])
    assert packed["ptr"].tolist() == [0, 3, 7]
    assert packed["faces"].tolist() == [[0, 1, 2], [3, 4, 5], [3, 5, 6]]
    assert packed["vertices"].shape == (7, 3)


def test_packing_shifts_feature_rows_but_not_feature_numbers():
    a = node_graph(2, [[0, 1]], [[0, 5, 0], [1, 0, 1]])
    b = node_graph(3, [[0, 2]], [[0, 0, 2], [0, 0, 0], [3, 0, 0]])
    packed = pack([a, b])
    assert packed["feature_ptr"].tolist() == [0, 1, 3, 4, 4, 5]
    assert packed["feature_index"].tolist() == [1, 0, 2, 2, 0]
    assert packed["feature_value"].tolist() == [5, 1, 1, 2, 3]
    assert packed["edge_index"].tolist() == [[1, 0, 4, 2], [0, 1, 2, 4]]


def test_packing_one_graph_never_shares_memory_with_the_request():
    packed = pack([TRIANGLE])
    packed["vertices"].zero_()
    assert TRIANGLE.arrays["vertices"].any()


def test_unpacking_gives_every_graph_its_own_rows():
    rows = torch.arange(7)[:, None]
    first, second = unpack({"index": rows}, [TRIANGLE, SQUARE])
    assert first["index"].ravel().tolist() == [0, 1, 2]
    assert second["index"].ravel().tolist() == [3, 4, 5, 6]


def test_unpacking_gives_one_row_per_graph_for_graph_labels():
    graphs = [Graph("graph-label", {}, 5, 0), Graph("graph-label", {}, 9, 0)]
    first, second = unpack({"probabilities": torch.eye(2)}, graphs)
    assert np.array_equal(first["probabilities"], [[1, 0]])
    assert np.array_equal(second["probabilities"], [[0, 1]])


def test_a_batch_is_of_one_known_task_and_not_empty():
    with pytest.raises(InvalidGraph, match="at least one graph"):
        pack([])
    with pytest.raises(InvalidGraph, match="one task only"):
        pack([TRIANGLE, node_graph(1, [], [[1.0]])])
    with pytest.raises(UnsupportedTask, match="unknown task 'dance'"):
        pack([Graph("dance", {}, 1, 0)])
