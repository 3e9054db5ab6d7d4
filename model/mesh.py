"""Triangle meshes: what counts as one, and the edges it has."""

import numpy as np
import torch
from torch import Tensor

from model.errors import InvalidGraph

LARGEST_COORDINATE = 1e30  # differences of larger float32 numbers may overflow


def check_vertices(vertices: object, path: str = "mesh.vertices") -> np.ndarray:
    """Vertices as float32 [V, 3], or InvalidGraph naming the first bad one."""
    array = _numbers(vertices, path)
    if array.ndim != 2 or array.shape[1] != 3:
        raise InvalidGraph(f"must be [V, 3], got shape {list(array.shape)}", path)
    if array.shape[0] == 0:
        raise InvalidGraph("must hold at least one vertex, got none", path)
    return check_finite(array, path)


def check_faces(faces: object, num_vertices: int, path: str = "mesh.faces") -> np.ndarray:
    """Faces as int64 [F, 3] whose indices exist, or InvalidGraph naming the first bad one."""
    array = check_indices(faces, 3, num_vertices, path)
    if array.shape[0] == 0:
        raise InvalidGraph("must hold at least one face, got none", path)
    return array


def check_finite(array: np.ndarray, path: str) -> np.ndarray:
    size = np.abs(array)
    # reduce itself: the methods around it cost a small graph as much again
    if not np.maximum.reduce(size, None, initial=0) <= LARGEST_COORDINATE:  # nor if not a number
        bad = ~(size <= LARGEST_COORDINATE)
        at = tuple(int(i[0]) for i in np.nonzero(bad))
        where = path + "".join(f"[{i}]" for i in at)
        raise InvalidGraph(f"must be a finite number up to 1e30, got {array[at]:g}", where)
    return np.ascontiguousarray(array, dtype=np.float32)


def check_indices(value: object, width: int, bound: int, path: str) -> np.ndarray:
    """Integers [*, width] in [0, bound); an empty list is allowed."""
    array = _numbers(value, path)
    if array.size == 0 and array.ndim <= 2:
        return np.zeros((0, width), np.int64)
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidGraph(f"must be [*, {width}], got shape {list(array.shape)}", path)
    if array.dtype.kind == "f":
        whole = array == np.floor(array)
        if not whole.all():
            row = int(np.nonzero(~whole.all(1))[0][0])
            raise InvalidGraph(
                f"must be whole numbers, got {array[row].tolist()}", f"{path}[{row}]"
            )
    if np.minimum.reduce(array, None) < 0 or np.maximum.reduce(array, None) >= bound:
        inside = (array >= 0) & (array < bound)
        row = int(np.nonzero(~inside.all(1))[0][0])
        raise InvalidGraph(f"must lie in [0, {bound}), got {array[row].tolist()}", f"{path}[{row}]")
    return np.ascontiguousarray(array, dtype=np.int64)


def _numbers(value: object, path: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidGraph("must be a rectangular array of numbers, rows differ", path) from None
    if array.dtype.kind == "O":
        raise InvalidGraph("must be a rectangular array of numbers", path)
    if array.dtype.kind not in "iuf":
        raise InvalidGraph(f"must be numbers, got {array.dtype.name}", path)
    return array


def mesh_edges(faces: Tensor, num_nodes: int) -> Tensor:
    """Every side of every face once in each direction, sorted by target, then source. [2, E]"""
    a, b, c = faces[:, 0], faces[:, 1], faces[:, 2]
    source = torch.cat([a, b, b, c, c, a])
    target = torch.cat([b, a, c, b, a, c])
    # a face that names a vertex twice would make a loop; a node's own weight is the root weight
    key = (target * num_nodes + source)[source != target]
    key = torch.unique(key)
    target = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
    return torch.stack([key - target * num_nodes, target])
