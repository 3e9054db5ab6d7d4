"""Images to graphs of superpixels, the same way in training and in serving."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from skimage.segmentation import slic

MAX_NODES = 75
NEIGHBOURS = 8


def superpixel_graph(
    image: NDArray[np.uint8],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """At most 75 superpixels of a grey image [H, W] as a graph.

    Returns features [N, 1] (mean intensity in [0, 1]), positions [N, 2] (centroids, x to the right
    and y down, in pixels) and edge_index [2, E]: each superpixel and its 8 nearest, both ways.
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
    return features, positions, nearest_edges(positions, NEIGHBOURS)


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


def nearest_edges(positions: NDArray[np.float32], neighbours: int) -> NDArray[np.int64]:
    """Edges [2, E] from every point to and from its nearest ones, sorted, each once."""
    N = len(positions)
    if N < 2:
        return np.zeros((2, 0), np.int64)
    k = min(neighbours, N - 1)
    _, near = cKDTree(positions).query(positions, k=k + 1)
    source = near.ravel()
    target = np.repeat(np.arange(N), k + 1)
    other = source != target
    source, target = source[other], target[other]
    both = np.concatenate([source * N + target, target * N + source])
    return np.stack(np.divmod(np.unique(both), N)).astype(np.int64)
