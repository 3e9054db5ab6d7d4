"""Geodesic cells and landmark matching in plain Python: the judge, and what runs uncompiled.

A mesh is welded, brought to unit area, divided until no edge is long, and its pieces are tied
together; farthest points by distance along its edges then own the cells of each level.
"""

import heapq

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROUNDS = 8  # an edge is halved at most so often
MOST_POINTS = 30_000  # beyond this, nothing is divided any more
MOST_NEIGHBOURS = 32  # of a cell in the 2-ring
MOST_CELLS = 12  # whose features one vertex hears
EQUAL = 1e-6  # distances that differ by less differ by rounding only

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Surface:
    """A mesh ready for distances on it (see ops/csrc/cpu/surface.h)."""

    def __init__(self, vertices: NDArray[np.float32], faces: Ints, longest: float) -> None:
        xyz = vertices + np.float32(0)  # -0 and 0 are one place
        _, first, same = np.unique(xyz, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)  # points in the order in which they first appear
        self.welded: Ints = np.argsort(order)[same.reshape(-1)]
        self.point: Floats = xyz[first[order]].astype(np.float64)
        faces = self.welded[faces]
        a, b, c = faces.T
        faces = faces[(a != b) & (b != c) & (c != a)]
        self._normalise(faces)
        faces = self._divide(faces, longest)
        self._measure(faces)
        ends = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), 1)
        edges = self._bridge([(int(a), int(b)) for a, b in np.unique(ends, axis=0)])
        self.near: list[list[tuple[int, float]]] = [[] for _ in self.point]
        for i, j in edges:
            length = float(np.sqrt(((self.point[i] - self.point[j]) ** 2).sum()))
            self.near[i].append((j, length))
            self.near[j].append((i, length))

    def _doubled_area(self, faces: Ints) -> Floats:
        a, b, c = (self.point[faces[:, i]] for i in range(3))
        return np.cross(b - a, c - a)

    def _normalise(self, faces: Ints) -> None:
        area = np.linalg.norm(self._doubled_area(faces), axis=1) / 2
        total = area.sum()
        if total > 0:
            centre = (self.point[faces].sum(1) * (area / 3)[:, None]).sum(0) * (1 / total)
            scale = np.sqrt(total)
        else:
            centre = self.point.mean(0)
            scale = np.linalg.norm(self.point - centre, axis=1).max() or 1.0
        self.point = (self.point - centre) * (1 / scale)

    def _divide(self, faces: Ints, longest: float) -> Ints:
        for _ in range(ROUNDS):
            points = list(self.point)
            if len(points) >= MOST_POINTS:
                break
            middles: dict[tuple[int, int], int] = {}
            faces = np.array(
                [part for f in faces for part in _split(f, points, middles, longest)], np.int64
            ).reshape(-1, 3)
            self.point = np.array(points)
            if not middles:
                break
        return faces

    def _measure(self, faces: Ints) -> None:
        doubled = self._doubled_area(faces)
        self.area = np.zeros(len(self.point))
        self.normal = np.zeros_like(self.point)
        np.add.at(self.area, faces, (np.linalg.norm(doubled, axis=1) / 6)[:, None])
        np.add.at(self.normal, faces, doubled[:, None])
        volume = (self.point[faces[:, 0]] * doubled).sum()
        size = np.linalg.norm(self.normal, axis=1, keepdims=True)
        self.normal = np.divide(self.normal, size, out=self.normal * 0, where=size > 0)
        if volume < 0:  # a mesh turned inside out is turned back
            self.normal = -self.normal

    def _bridge(self, edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        piece = np.arange(len(self.point))
        for a, b in edges:
            _join(piece, a, b)
        while len(np.unique(piece := _roots(piece))) > 1:
            roots, size = np.unique(piece, return_counts=True)
            found = []
            for root in roots[roots != roots[np.argmax(size)]]:
                inside, outside = np.nonzero(piece == root)[0], np.nonzero(piece != root)[0]
                best = (np.inf, -1, -1)
                for v in inside:
                    squared = ((self.point[outside] - self.point[v]) ** 2).sum(1)
                    at = int(np.argmin(squared))
                    best = min(best, (float(squared[at]), int(v), int(outside[at])))
                found.append(best)
            for _, a, b in found:
                if _join(piece, a, b):
                    edges.append((a, b))
        return edges


def _split(
    face: Ints, points: list[Floats], middles: dict[tuple[int, int], int], longest: float
) -> list[tuple[int, ...]]:
    """A face with its long sides halved; faces around a side halve it alike."""
    f = [int(v) for v in face]
    m = []
    for a, b in zip(f, [f[1], f[2], f[0]], strict=True):
        if ((points[a] - points[b]) ** 2).sum() <= longest * longest:
            m.append(-1)
            continue
        key = (min(a, b), max(a, b))
        if key not in middles:
            middles[key] = len(points)
            points.append((points[a] + points[b]) * 0.5)
        m.append(middles[key])
    count = sum(v >= 0 for v in m)
    if count == 0:
        return [tuple(f)]
    if count == 3:
        return [*((f[i], m[i], m[i - 1]) for i in range(3)), tuple(m)]
    i = next(i for i in range(3) if m[i] >= 0 and m[i - 1] < 0)
    a, b, c = f[i], f[(i + 1) % 3], f[(i + 2) % 3]
    ab, bc = m[i], m[(i + 1) % 3]
    if count == 1:
        return [(a, ab, c), (ab, b, c)]
    first = ((points[a] - points[bc]) ** 2).sum()
    second = ((points[ab] - points[c]) ** 2).sum()
    rest = [(a, ab, bc), (a, bc, c)] if first <= second else [(a, ab, c), (ab, bc, c)]
    return [(ab, b, bc), *rest]


def _find(piece: Ints, v: int) -> int:
    while piece[v] != v:
        v = int(piece[v])
    return v


def _roots(piece: Ints) -> Ints:
    return np.array([_find(piece, v) for v in range(len(piece))])


def _join(piece: Ints, a: int, b: int) -> bool:
    a, b = _find(piece, a), _find(piece, b)
    piece[max(a, b)] = min(a, b)
    return a != b


class Farthest:
    """Farthest points one after the other, and for every point the nearest of them."""

    def __init__(self, surface: Surface, start: int) -> None:
        self.near = surface.near
        self.distance = np.full(len(self.near), np.inf)
        self.owner = np.zeros(len(self.near), np.int64)
        self.seeds: list[int] = []
        self._add(start)

    def grow(self, count: int) -> "Farthest":
        while len(self.seeds) < count and (most := self.distance.max()) > EQUAL:
            self._add(int(np.argmax(self.distance >= most - EQUAL)))
        return self

    def _add(self, seed: int) -> None:
        distance, owner, cell = self.distance, self.owner, len(self.seeds)
        self.seeds.append(seed)
        distance[seed], owner[seed] = 0.0, cell
        queue = [(0.0, seed)]
        while queue:
            reached, v = heapq.heappop(queue)
            if reached > distance[v]:
                continue
            for u, length in self.near[v]:
                if reached + length < distance[u] - EQUAL:
                    distance[u], owner[u] = reached + length, cell
                    heapq.heappush(queue, (reached + length, u))


def _first_seed(surface: Surface, variant: int) -> int:
    """The point farthest from the middle; of another variant, a point far from those before it."""
    start, most = 0, -1.0
    for v in np.nonzero(surface.area > 0)[0]:
        far = float((surface.point[v] ** 2).sum())
        if far > most + EQUAL:
            start, most = int(v), far
    return Farthest(surface, start).grow(variant + 1).seeds[-1]


def _nearest(point: Floats, to: Floats, most: int, cells: set[int]) -> list[int]:
    """The nearest few of some cells, in ascending order."""
    ranked = sorted((float(((point[c] - to) ** 2).sum()), c) for c in cells)
    return sorted(c for _, c in ranked[:most])


class Level:
    """The cells of one level: means by area, and their neighbours."""

    def __init__(self, surface: Surface, farthest: Farthest) -> None:
        owner, C = farthest.owner, len(farthest.seeds)
        self.area = np.bincount(owner, surface.area, C)
        total = np.zeros((2, C, 3))
        np.add.at(total[0], owner, surface.point * surface.area[:, None])
        np.add.at(total[1], owner, surface.normal * surface.area[:, None])
        empty = self.area[:, None] <= 0
        point, self.normal = total / np.where(empty, 1, self.area[:, None])
        self.point = np.where(empty, surface.point[farthest.seeds], point)
        touching: list[set[int]] = [set() for _ in range(C)]
        for v, near in enumerate(surface.near):
            touching[owner[v]].update(int(owner[u]) for u, _ in near)
        self.near = [
            _nearest(self.point, self.point[c], MOST_NEIGHBOURS, touching[c] - {c})
            for c in range(C)
        ]
        self.wide = [
            _nearest(
                self.point,
                self.point[c],
                MOST_NEIGHBOURS,
                set(self.near[c]).union(*(self.near[a] for a in self.near[c])) - {c},
            )
            for c in range(C)
        ]
        self.parent = np.zeros(0, np.int64)


class _Mesh:
    def __init__(
        self, vertices: Tensor, faces: Tensor, sizes: list[int], variant: int, longest: float
    ) -> None:
        surface = Surface(vertices.numpy(), faces.numpy(), longest)
        farthest = Farthest(surface, _first_seed(surface, variant))
        levels, coarser = [], None
        for size in reversed(sizes):
            level = Level(surface, farthest.grow(size))
            if coarser is not None:
                level.parent = coarser[farthest.seeds]
            levels.append(level)
            coarser = farthest.owner.copy()
        self.levels = levels[::-1]
        finest, cells = self.levels[0], farthest.owner[surface.welded]
        self.point, self.normal = surface.point[surface.welded], surface.normal[surface.welded]
        self.heard = [
            _nearest(finest.point, self.point[v], MOST_CELLS, {*finest.near[cell], int(cell)})
            for v, cell in enumerate(cells)
        ]


def _pairs(lists: list[list[int]]) -> Ints:
    """[2, E]: the listed sources, and the place of the list each one is in."""
    target = np.repeat(np.arange(len(lists)), [len(sources) for sources in lists])
    source = np.array([s for sources in lists for s in sources], np.int64)
    return np.stack([source, target])


def _offsets(sizes: list[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()]


def hierarchy(
    vertices: Tensor, faces: Tensor, ptr: Tensor, sizes: list[int], variant: int, longest: float
) -> tuple[Tensor, ...]:
    """Cells of every mesh of a batch, level by level, finest first.

    Returns point and normal [V, 3]; cell [C, 7] (mean position and normal, area) of all levels,
    cell_ptr [L, B + 1] within each level, parent (into the next level), edge_index [2, E] (within
    the level) with edge_ptr [L + 1], and heard [2, H]: finest cells to vertices.
    """
    starts = ptr.tolist()
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != vertices.size(0):
        raise RuntimeError(f"ptr must run from 0 to {vertices.size(0)}")
    owner = torch.bucketize(faces, ptr[1:], right=True)
    meshes = [
        _Mesh(vertices[a:b], faces[owner[:, 0] == i] - a, list(sizes), variant, longest)
        for i, (a, b) in enumerate(zip(starts[:-1], starts[1:], strict=True))
    ]
    cell_ptr = [_offsets([len(m.levels[l].area) for m in meshes]) for l in range(len(sizes))]
    cells, parents, edges = [], [np.zeros(0, np.int64)], []
    for l in range(len(sizes)):
        wide = [np.zeros((2, 0), np.int64)]
        for i, mesh in enumerate(meshes):
            level = mesh.levels[l]
            cells.append(np.hstack([level.point, level.normal, level.area[:, None]]))
            wide.append(_pairs(level.wide) + cell_ptr[l][i])
            if l + 1 < len(sizes):
                parents.append(level.parent + cell_ptr[l + 1][i])
        edges.append(np.concatenate(wide, 1))
    shift = np.array([cell_ptr[0][:-1], starts[:-1]], np.int64)
    heard = [_pairs(mesh.heard) + shift[:, i, None] for i, mesh in enumerate(meshes)]
    return (
        torch.from_numpy(np.concatenate([m.point for m in meshes])).float(),
        torch.from_numpy(np.concatenate([m.normal for m in meshes])).float(),
        torch.from_numpy(np.concatenate(cells)).float(),
        torch.tensor(cell_ptr),
        torch.from_numpy(np.concatenate(parents)),
        torch.from_numpy(np.concatenate(edges, 1)),
        torch.tensor(_offsets([e.shape[1] for e in edges])),
        torch.from_numpy(np.concatenate(heard, 1)),
    )


def match(
    score: Tensor, candidate_ptr: Tensor, candidate: Tensor, landmark: Tensor, value: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k candidates r of each row's best landmark with the largest sum of score * value[r].

    score [N, M]; candidates of each landmark as compressed rows; landmark and value [R, S] hold
    the landmarks that candidate r is seen by. Of equal sums the lower candidate comes first.
    """
    index = torch.zeros(score.size(0), k, dtype=torch.long)
    best = torch.zeros(score.size(0), k, dtype=score.dtype)
    top = score.argmax(1) if score.numel() else torch.zeros(0, dtype=torch.long)
    for m in sorted(set(top.tolist())):
        rows = torch.nonzero(top == m)[:, 0]
        choice = candidate[candidate_ptr[m] : candidate_ptr[m + 1]].sort()[0]
        if choice.numel() < k:
            raise RuntimeError(f"every landmark needs at least k = {k} candidates, not so {m}")
        sums = (score[rows][:, landmark[choice]] * value[choice]).sum(2)
        ranked, at = torch.sort(sums, dim=1, descending=True, stable=True)
        best[rows], index[rows] = ranked[:, :k], choice[at[:, :k]]
    return index, best
