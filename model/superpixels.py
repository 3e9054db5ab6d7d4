"""Images to graphs of superpixels, the same way in training and in serving."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation
from scipy.spatial import cKDTree
from skimage.segmentation import slic

MAX_NODES = 75
REACH = 4.5  # of edges, in pixels
DRAWN = 0.24  # least brightness of a pixel that belongs to the digit

# SLIC seeds its superpixels by k-means; one that stays empty is simply not there
warnings.filterwarnings("ignore", "One of the clusters is empty", UserWarning)


def superpixel_graph(
    image: NDArray[np.uint8],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """At most 75 superpixels of what is drawn on a grey image [H, W] as a graph.

    The empty background gets none: spread over the whole image three of four would be plain black,
    and too few would be left to tell digits apart.

    Returns features [N, 1] (mean intensity in [0, 1]), positions [N, 2] (centroids, x to the right
    and y down, in pixels) and edge_index [2, E] between all whose centroids are close: a fixed
    reach gives pseudo-coordinates one scale in all images.
    """
    grey = image.astype(np.float64) / 255.0
    label = _segment(grey)
    size = np.bincount(label.ravel())[1:]
    rows, columns = np.indices(label.shape)

    def mean(value: Any) -> NDArray[np.float64]:
        return np.bincount(label.ravel(), weights=value.ravel())[1:] / size

    features = mean(grey)[:, None].astype(np.float32)
    positions = np.stack([mean(columns), mean(rows)], 1).astype(np.float32)
    return features, positions, near_edges(positions, REACH)


def _segment(grey: NDArray[np.float64]) -> NDArray[np.int64]:
    """SLIC labels 1..N of the drawn pixels and their rim, 0 elsewhere, N <= 75.

    SLIC treats the number asked for as a hint, so fewer are asked for until it fits.
    """
    drawn = binary_dilation(grey > DRAWN)
    if not drawn.any():
        drawn[:] = True  # an empty picture is one superpixel
        return drawn.astype(np.int64)
    for segments in (65, 58, 51, 44, 37, 30, 15, 1):
        label = slic(
            grey,
            n_segments=segments,
            compactness=0.1,
            channel_axis=None,
            start_label=1,
            mask=drawn,
        )
        found, label = np.unique(label, return_inverse=True)
        if len(found) <= MAX_NODES + 1:
            break
    return np.asarray(label, np.int64).reshape(grey.shape)


def near_edges(positions: NDArray[np.float32], radius: float) -> NDArray[np.int64]:
    """Edges [2, E] both ways between points at most `radius` apart, by target, then source."""
    pairs = cKDTree(positions).query_pairs(radius, output_type="ndarray").astype(np.int64)
    edges = np.concatenate([pairs, pairs[:, ::-1]])
    return np.ascontiguousarray(edges[np.lexsort(edges.T)].T)
