"""The reference surface: distances on it, landmarks, and how landmarks see each of its vertices."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.datasets.bodies import TEMPLATE

FILE = "reference_distances.npy"
LANDMARK_FILE = "landmark_distances.npy"
LANDMARKS = 512
SEEN_BY = 20  # landmarks that a vertex's soft label names
WIDTH = 0.045  # standard deviation of a soft label, in units of the square root of the area
REACH = 0.1  # candidates lie this close to the landmark that scored best


@dataclass(frozen=True)
class Reference:
    """Unit area; `distance` [R, R] float16 along the surface."""

    vertices: NDArray[np.float32]
    faces: NDArray[np.int64]
    distance: NDArray[np.float16]


class Tables:
    """Soft labels of every reference vertex, and which vertices a landmark may stand for."""

    def __init__(self, landmark: Tensor, near: Tensor, landmarks: int = LANDMARKS) -> None:
        """The nearest landmarks of each reference vertex [R, SEEN_BY], and how near they are."""
        self.landmark, self.near = landmark, near
        weight = torch.exp(-(near**2) / (2 * WIDTH**2))
        self.probability: Tensor = weight / weight.sum(1, keepdim=True)
        vertex = torch.arange(len(near))[:, None].expand_as(near)[near <= REACH]
        seen = landmark[near <= REACH]
        order = torch.argsort(seen, stable=True)
        self.candidate: Tensor = vertex[order]
        count = torch.bincount(seen, minlength=landmarks)
        self.candidate_ptr: Tensor = torch.cat([count.new_zeros(1), count.cumsum(0)])


def load_tables(data: Path) -> Tables:
    """Landmarks as far apart as can be, chosen once and kept in `data`."""
    path = data / LANDMARK_FILE
    if not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        _write(path, _farthest(*template()))
    near, landmark = torch.from_numpy(np.load(path)).topk(SEEN_BY, dim=1, largest=False)
    return Tables(landmark, near)


def template() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vertices of unit area, centred by area, and faces."""
    with np.load(TEMPLATE) as file:
        vertices, faces = file["vertices"].astype(np.float64), file["faces"].astype(np.int64)
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(normals, axis=1) / 2
    centre = (corners.mean(1) * area[:, None]).sum(0) / area.sum()
    return (vertices - centre) / np.sqrt(area.sum()), faces


def load_reference(data: Path) -> Reference:
    """The reference with its distances, measured once (some minutes) and kept in `data`."""
    vertices, faces = template()
    path = data / FILE
    if not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        measure = _solver(vertices, faces)
        distance = np.stack([measure(v) for v in range(len(vertices))])
        _write(path, np.minimum(distance, distance.T).astype(np.float16))
    return Reference(vertices.astype(np.float32), faces, np.load(path))


def _write(path: Path, array: NDArray[Any]) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, array)
    partial.replace(path)


def _solver(
    vertices: NDArray[np.float64], faces: NDArray[np.int64]
) -> Callable[[int], NDArray[np.float32]]:
    """Distances from one vertex to all, by fast marching."""
    import potpourri3d

    solver: Any = potpourri3d.MeshFastMarchingDistanceSolver(vertices, faces)
    return lambda v: np.asarray(solver.compute_distance([[(v, [])]]), np.float32)


def _farthest(vertices: NDArray[np.float64], faces: NDArray[np.int64]) -> NDArray[np.float32]:
    """Distances [R, LANDMARKS] to vertices each as far as can be from those before it."""
    measure = _solver(vertices, faces)
    columns = [measure(0)]
    nearest = columns[0]
    while len(columns) < LANDMARKS:
        columns.append(measure(int(nearest.argmax())))
        nearest = np.minimum(nearest, columns[-1])
    return np.stack(columns, 1)


def mirror_map(vertices: NDArray[np.float64]) -> NDArray[np.int64]:
    """For every reference vertex the one on the other side of the body."""
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(vertices).query(vertices * [-1, 1, 1])[1], np.int64)
