"""Other triangulations of the reference: every vertex knows its place on the reference surface."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from model.anymesh.reference import template

FILE = "topologies.npz"
PARTS = 4  # each side of a template face is cut into so many for the fine surface
TRAIN = (1000, 1500, 2000, 2600, 3000, 3400, 3800, 4200, 4600, 5000, 5400, 5800, 6200, 6600, 7000,
         7500, 8000, 8500, 9000, 9500, 10500, 12000, 14000, 16000)  # fmt: skip
TEST = (1000, 3000, 5000, 9000, 20000, 50000)


@dataclass(frozen=True)
class Topology:
    """Vertices as weighted corners of template faces (`corner`, `weight` [n, 3]), and faces."""

    corner: NDArray[np.int64]
    weight: NDArray[np.float32]
    faces: NDArray[np.int64]

    def place(self, body: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vertices on a body with the template's vertex order. [n, 3]"""
        return np.einsum("nc,ncd->nd", self.weight, body[self.corner])


def own_topology() -> Topology:
    """The template's own triangulation."""
    vertices, faces = template()
    corner = np.repeat(np.arange(len(vertices))[:, None], 3, 1)
    weight = np.tile(np.array([1, 0, 0], np.float32), (len(vertices), 1))
    return Topology(corner, weight, faces)


def fine_topology(parts: int = PARTS) -> Topology:
    """The template with every face cut into parts x parts."""
    vertices, faces = template()
    steps = [(i, j) for i in range(parts + 1) for j in range(parts + 1 - i)]
    place = {step: n for n, step in enumerate(steps)}
    share = np.array([(parts - i - j, i, j) for i, j in steps]) / parts
    inner = []
    for i, j in steps:
        if i + j < parts:
            inner.append((place[i, j], place[i + 1, j], place[i, j + 1]))
        if i + j < parts - 1:
            inner.append((place[i + 1, j], place[i + 1, j + 1], place[i, j + 1]))
    corner = np.repeat(faces, len(steps), 0)
    weight = np.tile(share, (len(faces), 1))
    # a point on a side of two faces is one point: name it by its corners in order
    order = np.argsort(np.where(weight > 0, corner, -1), 1)
    corner, weight = np.take_along_axis(corner, order, 1), np.take_along_axis(weight, order, 1)
    key = np.hstack([np.where(weight > 0, corner, -1), np.round(weight * parts).astype(np.int64)])
    _, first, same = np.unique(key, axis=0, return_index=True, return_inverse=True)
    start = np.arange(len(faces))[:, None, None] * len(steps)
    fine = same.reshape(-1)[(start + np.array(inner)[None]).reshape(-1, 3)]
    return Topology(corner[first], weight[first].astype(np.float32), fine)


def remesh(fine: Topology, count: int, rng: np.random.Generator) -> Topology:
    """Random cells on the fine surface, evened out once or twice; their dual is the mesh."""
    points = fine.place(template()[0].astype(np.float32)).astype(np.float64)
    ends = np.concatenate([fine.faces[:, [0, 1]], fine.faces[:, [1, 2]], fine.faces[:, [2, 0]]])
    ends = np.unique(np.sort(ends, 1), axis=0)
    length = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    graph = csr_matrix((length, ends.T), shape=(len(points),) * 2)
    graph = graph + graph.T
    # denser in some parts than in others
    wave = np.sin(points @ rng.normal(0, 6, (3, 4)) + rng.uniform(0, 6, 4)).sum(1)
    density = np.exp(rng.uniform(0, 0.5) * wave)
    seeds = rng.choice(len(points), count, replace=False, p=density / density.sum())
    for _ in range(int(rng.integers(1, 4))):
        owner = _owners(graph, seeds)
        size = np.bincount(owner, density, len(seeds))
        total = np.stack([np.bincount(owner, points[:, d] * density) for d in range(3)], 1)
        middle = total / size[:, None]
        off = ((points - middle[owner]) ** 2).sum(1)
        order = np.lexsort((off, owner))
        seeds = order[np.unique(owner[order], return_index=True)[1]]
    return _dual(fine, seeds, _owners(graph, seeds))


def _owners(graph: Any, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    _, _, source = dijkstra(graph, indices=seeds, min_only=True, return_predecessors=True)
    rank = np.zeros(graph.shape[0], np.int64)
    rank[seeds] = np.arange(len(seeds))
    return rank[source]


def _dual(fine: Topology, seeds: NDArray[np.int64], owner: NDArray[np.int64]) -> Topology:
    faces = owner[fine.faces]
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    _, first = np.unique(np.sort(faces, 1), axis=0, return_index=True)
    return _tidy(fine.corner[seeds], fine.weight[seeds], faces[np.sort(first)])


def decimate(fine: Topology, count: int) -> Topology:
    """Quadric decimation of the fine surface by another hand: for tests only."""
    simplify = importlib.import_module("fast_simplification").simplify
    points = fine.place(template()[0].astype(np.float32))
    # slightly rough, so that flat parts keep some vertices too
    rough = points + np.random.default_rng(count).normal(0, 2e-4, points.shape)
    reduction = 1 - 2 * count / len(fine.faces)
    out, faces = simplify(rough.astype(np.float32), fine.faces.astype(np.int32), reduction)
    at = cKDTree(points).query(out)[1]
    return _tidy(fine.corner[at], fine.weight[at], faces.astype(np.int64))


def subdivide(fine: Topology, coarse: Topology) -> Topology:
    """Every face cut into four at the middles of its sides, as modelling tools do it."""
    body = template()[0].astype(np.float32)
    sides = np.sort(coarse.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), 1)
    ends, middle = np.unique(sides, axis=0, return_inverse=True)
    at = cKDTree(fine.place(body)).query(coarse.place(body)[ends].mean(1))[1]
    a, b, c = coarse.faces.T
    ab, bc, ca = len(coarse.corner) + middle.reshape(-1, 3).T
    faces = np.stack([a, ab, ca, ab, b, bc, ca, bc, c, ab, bc, ca], 1).reshape(-1, 3)
    corner = np.concatenate([coarse.corner, fine.corner[at]])
    return _tidy(corner, np.concatenate([coarse.weight, fine.weight[at]]), faces)


def _tidy(corner: NDArray[Any], weight: NDArray[Any], faces: NDArray[np.int64]) -> Topology:
    """Only vertices that a face uses."""
    used, faces = np.unique(faces, return_inverse=True)
    return Topology(corner[used], weight[used], faces.reshape(-1, 3))


def make_topologies(data: Path, seed: int = 3) -> Path:
    """Remeshings to train on, decimations and a subdivision to test, as topologies.npz."""
    fine, rng = fine_topology(), np.random.default_rng(seed)
    made = {f"train{i}": remesh(fine, count, rng) for i, count in enumerate(TRAIN)}
    made[f"train{len(TRAIN)}"] = own_topology()
    made[f"train{len(TRAIN) + 1}"] = fine_topology(2)
    made |= {f"test{i}": decimate(fine, count) for i, count in enumerate(TEST)}
    made[f"test{len(TEST)}"] = subdivide(fine, made["test1"])
    arrays = {
        f"{name}_{field}": getattr(topology, field)
        for name, topology in made.items()
        for field in ("corner", "weight", "faces")
    }
    np.savez(data / FILE, allow_pickle=False, **arrays)
    return data / FILE


def load_topologies(data: Path, split: str) -> list[Topology]:
    """Those of "train" or "test"."""
    with np.load(data / FILE) as file:
        names = sorted(
            {n.split("_")[0] for n in file.files if n.startswith(split)}, key=lambda n: (len(n), n)
        )
        return [
            Topology(*(file[f"{name}_{field}"] for field in ("corner", "weight", "faces")))
            for name in names
        ]
