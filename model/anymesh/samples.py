"""Training samples: a person, a triangulation, some damage; cut into cells, with labels."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy.spatial import cKDTree
from torch import Tensor

from model.anymesh.cells import Cells, make_cells
from model.anymesh.people import load_people
from model.anymesh.reference import load_reference, mirror_map, template
from model.anymesh.topologies import Topology, load_topologies

VERTICES = 768  # labelled vertices kept of each mesh
SHARD = 100  # samples in a file
APART = 0.15  # along the surface, in units of the square root of its area: no neighbours


@dataclass(frozen=True)
class Sample:
    """The cells of one upright mesh and the labels of some vertices, as small as they get."""

    point: Tensor  # [n, 3]
    normal: Tensor
    corner: Tensor  # [n, 3] reference vertices around the place each vertex corresponds to,
    weight: Tensor  # [n, 3] and how much each counts
    cell: Tensor
    cell_ptr: Tensor
    parent: Tensor
    edge_index: Tensor
    edge_ptr: Tensor
    heard: Tensor


def upright(body: NDArray[np.float32], reference: NDArray[np.float64]) -> NDArray[np.float32]:
    """The body turned as near to the reference as a rotation brings it (Kabsch)."""
    centred = body - body.mean(0)
    u, _, vt = np.linalg.svd(centred.T @ (reference - reference.mean(0)))
    sign = np.sign(np.linalg.det(u @ vt))
    return np.asarray(centred @ (u * [1, 1, sign]) @ vt, np.float32)


class Maker:
    """Draws samples of the people and triangulations that are for training."""

    def __init__(self, data: Path) -> None:
        self.people = load_people(data)["train"]
        self.topologies = load_topologies(data, "train")
        reference = load_reference(data)
        self.distance = reference.distance
        self.reference = template()[0]
        self.mirror = mirror_map(self.reference)

    def draw(self, rng: np.random.Generator) -> Sample:
        body = self.people[rng.integers(len(self.people))].astype(np.float32)
        body = upright(body, self.reference)
        if rng.random() < 0.5:
            body = body[self.mirror] * np.array([-1, 1, 1], np.float32)
        topology = self.topologies[rng.integers(len(self.topologies))]
        vertices, faces = topology.place(body), topology.faces
        if rng.random() < 0.5:
            vertices = reshape(vertices, rng)
        if rng.random() < 0.3:
            vertices = swell(vertices, faces, rng)
        if rng.random() < 0.4:
            vertices = shake(vertices, rng)
        if rng.random() < 0.3:
            place = topology.corner[np.arange(len(vertices)), topology.weight.argmax(1)]
            faces = fuse(vertices, faces, place, self.distance, rng)
        if rng.random() < 0.35:
            faces = damage(vertices, faces, rng)
        cells = make_cells(
            torch.from_numpy(vertices),
            torch.from_numpy(faces),
            torch.tensor([0, len(vertices)]),
            int(rng.integers(8)),
        )
        return _thin(cells, topology, np.unique(faces), rng)


def reshape(vertices: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Stretched along some axes and bent in long waves: shapes that anny does not draw."""
    size = np.ptp(vertices, 0).max()
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    stretch = (axes * np.exp(rng.normal(0, 0.05, 3))) @ axes.T
    wave = np.sin(vertices / size @ rng.normal(0, 5, (3, 4)) + rng.uniform(0, 6, 4))
    return np.asarray(vertices @ stretch + wave @ rng.normal(0, 0.005 * size, (4, 3)), np.float32)


def swell(
    vertices: NDArray[np.float32], faces: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Up to four places swollen or sunken by some centimetres, as by hair, clothes or flesh."""
    size = np.ptp(vertices, 0).max()
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    normal = np.repeat(np.cross(b - a, c - a), 3, 0)
    corner, count = faces.reshape(-1), len(vertices)
    normal = np.stack([np.bincount(corner, normal[:, d], count) for d in range(3)], 1)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
    height = np.zeros(count)
    for _ in range(int(rng.integers(1, 5))):
        off = vertices - vertices[rng.integers(count)]
        reach = rng.uniform(0.03, 0.12) * size
        height += rng.uniform(-0.006, 0.02) * size * np.exp(-(off**2).sum(1) / (2 * reach**2))
    return np.asarray(vertices + normal * height[:, None], np.float32)


def shake(vertices: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Noise of up to 3 mm a metre on every vertex, and slow waves as of loose clothes."""
    size = np.ptp(vertices, 0).max()
    noise = rng.normal(0, rng.uniform(0, 0.0015) * size, vertices.shape)
    wave = np.sin(vertices / size @ rng.normal(0, 25, (3, 6)) + rng.uniform(0, 6, 6))
    return np.asarray(vertices + noise + wave @ rng.normal(0, 0.0012 * size, (6, 3)), np.float32)


def fuse(
    vertices: NDArray[np.float32],
    faces: NDArray[np.int64],
    place: NDArray[np.int64],
    distance: NDArray[np.float16],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Parts of the body that touch grown together, as scanners see them.

    `place` [n] is the reference vertex nearest to each vertex, `distance` [R, R] that of any two.
    """
    reach = rng.uniform(0.006, 0.018) * np.ptp(vertices, 0).max()
    pairs = cKDTree(vertices).query_pairs(reach, output_type="ndarray")
    apart = distance[place[pairs[:, 0]], place[pairs[:, 1]]] > APART
    pairs = pairs[apart & (rng.random(len(pairs)) < 0.7)]
    # a sliver between one vertex, its neighbour and the vertex that it touches
    neighbour = np.zeros(len(vertices), np.int64)
    neighbour[faces[:, 0]] = faces[:, 1]
    return np.concatenate([faces, np.column_stack([pairs, neighbour[pairs[:, 0]]])])


def damage(
    vertices: NDArray[np.float32], faces: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """A few holes, or everything beyond a plane cut away."""
    middle = vertices[faces].mean(1)
    size = np.ptp(vertices, 0).max()
    if rng.random() < 0.75:
        kept = np.ones(len(faces), bool)
        for _ in range(int(rng.integers(1, 4))):
            centre = middle[rng.integers(len(middle))]
            kept &= np.linalg.norm(middle - centre, axis=1) > rng.uniform(0.02, 0.08) * size
    else:
        direction = rng.normal(size=3)
        height = middle @ direction
        kept = height > np.quantile(height, rng.uniform(0, 0.15))
    return faces[kept]


def _thin(
    cells: Cells, topology: Topology, used: NDArray[np.int64], rng: np.random.Generator
) -> Sample:
    chosen = torch.from_numpy(rng.choice(used, min(VERTICES, len(used)), replace=False))
    place = torch.full((len(topology.corner),), -1)
    place[chosen] = torch.arange(len(chosen))
    heard = torch.stack([cells.heard[0], place[cells.heard[1]]])
    heard = heard[:, heard[1] >= 0]
    heard = heard[:, torch.argsort(heard[1], stable=True)]
    return Sample(
        cells.point[chosen],
        cells.normal[chosen],
        torch.from_numpy(topology.corner)[chosen].short(),
        torch.from_numpy(topology.weight)[chosen],
        cells.cell,
        cells.cell_ptr,
        cells.parent.short(),
        cells.edge_index.short(),
        cells.edge_ptr,
        heard.short(),
    )


def collate(samples: Sequence[Sample]) -> tuple[Cells, Tensor]:
    """Several samples as one batch of cells, and its ptr [B + 1]."""
    L = samples[0].cell_ptr.size(0)
    ptr = torch.tensor([0, *(len(s.point) for s in samples)]).cumsum(0)
    sizes = torch.stack([s.cell_ptr[:, 1] for s in samples], 1)  # [L, B]
    cell_ptr = torch.cat([torch.zeros(L, 1, dtype=torch.long), sizes.cumsum(1)], 1)
    rows: list[Tensor] = []
    parents: list[Tensor] = []
    edges: list[Tensor] = []
    ends = [0]
    for level in range(L):
        for b, s in enumerate(samples):
            before = int(s.cell_ptr[:level, 1].sum())
            count = int(s.cell_ptr[level, 1])
            rows.append(s.cell[before : before + count])
            if level + 1 < L:
                parents.append(s.parent[before : before + count].long() + cell_ptr[level + 1, b])
            edge = s.edge_index[:, int(s.edge_ptr[level]) : int(s.edge_ptr[level + 1])]
            edges.append(edge.long() + cell_ptr[level, b])
        ends.append(sum(e.size(1) for e in edges))
    shifts = [torch.stack([cell_ptr[0, b], ptr[b]])[:, None] for b in range(len(samples))]
    heard = [s.heard.long() + shift for s, shift in zip(samples, shifts, strict=True)]
    cells = Cells(
        torch.cat([s.point for s in samples]),
        torch.cat([s.normal for s in samples]),
        torch.cat(rows),
        cell_ptr,
        torch.cat(parents),
        torch.cat(edges, 1),
        torch.tensor(ends),
        torch.cat(heard, 1),
    )
    return cells, ptr


def write_shard(path: Path, samples: Sequence[Sample]) -> None:
    names = [field.name for field in fields(Sample)]
    arrays = {
        f"{i}.{name}": getattr(sample, name).contiguous()
        for i, sample in enumerate(samples)
        for name in names
    }
    partial = path.with_suffix(".partial")
    save_file(arrays, partial)
    partial.replace(path)


def read_shard(path: Path) -> list[Sample]:
    arrays = load_file(path)
    names = [field.name for field in fields(Sample)]
    count = len(arrays) // len(names)
    return [Sample(*(arrays[f"{i}.{name}"] for name in names)) for i in range(count)]


def make_samples(data: Path, first: int, count: int) -> None:
    """Shards number first .. first + count - 1, each from its own seed; those there are kept."""
    folder = data / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    maker = Maker(data)
    for number in range(first, first + count):
        path = folder / f"{number:05d}.safetensors"
        if not path.exists():
            rng = np.random.default_rng(1000 + number)
            write_shard(path, [maker.draw(rng) for _ in range(SHARD)])
