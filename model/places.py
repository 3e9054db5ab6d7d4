"""Places on triangle meshes: from vertex-to-vertex answers to points on surfaces, both ways."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CANDIDATES = 4  # of a vertex, from which its place between them is taken
REACH = 0.05  # in units of the square root of the area: what lies farther off is not there
_TEAR = 3.0  # a face whose image is this much longer, and REACH more, was torn apart by mistakes
_AROUND = 24  # faces of one vertex that are looked at; a mesh of good triangles has about 6
_PAIRS = 1 << 17  # points times faces measured at once, to bound memory

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """Points on a mesh: a face and how much of each corner; face -1 is nowhere."""

    face: Ints  # [N]
    barycentric: Floats  # [N, 3]


@dataclass(frozen=True)
class Found:
    """Where on a posted mesh each wanted vertex of the reference lies; -1 and 0 if nowhere."""

    places: Places
    vertex: Ints  # [N] the nearest one
    confidence: Floats  # [N]


class Shape:
    """A triangle mesh that can be asked for the nearest of some faces."""

    def __init__(self, vertices: NDArray[Any], faces: NDArray[Any]) -> None:
        self.vertices: Floats = np.asarray(vertices, np.float64)
        self.faces: Ints = np.asarray(faces, np.int64)
        self.around: Ints = _faces_around(self.faces, len(self.vertices))
        corner = self.vertices[self.faces]
        first, ab, ac = corner[:, 0], corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
        squares = np.stack([_dot(ab, ab), _dot(ab, ac), _dot(ac, ac)], 1)
        # everything about a face in one row, so that a pair costs one look
        self._face: Floats = np.concatenate([first, ab, ac, squares], 1)  # [F, 12]

    @property
    def scale(self) -> float:
        """The square root of the area, by which lengths are told."""
        aa, ab, bb = self._face[:, 9:].T
        doubled = np.sqrt(np.maximum(aa * bb - ab**2, 0)).sum()
        return max(float(np.sqrt(doubled / 2)), 1e-30)

    @property
    def longest(self) -> Floats:
        """The longest edge of each face."""
        aa, ab, bb = self._face[:, 9:].T
        return np.sqrt(np.maximum(np.maximum(aa, bb), np.maximum(aa - 2 * ab + bb, 0)))

    def at(self, places: Places) -> Floats:
        """The points [N, 3] themselves; what is nowhere has no number."""
        corners = self.vertices[self.faces[places.face]]
        points = (corners * places.barycentric[:, :, None]).sum(1)
        points[places.face < 0] = np.nan
        return points

    def nearest(self, points: Floats, faces: Ints) -> tuple[Places, Floats]:
        """The place nearest to each point on its own few faces [N, M] (-1: none), and how near."""
        found = np.full(len(points), -1, np.int64)
        barycentric = np.zeros((len(points), 3))
        best = np.full(len(points), np.inf)
        step = max(1, _PAIRS // max(1, faces.shape[1]))
        for start in range(0, len(points), step):
            part = slice(start, start + step)
            row, column = np.nonzero(faces[part] >= 0)
            if not len(row):
                continue
            face = faces[part][row, column]
            squared, v, w = _project(points[part][row], self._face[face])
            starts = np.nonzero(np.diff(row, prepend=-1))[0]  # rows are in order
            least = np.minimum.reduceat(squared, starts)
            group = np.cumsum(np.diff(row, prepend=row[0]) > 0)
            pick = np.nonzero(squared == least[group])[0]
            pick = pick[np.diff(row[pick], prepend=-1) > 0]  # the first of several as near
            at = start + row[pick]
            found[at], best[at] = face[pick], squared[pick]
            v, w = v[pick], w[pick]
            barycentric[at] = np.stack([np.maximum(1 - v - w, 0), v, w], 1)
        return Places(found, barycentric), np.sqrt(best)


def _project(points: Floats, face: Floats) -> tuple[Floats, Floats, Floats]:
    """Squared distance from points to faces, pair by pair, and the weights of B and C there.

    With p - A, AB and AC known by their products alone, the squared distance to A + v AB + w AC
    is a polynomial in v and w: its least value inside, or on the edges AB, AC and BC.
    """
    ap = points - face[:, :3]
    d, e = _dot(ap, face[:, 3:6]), _dot(ap, face[:, 6:9])
    aa, ab, bb = face[:, 9], face[:, 10], face[:, 11]
    tiny = 1e-300
    flat = aa * bb - ab * ab
    v, w = (bb * d - ab * e) / np.maximum(flat, tiny), (aa * e - ab * d) / np.maximum(flat, tiny)
    inside = (v >= 0) & (w >= 0) & (v + w <= 1) & (flat > 1e-12 * aa * bb)
    v, w = np.where(inside, v, 0), np.where(inside, w, 0)
    least = v * v * aa + 2 * v * w * ab + w * w * bb - 2 * (v * d + w * e)
    least[~inside] = np.inf
    t = np.clip(d / np.maximum(aa, tiny), 0, 1)
    _keep(least, v, w, t * (t * aa - 2 * d), t, 0.0)
    t = np.clip(e / np.maximum(bb, tiny), 0, 1)
    _keep(least, v, w, t * (t * bb - 2 * e), 0.0, t)
    cc = aa - 2 * ab + bb
    f = aa - ab - d + e
    t = np.clip(f / np.maximum(cc, tiny), 0, 1)
    _keep(least, v, w, aa - 2 * d + t * (t * cc - 2 * f), 1 - t, t)
    return np.maximum(_dot(ap, ap) + least, 0), v, w


def _keep(least: Floats, v: Floats, w: Floats, value: Floats, vs: Any, ws: Any) -> None:
    better = value < least
    np.copyto(least, value, where=better)
    np.copyto(v, vs, where=better)
    np.copyto(w, ws, where=better)


def place_between(reference: Shape, index: NDArray[Any], confidence: NDArray[Any]) -> Places:
    """Where on the reference each vertex lies, from its best candidates [V, K], best first.

    A candidate counts by how far it is ahead of the last one, and only near the best: two guesses
    on different limbs must not meet in the air between them.
    """
    corners = reference.vertices[index]  # [V, K, 3]
    weight = np.asarray(confidence, np.float64) - confidence[:, -1:]
    away = np.linalg.norm(corners - corners[:, :1], axis=2)
    weight = np.where(away <= REACH * reference.scale, np.maximum(weight, 0), 0)
    weight[weight.sum(1) <= 0, 0] = 1
    point = (corners * weight[:, :, None]).sum(1) / weight.sum(1)[:, None]
    toward = np.linalg.norm(corners - point[:, None], axis=2).argmin(1)
    vertex = index[np.arange(len(index)), toward]
    return reference.nearest(point, reference.around[vertex])[0]


def find_on(
    posted: Shape, image: Floats, confidence: NDArray[Any], reference: Shape, wanted: Ints
) -> Found:
    """Where on the posted mesh the wanted reference vertices lie.

    `image` [V, 3] says where on the reference each posted vertex is; the posted triangles, drawn
    there, cover it, and each wanted vertex is looked for on those around the images nearest to it.
    """
    from scipy.spatial import cKDTree  # slow to import, and most answers do without

    whole: NDArray[np.bool_] = np.asarray(np.isfinite(image).all(1))
    if not whole.any():
        nothing = np.full(len(wanted), -1, np.int64)
        return Found(Places(nothing, np.zeros((len(wanted), 3))), nothing, np.zeros(len(wanted)))
    drawn = Shape(np.where(whole[:, None], image, 0.0), posted.faces)
    stretched = drawn.longest / reference.scale
    torn = stretched > _TEAR * posted.longest / posted.scale + REACH
    torn |= ~np.all(whole[posted.faces], axis=1)
    used = np.nonzero(whole & (posted.around >= 0).any(1))[0]
    if not len(used):
        used = np.nonzero(whole)[0]
    point = reference.vertices[wanted]
    # files may repeat a vertex for each of its faces; then more of them share a place
    few = min(4 if 3 * len(posted.faces) >= 4 * len(used) else 12, len(used))
    near = used[cKDTree(image[used]).query(point, k=few)[1].reshape(len(wanted), few)]
    faces = posted.around[near].reshape(len(wanted), -1)
    places, distance = drawn.nearest(point, np.where((faces < 0) | torn[faces], -1, faces))
    lost = places.face < 0  # torn all around: the nearest vertex itself
    distance[lost] = np.linalg.norm(image[near[lost, 0]] - point[lost], axis=1)
    places.face[lost] = posted.around[near[lost, 0], 0]
    places.barycentric[lost] = posted.faces[places.face[lost]] == near[lost, :1]
    corners = posted.faces[places.face]
    vertex = corners[np.arange(len(wanted)), places.barycentric.argmax(1)]
    sure = (np.asarray(confidence, np.float64)[corners] * places.barycentric).sum(1)
    sure *= np.maximum(1 - distance / (REACH * reference.scale), 0)
    away = (sure <= 0) | (places.face < 0)
    places.face[away], vertex[away], sure[away] = -1, -1, 0
    places.barycentric[away] = 0
    return Found(places, vertex, sure)


def _faces_around(faces: Ints, vertices: int) -> Ints:
    """The faces of every vertex [V, D], -1 where it has fewer than the most, or than `_AROUND`."""
    corner = faces.ravel()
    order = np.argsort(corner, kind="stable")
    count = np.bincount(corner, minlength=vertices)
    rank = np.arange(len(corner)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((vertices, min(int(count.max(initial=1)), _AROUND)), -1, np.int64)
    kept = rank < table.shape[1]
    table[corner[order][kept], rank[kept]] = order[kept] // 3
    return table


def _dot(a: Floats, b: Floats) -> Floats:
    dot: Floats = np.einsum("ij,ij->i", a, b)
    return dot
