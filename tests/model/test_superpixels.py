import numpy as np
import pytest

from model.superpixels import MAX_NODES, REACH, near_edges, superpixel_graph


def digit() -> np.ndarray:
    image = np.zeros((28, 28), np.uint8)
    image[4:24, 12:16] = 255
    return image


def test_features_are_mean_intensities_and_positions_lie_in_the_image():
    features, positions, edge_index = superpixel_graph(digit())
    assert features.shape == (len(positions), 1) and features.dtype == np.float32
    assert 0 <= features.min() < 0.5 and features.max() == pytest.approx(1)
    assert positions.min() >= 0 and positions.max() <= 27
    bright = positions[features[:, 0] > 0.9]
    assert (np.abs(bright[:, 0] - 13.5) < 2).all()  # x runs along the columns
    assert edge_index.max() < len(positions)


@pytest.mark.parametrize("seed", range(5))
def test_noise_never_gives_more_than_75_superpixels(seed: int):
    noise = np.random.default_rng(seed).integers(0, 256, (28, 28)).astype(np.uint8)
    assert len(superpixel_graph(noise)[0]) <= MAX_NODES


def test_edges_go_both_ways_without_loops_or_repeats():
    edges = superpixel_graph(digit())[2]
    pairs = set(map(tuple, edges.T.tolist()))
    assert len(pairs) == edges.shape[1]
    assert all((b, a) in pairs and a != b for a, b in pairs)


def test_a_single_pixel_is_a_graph_without_edges():
    features, positions, edge_index = superpixel_graph(np.zeros((1, 1), np.uint8))
    assert features.shape == (1, 1) and positions.shape == (1, 2) and edge_index.shape == (2, 0)


def test_points_within_reach_are_neighbours():
    points = np.array([[0, 0], [5, 0], [9, 0]], np.float32)
    assert near_edges(points, 5).tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert near_edges(points, 1).shape == (2, 0)


def test_edges_reach_as_far_as_said():
    _, positions, (source, target) = superpixel_graph(digit())
    length = np.linalg.norm(positions[source] - positions[target], axis=1)
    assert length.max() <= REACH
    assert len(source) / len(positions) > 6


def test_superpixels_lie_on_what_is_drawn():
    _, positions, _ = superpixel_graph(digit())
    assert len(positions) > 20
    assert (positions >= [11, 3]).all() and (positions <= [16, 24]).all()


def test_an_empty_picture_is_one_superpixel():
    features, positions, edge_index = superpixel_graph(np.zeros((28, 28), np.uint8))
    assert features.tolist() == [[0.0]] and positions.tolist() == [[13.5, 13.5]]
    assert edge_index.shape == (2, 0)
