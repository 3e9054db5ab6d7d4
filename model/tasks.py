"""What people send, checked and turned into graphs, the same in training and in serving."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from model.errors import InvalidGraph
from model.graph import (
    CORRESPONDENCE,
    GRAPH_LABEL,
    NODE_LABELS,
    POSITIONS,
    PSEUDO,
    Coordinates,
    Graph,
)
from model.mesh import check_faces, check_finite, check_indices, check_vertices

SUPERPIXELS = "superpixels"
GRID = "grid"
IMAGE_SIZE = 28
GRID_REACH = 2  # neighbourhoods of 5 x 5 pixels
MAX_GRAPH_NODES = 1 << 22  # pooling orders the edges of a graph by 44-bit pairs of node indices
MAX_FEATURES = 1 << 24
_HIGH = 32  # bits below the target of an edge in its key


@dataclass(frozen=True)
class SparseFeatures:
    """Rows of features, most of them zero: row n has `index[ptr[n]:ptr[n+1]]` set to `value`."""

    size: int
    ptr: np.ndarray
    index: np.ndarray
    value: np.ndarray | None = None

    @staticmethod
    def from_lists(
        size: int,
        indices: Sequence[Sequence[int]],
        values: Sequence[Sequence[float]] | None = None,
        path: str = "graph.features",
    ) -> "SparseFeatures":
        """One list of feature numbers per node, with one list of values each, or ones."""
        if isinstance(size, bool) or not isinstance(size, int):
            raise InvalidGraph(f"must be an integer, got {size!r}", f"{path}.size")
        if values is not None and [len(v) for v in values] != [len(i) for i in indices]:
            raise InvalidGraph("must have as many entries as indices, row by row", f"{path}.values")
        ptr = np.cumsum([0] + [len(row) for row in indices])
        index = _flatten(indices, f"{path}.indices")
        value = None if values is None else _flatten(values, f"{path}.values")
        return SparseFeatures(size, ptr, index, value)


def mesh_graph(vertices: Any, faces: Any) -> Graph:
    """A triangle mesh, vertices [V, 3] and faces [F, 3], for `correspondence`."""
    vertices = check_vertices(vertices)
    faces = check_faces(faces, len(vertices))
    arrays = {"vertices": vertices, "faces": faces}
    return Graph(CORRESPONDENCE, arrays, len(vertices), 3 * len(faces))


def node_graph(
    num_nodes: int,
    edges: Any,
    features: Any,
    undirected: bool = True,
    positions: Any = None,
    pseudo: Any = None,
    num_features: int | None = None,
    coordinates: Coordinates | None = None,
) -> Graph:
    """A graph whose nodes want labels: edges [E, 2], features [N, F] or `SparseFeatures`.

    `positions` [N, 2 or 3] and `pseudo` [E, D] are checked when given, and kept if they are the
    `coordinates` that the network takes; without any it looks at node degrees alone.
    """
    num_nodes = _node_count(num_nodes)
    edge_index = _edge_index(edges, num_nodes, undirected)
    if not isinstance(features, SparseFeatures):
        features = _sparse(_dense_features(features, num_nodes, num_features))
    ptr, index, value = _check_sparse(features, num_nodes, num_features)
    arrays = {
        "feature_ptr": ptr,
        "feature_index": index,
        "feature_value": value,
        "edge_index": edge_index,
    }
    if positions is not None:
        arrays[POSITIONS] = _positions(positions, num_nodes, (2, 3))
    if pseudo is not None:
        rows = _pseudo(pseudo, len(np.atleast_1d(np.asarray(edges))))
        if coordinates is not None and coordinates.name == PSEUDO:
            rows = _of_edges(rows, np.asarray(edges), edge_index, num_nodes, undirected)
        arrays[PSEUDO] = rows
    if coordinates is not None:
        _check_coordinates(arrays, coordinates)
    return Graph(NODE_LABELS, arrays, num_nodes, edge_index.shape[1], coordinates)


def label_graph(
    num_nodes: int,
    edges: Any,
    features: Any,
    positions: Any,
    undirected: bool = True,
    num_features: int | None = None,
) -> Graph:
    """A graph that wants one label: features [N, F], dense or sparse, and positions [N, 2]."""
    num_nodes = _node_count(num_nodes)
    arrays = {
        "features": _dense_features(features, num_nodes, num_features),
        "positions": _positions(positions, num_nodes, (2,)),
        "edge_index": _edge_index(edges, num_nodes, undirected),
    }
    return Graph(GRAPH_LABEL, arrays, num_nodes, arrays["edge_index"].shape[1])


def image_graph(image: Any, how: str) -> Graph:
    """An image, uint8 [H, W] or [H, W, 3], as the graph its model was trained on.

    "superpixels" or "grid". Digits are white on black there: an image with a bright rim is
    inverted, and any other size is scaled to 28 x 28.
    """
    grey = _grey(image)
    features: np.ndarray
    if how == SUPERPIXELS:
        from model.superpixels import superpixel_graph  # scikit-image is slow to import

        features, positions, edge_index = superpixel_graph(grey)
    elif how == GRID:
        features = (grey / np.float32(255)).astype(np.float32).reshape(-1, 1)
        positions, edge_index = grid(IMAGE_SIZE, IMAGE_SIZE)
    else:
        raise ValueError(f"how must be {SUPERPIXELS!r} or {GRID!r}, got {how!r}")
    arrays: dict[str, np.ndarray] = {
        "features": features,
        "positions": positions,
        "edge_index": edge_index,
    }
    return Graph(GRAPH_LABEL, arrays, len(features), edge_index.shape[1])


def grid(height: int, width: int, reach: int = GRID_REACH) -> tuple[np.ndarray, np.ndarray]:
    """Pixel positions [N, 2] (x, y) and the edges [2, E] among all within `reach` both ways."""
    y, x = (a.ravel() for a in np.indices((height, width)))
    source, target = [], []
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            inside = (x + dx >= 0) & (x + dx < width) & (y + dy >= 0) & (y + dy < height)
            if dx or dy:
                target.append(np.nonzero(inside)[0])
                source.append(target[-1] + dy * width + dx)
    edge_index = np.stack([np.concatenate(source), np.concatenate(target)])
    order = np.lexsort(edge_index)  # by target, then source, as everywhere
    return np.stack([x, y], 1).astype(np.float32), edge_index[:, order].astype(np.int64)


def _grey(image: Any) -> np.ndarray:
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise InvalidGraph(f"must hold 8-bit values, got {array.dtype.name}", "image")
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)) or array.size == 0:
        raise InvalidGraph(f"must be [H, W] or [H, W, 3], got {list(array.shape)}", "image")
    picture = Image.fromarray(array).convert("L")
    if picture.size != (IMAGE_SIZE, IMAGE_SIZE):
        picture = picture.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BOX)
    grey = np.asarray(picture)
    rim = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    return 255 - grey if np.median(rim) > 127 else grey


def _node_count(num_nodes: Any) -> int:
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int | np.integer):
        raise InvalidGraph(f"must be an integer, got {num_nodes!r}", "graph.num_nodes")
    if not 1 <= num_nodes <= MAX_GRAPH_NODES:
        raise InvalidGraph(
            f"must lie in [1, {MAX_GRAPH_NODES}], got {num_nodes}", "graph.num_nodes"
        )
    return int(num_nodes)


def _edge_index(edges: Any, num_nodes: int, undirected: bool) -> np.ndarray:
    """Each edge once, sorted by target, then source; loops dropped (the root weight is theirs)."""
    pairs = check_indices(edges, 2, num_nodes, "graph.edges")
    source, target = pairs[:, 0], pairs[:, 1]
    key = (target << _HIGH) | source  # shifts, for divisions would cost more than the sort
    if undirected:
        key = np.concatenate([key, (source << _HIGH) | target])
    key.sort()  # and not np.unique, which costs a small graph more than all the rest
    target = key >> _HIGH
    source = key & ((1 << _HIGH) - 1)
    kept = source != target
    kept[1:] &= key[1:] != key[:-1]
    edge_index = np.empty((2, np.count_nonzero(kept)), np.int64)  # np.stack would take longer
    source.compress(kept, out=edge_index[0])
    target.compress(kept, out=edge_index[1])
    return edge_index


def _dense_features(features: Any, num_nodes: int, num_features: int | None) -> np.ndarray:
    if isinstance(features, SparseFeatures):
        features = _dense(features, num_nodes, num_features)
    array = _rows(features, num_nodes, "graph.features")
    if num_features is not None and array.shape[1] != num_features:
        raise InvalidGraph(
            f"must have {num_features} values per node, got {array.shape[1]}", "graph.features"
        )
    return check_finite(array, "graph.features")


def _positions(positions: Any, num_nodes: int, widths: tuple[int, ...]) -> np.ndarray:
    array = _rows(positions, num_nodes, "graph.positions")
    if array.shape[1] not in widths:
        wanted = " or ".join(str(width) for width in widths)
        raise InvalidGraph(
            f"must have {wanted} coordinates per node, got {array.shape[1]}", "graph.positions"
        )
    return check_finite(array, "graph.positions")


def _pseudo(pseudo: Any, num_edges: int) -> np.ndarray:
    array = _rows(pseudo, num_edges, "graph.pseudo", "edge")
    outside = ~((array >= 0) & (array <= 1))
    if outside.any():
        e, d = (int(i[0]) for i in np.nonzero(outside))
        raise InvalidGraph(f"must lie in [0, 1], got {array[e, d]:g}", f"graph.pseudo[{e}][{d}]")
    return array.astype(np.float32)


def _of_edges(
    pseudo: np.ndarray, edges: np.ndarray, edge_index: np.ndarray, num_nodes: int, undirected: bool
) -> np.ndarray:
    """The rows of the edges that are kept, in their order."""
    if undirected:
        raise InvalidGraph(
            "must be false where pseudo is used: it says nothing of an edge's reverse",
            "graph.undirected",
        )
    key, first, count = np.unique(
        edges[:, 1].astype(np.int64) * num_nodes + edges[:, 0],
        return_index=True, return_counts=True,
    )  # fmt: skip
    if (count > 1).any():
        twice = edges[first[count > 1][0]].tolist()
        raise InvalidGraph(f"must name each edge once where pseudo is used, got {twice} again",
                           "graph.edges")  # fmt: skip
    kept = np.searchsorted(key, edge_index[1] * num_nodes + edge_index[0])
    rows: np.ndarray = pseudo[first[kept]]
    return rows


def _check_coordinates(arrays: dict[str, np.ndarray], wanted: Coordinates) -> None:
    path = f"graph.{wanted.name}"
    if wanted.name not in arrays:
        raise InvalidGraph(f"is missing: this network takes {wanted.name}", path)
    size = arrays[wanted.name].shape[1]
    if size != wanted.size:
        raise InvalidGraph(f"must have {wanted.size} numbers in each row, got {size}", path)


def _rows(value: Any, count: int, path: str, of: str = "node") -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidGraph("must be rows of equal length", path) from None
    if array.dtype.kind not in "iuf" or array.ndim != 2:
        raise InvalidGraph(f"must be numbers, one row per {of}", path)
    if array.shape[0] != count:
        raise InvalidGraph(f"must have one row per {of} ({count}), got {array.shape[0]}", path)
    return array


def _dense(features: SparseFeatures, num_nodes: int, num_features: int | None) -> np.ndarray:
    ptr, index, value = _check_sparse(features, num_nodes, num_features)
    if num_nodes * features.size > MAX_FEATURES:
        most = MAX_FEATURES // num_nodes
        raise InvalidGraph(f"must be at most {most} here, got {features.size}",
                           "graph.features.size")  # fmt: skip
    dense = np.zeros((num_nodes, features.size), np.float32)
    dense[np.repeat(np.arange(num_nodes), np.diff(ptr)), index] = value
    return dense


def _sparse(dense: np.ndarray) -> SparseFeatures:
    row, column = np.nonzero(dense)
    ptr = np.searchsorted(row, np.arange(len(dense) + 1))
    return SparseFeatures(dense.shape[1], ptr, column, dense[row, column])


def _check_sparse(
    features: SparseFeatures, num_nodes: int, num_features: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    path = "graph.features"
    if num_features is not None and features.size != num_features:
        raise InvalidGraph(f"must be {num_features}, got {features.size}", f"{path}.size")
    if not 1 <= features.size <= MAX_FEATURES:
        raise InvalidGraph(f"must lie in [1, {MAX_FEATURES}], got {features.size}", f"{path}.size")
    ptr = np.asarray(features.ptr)
    if len(ptr) != num_nodes + 1:
        raise InvalidGraph(
            f"must have one row per node ({num_nodes}), got {len(ptr) - 1}", f"{path}.indices"
        )
    index = _check_flat(np.asarray(features.index), ptr, features.size, f"{path}.indices")
    if ptr[0] != 0 or ptr[-1] != len(index) or (np.diff(ptr) < 0).any():
        raise InvalidGraph("must have row offsets that rise from 0 to the end", f"{path}.indices")
    if features.value is None:
        value = np.ones(len(index), np.float32)
    else:
        value = np.asarray(features.value)
        if value.shape != index.shape or (value.size and value.dtype.kind not in "iuf"):
            raise InvalidGraph("must be one number per index", f"{path}.values")
        value = check_finite(value.astype(np.float64), f"{path}.values")
    return ptr.astype(np.int64), index, value


def _check_flat(index: np.ndarray, ptr: np.ndarray, size: int, path: str) -> np.ndarray:
    if index.size == 0:
        return np.zeros(0, np.int64)
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise InvalidGraph(f"must be integers, got {index.dtype.name}", path)
    bad = np.nonzero((index < 0) | (index >= size))[0]
    if bad.size:
        row = int(np.searchsorted(ptr, bad[0], side="right")) - 1
        raise InvalidGraph(f"must lie in [0, {size}), got {int(index[bad[0]])}", f"{path}[{row}]")
    return index.astype(np.int64)


def _flatten(rows: Sequence[Sequence[Any]], path: str) -> np.ndarray:
    try:
        flat = np.asarray([entry for row in rows for entry in row])
    except (ValueError, TypeError):
        raise InvalidGraph("must be one list of numbers per node", path) from None
    if flat.size and (flat.ndim != 1 or flat.dtype.kind not in "iuf"):
        raise InvalidGraph("must be one list of numbers per node", path)
    return flat
