"""Distances along the surface of a mesh."""

from functools import cached_property

import numpy as np
import potpourri3d
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from model.datasets.files import InvalidData


class Surface:
    """A connected manifold mesh on which distances are measured; straightest paths, exactly."""

    def __init__(self, vertices: NDArray[np.float32], faces: NDArray[np.int64]) -> None:
        _check_surface(faces, len(vertices))
        self._vertices = vertices.astype(np.float64)
        self._faces = faces
        self._paths = potpourri3d.EdgeFlipGeodesicSolver(self._vertices, faces)
        self._known: dict[tuple[int, int], float] = {}

    def distance(self, a: int, b: int) -> float:
        """The length of the geodesic between two vertices."""
        if a == b:
            return 0.0
        pair = min(a, b), max(a, b)
        if pair not in self._known:
            path = self._paths.find_geodesic_path(*pair)
            self._known[pair] = float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())
        return self._known[pair]

    @cached_property
    def diameter(self) -> float:
        """The distance of the two vertices farthest apart, found by walking to and fro."""
        heat = potpourri3d.MeshHeatMethodDistanceSolver(self._vertices, self._faces)
        near, far = 0, int(heat.compute_distance(0).argmax())
        for _ in range(3):
            near, far = far, int(heat.compute_distance(far).argmax())
        return self.distance(near, far)

    def errors(self, found: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far from vertex n the vertex found for it lies, as a share of the diameter. [V]"""
        pairs = [self.distance(n, int(f)) for n, f in enumerate(found)]
        return np.array(pairs) / self.diameter


def _check_surface(faces: NDArray[np.int64], num_vertices: int) -> None:
    """The solvers fail in ways of their own, or not at all, on what is no surface."""
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), 1)
    pairs, count = np.unique(edges, axis=0, return_counts=True)
    if (count > 2).any():
        a, b = pairs[count.argmax()].tolist()
        raise InvalidData(
            f"distances need a manifold reference: edge ({a}, {b}) has {count.max()} faces, not 2"
        )
    joined = coo_array((np.ones(len(pairs)), pairs.T), (num_vertices, num_vertices))
    parts = connected_components(joined, directed=False)[0]
    if parts > 1:
        raise InvalidData(f"distances need a reference in one piece, got {parts} pieces")


def princeton_curve(errors: NDArray[np.float64], radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """The percentage of vertices found within each radius."""
    ordered = np.sort(errors.ravel())
    return 100 * np.searchsorted(ordered, radii, side="right") / max(1, len(ordered))
