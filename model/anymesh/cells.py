"""What the networks see of a mesh: cells on its surface, level by level."""

from typing import NamedTuple

import torch
from torch import Tensor

import ops
from ops import Plan

SIZES = (1536, 384, 96, 24)
RADII = (0.075, 0.15, 0.30, 0.60)
"""Half the width of the kernel on each level, in units of the square root of the mesh's area."""
LONGEST_EDGE = 0.03
FEATURES = 8


class Cells(NamedTuple):
    """The cells of a batch of meshes (see `ops.geodesic.hierarchy`), finest level first."""

    point: Tensor  # [V, 3] vertices, unit area
    normal: Tensor  # [V, 3]
    cell: Tensor  # [C, 7] position, normal, area
    cell_ptr: Tensor  # [L, B + 1]
    parent: Tensor
    edge_index: Tensor  # [2, E]
    edge_ptr: Tensor  # [L + 1]
    heard: Tensor  # [2, H] finest cells to vertices


def make_cells(
    vertices: Tensor,
    faces: Tensor,
    ptr: Tensor,
    variant: int = 0,
    sizes: tuple[int, int, int, int] = SIZES,
    longest: float = LONGEST_EDGE,
) -> Cells:
    """Cells of raw meshes; another `variant` begins with another point of each mesh.

    They are cut on the CPU, wherever the mesh is: shortest paths are found one after the other.
    """
    point, normal, cell, cell_ptr, parent, edge_index, edge_ptr, heard = (
        torch.ops.splinecnn.hierarchy(
            vertices.cpu(), faces.cpu(), ptr.cpu(), list(sizes), variant, longest
        )
    )
    to = vertices.device
    return Cells(
        point.to(to), normal.to(to), cell.to(to), cell_ptr.to(to), parent.to(to),
        edge_index.to(to), edge_ptr.to(to), heard.to(to),
    )  # fmt: skip


def thin(cells: Cells, ptr: Tensor, most: int) -> tuple[Cells, Tensor]:
    """The same cells with at most `most` vertices of each mesh, and their ptr [B + 1]."""
    count = ptr[1:] - ptr[:-1]
    mesh = torch.repeat_interleave(count)
    place = torch.arange(mesh.numel(), device=ptr.device)
    step = torch.div(count + (most - 1), most, rounding_mode="floor").clamp(min=1)
    chosen = torch.nonzero((place - ptr[mesh]) % step[mesh] == 0)[:, 0]
    place = torch.full_like(place, -1)
    place[chosen] = torch.arange(chosen.numel(), device=ptr.device)
    target = place[cells.heard[1]]
    heard = torch.stack([cells.heard[0], target])[:, target >= 0]
    kept = torch.bincount(mesh[chosen], minlength=count.numel())
    return Cells(
        cells.point[chosen], cells.normal[chosen], cells.cell, cells.cell_ptr, cells.parent,
        cells.edge_index, cells.edge_ptr, heard,
    ), torch.cat([kept.new_zeros(1), kept.cumsum(0)])  # fmt: skip


class Level(NamedTuple):
    """One level as convolutions see it."""

    feature: Tensor  # [C, FEATURES]
    plan: Plan
    mesh: Tensor  # [C] which mesh of the batch a cell belongs to
    parent: Tensor  # [C] its cell of the next level; empty on the last


def rotate(value: Tensor, rotation: Tensor, mesh: Tensor) -> Tensor:
    """Each row turned by the rotation [B, 3, 3] of its mesh."""
    # written out: a matrix product may round differently with the number of rows
    return (rotation[mesh] * value[:, None]).sum(2)


def metric(offset: Tensor, radius: float) -> Tensor:
    """Offsets as pseudo-coordinates: the kernel has a width, what lies beyond counts as its rim."""
    return (offset / (2 * radius) + 0.5).clamp(0, 1)


def make_level(
    cells: Cells,
    level: int,
    rotation: Tensor,
    backward: bool = False,
    sizes: tuple[int, int, int, int] = SIZES,
    radii: tuple[float, float, float, float] = RADII,
) -> Level:
    """The cells of one level, each mesh turned by its rotation."""
    ptr = cells.cell_ptr[level]
    before, count = int(cells.cell_ptr[:level, -1].sum()), int(ptr[-1])
    rows = cells.cell[before : before + count]
    mesh = torch.repeat_interleave(ptr[1:] - ptr[:-1])
    position = rotate(rows[:, 0:3], rotation, mesh)
    normal = rotate(rows[:, 3:6], rotation, mesh)
    flatness = torch.sqrt((normal * normal).sum(1, keepdim=True))
    area = rows[:, 6:7] * float(list(sizes)[level])
    feature = torch.cat([position * 2, normal, flatness, area], 1)
    edge = cells.edge_index[:, int(cells.edge_ptr[level]) : int(cells.edge_ptr[level + 1])]
    pseudo = metric(position[edge[0]] - position[edge[1]], list(radii)[level])
    plan = ops.spline_plan(edge, pseudo, [3, 3, 3], [1, 1, 1], 1, count, backward=backward)
    return Level(feature, plan, mesh, cells.parent[before : before + count])


def pool(x: Tensor, parent: Tensor, count: int) -> Tensor:
    """The largest value of each feature among a cell's children; 0 where it has none. [count, M]"""
    out = torch.zeros(count, x.size(1), dtype=x.dtype, device=x.device)
    index = parent[:, None].expand(-1, x.size(1))
    return out.scatter_reduce(0, index, x, "amax", include_self=False)
