"""Pseudo-coordinates u(i, j) in [0, 1]^D of edges, normalised per graph (paper, section 3.1).

Normalising per graph and not per batch is what makes an answer independent of its neighbours.
"""

import math

import torch
from torch import Tensor

import ops  # noqa: F401  (registers the operator)

CARTESIAN = "cartesian"
POLAR = "polar"
SPHERICAL = "spherical"
DEGREE = "degree"
GIVEN = "given"  # by whoever made the graph


def node_graph_index(ptr: Tensor) -> Tensor:
    """Which graph of the batch each node belongs to. [N]"""
    return torch.repeat_interleave(ptr[1:] - ptr[:-1])


def graph_max(value: Tensor, index: Tensor, num_graphs: int) -> Tensor:
    """The largest of the values (none negative) in each graph; 0 where there are none."""
    if num_graphs == 1 and value.numel() > 0:
        return value.max().view(1)
    out = torch.zeros(num_graphs, dtype=value.dtype, device=value.device)
    return out.scatter_reduce(0, index, value, "amax")


def _scaled(value: Tensor, largest: Tensor) -> Tensor:
    """value / largest, and 0 where the graph has no extent at all."""
    return torch.where(largest > 0, value / largest, torch.zeros_like(value))


def cartesian(positions: Tensor, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """c / (2 max|c|) + 1/2 for the offsets c = position(j) - position(i). [E, D]"""
    out: Tensor = torch.ops.splinecnn.cartesian(positions, edge_index, ptr)
    return out


def polar(positions: Tensor, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """Distance, and angle around the target, of 2-D positions. [E, 2]"""
    offset = positions[edge_index[0]] - positions[edge_index[1]]
    x, y = offset[:, 0], offset[:, 1]
    graph = node_graph_index(ptr)[edge_index[1]]
    distance = torch.sqrt(x * x + y * y)
    largest = graph_max(distance, graph, ptr.numel() - 1)[graph]
    return torch.stack([_scaled(distance, largest), _turn(y, x)], 1)


def spherical(positions: Tensor, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """Distance, azimuth and inclination of 3-D positions. [E, 3]"""
    offset = positions[edge_index[0]] - positions[edge_index[1]]
    x, y, z = offset[:, 0], offset[:, 1], offset[:, 2]
    graph = node_graph_index(ptr)[edge_index[1]]
    across = x * x + y * y
    distance = torch.sqrt(across + z * z)
    largest = graph_max(distance, graph, ptr.numel() - 1)[graph]
    inclination = (2 * _turn(torch.sqrt(across), z)).clamp(0, 1)
    return torch.stack([_scaled(distance, largest), _turn(y, x), inclination], 1)


def _turn(y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y) as a fraction of a full turn, in [0, 1].

    By a polynomial and not by torch.atan2, whose last bits depend on where in a tensor an edge
    lies: sums and products do not.
    """
    wide, high = x.abs(), y.abs()
    most = torch.maximum(wide, high)
    a = _scaled(torch.minimum(wide, high), most)  # the tangent, of at most 45 degrees
    steep = a > math.tan(math.pi / 8)
    a = torch.where(steep, (a - 1) / (a + 1), a)
    z = a * a
    p = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z
    angle = (p - 3.33329491539e-1) * z * a + a
    angle = torch.where(steep, angle + math.pi / 4, angle) / (2 * math.pi)
    angle = torch.where(high > wide, 0.25 - angle, angle)
    angle = torch.where(x < 0, 0.5 - angle, angle)
    return torch.where(y < 0, 1 - angle, angle).clamp(0, 1)


def node_degree(edge_index: Tensor, num_nodes: int) -> Tensor:
    """How many edges arrive at each node. [N] int64"""
    out = torch.zeros(num_nodes, dtype=torch.long, device=edge_index.device)
    return out.scatter_add(0, edge_index[1], torch.ones_like(edge_index[1]))


def degree(edge_index: Tensor, ptr: Tensor, num_nodes: int) -> Tensor:
    """deg(j) / max deg: how well connected the source is (paper, section 5.2). [E, 1]"""
    return node_share(edge_index, ptr, num_nodes)[edge_index[0]]


def node_share(edge_index: Tensor, ptr: Tensor, num_nodes: int) -> Tensor:
    """deg / max deg of every node. [N, 1]"""
    count = node_degree(edge_index, num_nodes).float()
    graph = node_graph_index(ptr)
    largest = graph_max(count, graph, ptr.numel() - 1)[graph]
    return _scaled(count, largest)[:, None]


def pseudo_coordinates(kind: str, positions: Tensor, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """The coordinates called `kind` of every edge, from node positions [N, 2 or 3]."""
    if kind == "cartesian":
        return cartesian(positions, edge_index, ptr)
    if kind == "polar":
        return polar(positions, edge_index, ptr)
    if kind == "spherical":
        return spherical(positions, edge_index, ptr)
    if kind == "degree":
        return degree(edge_index, ptr, positions.size(0))
    raise ValueError("unknown pseudo-coordinates: " + kind)


def open_dimensions(kind: str, dimensions: int) -> list[int]:
    """Per dimension, 1 for an open spline and 0 for a closed one: angles close on themselves."""
    expected = {POLAR: 2, SPHERICAL: 3, DEGREE: 1}
    if kind in expected and expected[kind] != dimensions:
        raise ValueError(f"{kind} pseudo-coordinates have {expected[kind]} dimensions")
    if kind not in (CARTESIAN, POLAR, SPHERICAL, DEGREE, GIVEN):
        raise ValueError(f"unknown pseudo-coordinates: {kind}")
    return [1, *([0] * (dimensions - 1))] if kind in (POLAR, SPHERICAL) else [1] * dimensions
