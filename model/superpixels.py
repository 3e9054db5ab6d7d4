"""Images to graphs of superpixels, the same way in training and in serving."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from skimage.segmentation import slic

MAX_NODES = 75
REACH = 2.6  # of edges, in mean distances between superpixels


def superpixel_graph(
    image: NDArray[np.uint8],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """At most 75 superpixels of a grey image [H, W] as a graph.

    Returns features [N, 1] (mean intensity in [0, 1]), positions [N, 2] (centroids, x to the right
    and y down, in pixels) and edge_index [2, E] between all whose centroids are close: a fixed
    reach gives pseudo-coordinates one scale in all images.
    """
    grey = image.astype(np.float64) / 255.0
    label = _segment(grey)
    N = int(label.max()) + 1
    size = np.bincount(label.ravel(), minlength=N)
    rows, columns = np.indices(label.shape)

    def mean(value: Any) -> NDArray[np.float64]:
        return np.bincount(label.ravel(), weights=value.ravel(), minlength=N) / size

    features = mean(grey)[:, None].astype(np.float32)
    positions = np.stack([mean(columns), mean(rows)], 1).astype(np.float32)
    return features, positions, near_edges(positions, reach(image.shape))


def reach(shape: tuple[int, ...]) -> float:
    """How far edges reach in an image of that shape, in pixels."""
    return REACH * math.sqrt(shape[0] * shape[1] / MAX_NODES)


def _segment(grey: NDArray[np.float64]) -> NDArray[np.int64]:
    """SLIC labels 0..N-1, N <= 75: it treats the number asked for as a hint, so ask for fewer."""
    for segments in (75, 60, 45, 30, 15, 1):
        label = slic(
            grey, n_segments=segments, compactness=0.1, channel_axis=None, start_label=0
        ).astype(np.int64)
        _, label = np.unique(label, return_inverse=True)
        label = label.reshape(grey.shape)
        if label.max() < MAX_NODES:
            break
    return label


def near_edges(positions: NDArray[np.float32], radius: float) -> NDArray[np.int64]:
    """Edges [2, E] both ways between points at most `radius` apart, by target, then source."""
    pairs = cKDTree(positions).query_pairs(radius, output_type="ndarray").astype(np.int64)
    edges = np.concatenate([pairs, pairs[:, ::-1]])
    return np.ascontiguousarray(edges[np.lexsort(edges.T)].T)
