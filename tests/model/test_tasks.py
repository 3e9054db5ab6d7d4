import numpy as np
import pytest

from model.errors import InvalidGraph, UnsupportedTask
from model.graph import Coordinates, pack
from model.request import request_graph
from model.tasks import SparseFeatures, grid, image_graph, label_graph, node_graph

EYE = np.eye(3)
NAN = float("nan")


def test_undirected_edges_go_both_ways_once_and_loops_are_dropped():
    graph = node_graph(3, [[0, 1], [1, 0], [2, 2], [1, 2]], EYE)
    assert graph.arrays["edge_index"].tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert (graph.num_nodes, graph.num_edges) == (3, 4)


def test_directed_edges_stay_as_they_are():
    graph = node_graph(3, [[2, 0], [0, 1], [0, 1]], EYE, undirected=False)
    assert graph.arrays["edge_index"].tolist() == [[2, 0], [0, 1]]


def test_dense_and_sparse_features_make_the_same_graph():
    dense = np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, 3]])
    sparse = SparseFeatures.from_lists(3, [[1], [], [0, 2]], [[2.5], [], [1, 3]])
    a, b = (node_graph(3, [[0, 1]], features).arrays for features in (dense, sparse))
    assert all(np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def test_sparse_features_without_values_are_ones():
    graph = node_graph(2, [], SparseFeatures.from_lists(9, [[1, 8], [0]]))
    assert graph.arrays["feature_value"].tolist() == [1, 1, 1]


BAD_NODES = [
    (dict(num_nodes=0), "graph.num_nodes", "must lie in"),
    (dict(num_nodes=1 << 30), "graph.num_nodes", "got 1073741824"),
    (dict(num_nodes="3"), "graph.num_nodes", "must be an integer, got '3'"),
    (dict(num_nodes=True), "graph.num_nodes", "must be an integer"),
    (dict(edges=[[0, 1], [0, 3]]), "graph.edges[1]", r"must lie in \[0, 3\), got \[0, 3\]"),
    (dict(edges=[[0, 1, 2]]), "graph.edges", r"must be \[\*, 2\]"),
    (dict(edges=[[[0, 1]]]), "graph.edges", "got shape"),
    (dict(edges=[[0, 1], [0]]), "graph.edges", "rows differ"),
    (dict(edges="01"), "graph.edges", "must be numbers"),
    (dict(features=EYE[:2]), "graph.features", r"one row per node \(3\), got 2"),
    (dict(features=[[1], [2], [NAN]]), "graph.features[2][0]", "must be a finite number"),
    (dict(features=[[1], [2], [3, 4]]), "graph.features", "rows of equal length"),
    (dict(features=[1, 2, 3]), "graph.features", "one row per node"),
    (dict(features=[["a"], ["b"], ["c"]]), "graph.features", "must be numbers"),
    (dict(num_features=4), "graph.features", "must have 4 values per node, got 3"),
    (dict(positions=[[0, 0]] * 2), "graph.positions", r"one row per node \(3\), got 2"),
    (dict(positions=[[0]] * 3), "graph.positions", "2 or 3 coordinates per node, got 1"),
    (dict(positions=[[0, NAN]] * 3), "graph.positions[0][1]", "got nan"),
    (dict(pseudo=[[1.5]]), "graph.pseudo[0][0]", r"must lie in \[0, 1\], got 1.5"),
    (dict(pseudo=[[0.5]] * 2), "graph.pseudo", r"one row per edge \(1\), got 2"),
]


@pytest.mark.parametrize("change, path, message", BAD_NODES)
def test_a_bad_graph_is_refused_with_the_field_and_what_it_held(change, path, message):
    good = dict(num_nodes=3, edges=[[0, 1]], features=EYE)
    node_graph(**good)
    with pytest.raises(InvalidGraph, match=message) as caught:
        node_graph(**(good | change))
    assert caught.value.path == path


@pytest.mark.parametrize(
    "size, indices, values, path, message",
    [
        (3, [[0], [3]], None, "graph.features.indices[1]", r"must lie in \[0, 3\), got 3"),
        (3, [[0], [-1]], None, "graph.features.indices[1]", "got -1"),
        (3, [[0]], None, "graph.features.indices", r"one row per node \(2\), got 1"),
        (3, [[0], [1.5]], None, "graph.features.indices", "must be integers"),
        (3, [[0], ["x"]], None, "graph.features.indices", "one list of numbers per node"),
        (3, [[0], [[1]]], None, "graph.features.indices", "one list of numbers per node"),
        (3, [[0], [1]], [[1.0], []], "graph.features.values", "as many entries as indices"),
        (3, [[0], [1]], [[1.0], [NAN]], "graph.features.values[1]", "finite"),
        ("3", [[], []], None, "graph.features.size", "must be an integer, got '3'"),
        (4, [[], []], None, "graph.features.size", "must be 3, got 4"),
    ],
)
def test_bad_sparse_features_are_refused(size, indices, values, path, message):
    with pytest.raises(InvalidGraph, match=message) as caught:
        features = SparseFeatures.from_lists(size, indices, values)
        node_graph(2, [], features, num_features=3)
    assert caught.value.path == path


@pytest.mark.parametrize("values", [[1.0], [[1.0], [2.0]], ["a", "b"]])
def test_sparse_values_are_one_number_per_index(values):
    with pytest.raises(InvalidGraph, match="must be one number per index") as caught:
        node_graph(
            2, [], SparseFeatures(3, np.array([0, 1, 2]), np.array([0, 1]), np.array(values))
        )
    assert caught.value.path == "graph.features.values"


def test_features_are_at_least_one():
    with pytest.raises(InvalidGraph, match=r"size: must lie in \[1, 16777216\], got 0"):
        node_graph(1, [], SparseFeatures.from_lists(0, [[]]))


def test_row_offsets_must_rise_from_zero_to_the_end():
    for ptr in ([0, 2, 1], [1, 1, 2], [0, 1, 1]):
        with pytest.raises(InvalidGraph, match="row offsets"):
            node_graph(2, [], SparseFeatures(3, np.array(ptr), np.array([0, 1])))


def test_a_label_graph_needs_positions_in_the_plane():
    good = label_graph(2, [[0, 1]], [[1.0], [2.0]], [[0, 0], [1, 1]])
    assert good.arrays["positions"].dtype == np.float32
    with pytest.raises(InvalidGraph, match="must have 2 coordinates per node, got 3") as caught:
        label_graph(2, [[0, 1]], [[1.0], [2.0]], [[0, 0, 0], [1, 1, 1]])
    assert caught.value.path == "graph.positions"


def test_a_grid_joins_five_by_five_neighbourhoods():
    positions, edges = grid(4, 6)
    assert positions[7].tolist() == [1, 1]  # x, y
    apart = positions[edges[0]] - positions[edges[1]]
    assert np.abs(apart).max() == 2 and np.abs(apart).max(1).min() == 1
    assert grid(28, 28)[1].shape == (2, 17172)
    assert len({tuple(e) for e in edges.T.tolist()}) == edges.shape[1]


@pytest.mark.parametrize("how", ["superpixels", "grid"])
def test_images_of_any_size_colour_and_polarity_become_the_same_kind_of_graph(how):
    digit = np.zeros((28, 28), np.uint8)
    digit[5:23, 12:16] = 255
    plain = image_graph(digit, how)
    assert plain.arrays["features"].max() == pytest.approx(1)
    large = np.repeat(np.repeat(255 - digit, 4, 0), 4, 1)
    coloured = image_graph(np.stack([large] * 3, 2), how)
    for name, array in plain.arrays.items():
        assert np.allclose(array, coloured.arrays[name], atol=1e-6), name


def test_one_pixel_is_an_image_too():
    assert image_graph(np.zeros((1, 1), np.uint8), "grid").num_nodes == 784
    assert image_graph(np.zeros((1, 1), np.uint8), "superpixels").num_nodes >= 1


@pytest.mark.parametrize(
    "image, message",
    [
        (np.zeros((4, 4)), "8-bit values, got float64"),
        (np.zeros((4, 4, 4), np.uint8), r"\[H, W\] or \[H, W, 3\], got \[4, 4, 4\]"),
        (np.zeros((0, 4), np.uint8), r"got \[0, 4\]"),
    ],
)
def test_a_bad_image_is_refused(image, message):
    with pytest.raises(InvalidGraph, match=message) as caught:
        image_graph(image, "grid")
    assert caught.value.path == "image"


@pytest.mark.parametrize(
    "task, body, path",
    [
        ("correspondence", [], "mesh"),
        ("correspondence", {"mesh": 3}, "mesh"),
        ("correspondence", {"mesh": {"vertices": []}}, "mesh.faces"),
        ("node-labels", {"mesh": {}}, "graph"),
        ("node-labels", {"graph": {"num_nodes": 1, "edges": []}}, "graph.features"),
        (
            "node-labels",
            {"graph": {"num_nodes": 1, "edges": [], "features": {"size": 3}}},
            "graph.features",
        ),
        (
            "node-labels",
            {"graph": {"num_nodes": 1, "edges": [], "features": {"size": 3, "indices": [4]}}},
            "graph.features",
        ),
        (
            "graph-label",
            {"graph": {"num_nodes": 1, "edges": [], "features": []}},
            "graph.positions",
        ),
    ],
)
def test_an_incomplete_request_names_what_is_missing(task, body, path):
    with pytest.raises(InvalidGraph) as caught:
        request_graph(task, body)
    assert caught.value.path == path


def test_a_request_for_an_unknown_task_is_refused():
    with pytest.raises(UnsupportedTask, match="unknown task 'dance'"):
        request_graph("dance", {})


PSEUDO = Coordinates("pseudo", 1)


def test_pseudo_coordinates_follow_their_edges():
    edges = [[2, 0], [1, 1], [0, 2], [1, 0]]
    graph = node_graph(3, edges, np.eye(3), False, None, [[0.1], [0.2], [0.3], [0.4]], 3, PSEUDO)
    assert graph.arrays["edge_index"].T.tolist() == [[1, 0], [2, 0], [0, 2]]
    assert graph.arrays["pseudo"].ravel().tolist() == pytest.approx([0.4, 0.1, 0.3])


@pytest.mark.parametrize(
    "edges, undirected, positions, pseudo, wanted, path, message",
    [
        ([[0, 1]], True, None, [[0.5]], PSEUDO, "graph.undirected", "must be false where pseudo"),
        ([[0, 1]] * 2, False, None, [[0], [1]], PSEUDO, "graph.edges", r"got \[0, 1\] again"),
        ([[0, 1]], False, None, None, PSEUDO, "graph.pseudo", "is missing: this network takes ps"),
        ([[0, 1]], False, None, [[0, 1]], PSEUDO, "graph.pseudo", "1 numbers in each row, got 2"),
        ([[0, 1]], True, None, [[0]], Coordinates("positions", 2), "graph.positions", "is missing"),
        ([[0, 1]], True, np.eye(3), None, Coordinates("positions", 2), "graph.positions", "got 3"),
    ],
)  # fmt: skip
def test_coordinates_a_network_cannot_take_are_refused(
    edges, undirected, positions, pseudo, wanted, path, message
):
    with pytest.raises(InvalidGraph, match=message) as caught:
        node_graph(3, edges, np.eye(3), undirected, positions, pseudo, 3, wanted)
    assert caught.value.path == path


def test_coordinates_nobody_takes_are_checked_and_change_nothing():
    plain = pack([node_graph(3, [[0, 1]], np.eye(3))])
    placed = pack([node_graph(3, [[0, 1]], np.eye(3), True, np.eye(3), [[0.5]])])
    assert plain.keys() == placed.keys()


def test_graphs_of_different_coordinates_share_no_batch():
    placed = node_graph(
        3, [[0, 1]], np.eye(3), True, np.eye(3), None, 3, Coordinates("positions", 3)
    )
    with pytest.raises(InvalidGraph, match="the same coordinates"):
        pack([placed, node_graph(3, [[0, 1]], np.eye(3))])
