"""One request's graph, and several of them side by side as one block-diagonal graph.

Direction, everywhere: `edge_index[0]` is the source j, `edge_index[1]` the target i of a message,
and the pseudo-coordinate of an edge is position(j) - position(i).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from model.errors import InvalidGraph, UnsupportedTask

CORRESPONDENCE = "correspondence"
NODE_LABELS = "node-labels"
GRAPH_LABEL = "graph-label"

TASKS: dict[str, tuple[str, ...]] = {
    CORRESPONDENCE: ("vertices", "faces"),
    NODE_LABELS: ("feature_ptr", "feature_index", "feature_value", "edge_index"),
    GRAPH_LABEL: ("features", "positions", "edge_index"),
}
"""The raw tensors of each task, in the order networks take them; `ptr` follows."""

POSITIONS = "positions"
PSEUDO = "pseudo"


@dataclass(frozen=True)
class Coordinates:
    """What a node network takes to know where neighbours lie, beside the edges themselves."""

    name: str  # POSITIONS of nodes, or PSEUDO-coordinates of edges
    size: int  # numbers in each


_NODE_INDICES = {"faces", "edge_index"}


@dataclass(frozen=True)
class Graph:
    """The validated tensors of one request; made by the builders in `model.tasks`."""

    task: str
    arrays: Mapping[str, np.ndarray]
    num_nodes: int
    num_edges: int
    coordinates: Coordinates | None = None


def tensor_names(task: str, coordinates: Coordinates | None = None) -> tuple[str, ...]:
    """The raw tensors of a graph, in the order networks take them; `ptr` follows."""
    return TASKS[task] if coordinates is None else (*TASKS[task], coordinates.name)


def pack(graphs: Sequence[Graph]) -> dict[str, Tensor]:
    """The graphs side by side: node indices shifted, and `ptr` [B + 1] with the node offsets."""
    if not graphs:
        raise InvalidGraph("a batch needs at least one graph")
    task = graphs[0].task
    if task not in TASKS:
        raise UnsupportedTask(f"unknown task {task!r}; known: {', '.join(TASKS)}")
    if any(graph.task != task for graph in graphs):
        raise InvalidGraph("a batch holds graphs of one task only")
    ptr = np.array([0, *accumulate(graph.num_nodes for graph in graphs)], np.int64)
    names = tensor_names(task, graphs[0].coordinates)
    if any(graph.coordinates != graphs[0].coordinates for graph in graphs):
        raise InvalidGraph("a batch holds graphs with the same coordinates only")
    # always a copy: what a network is given never aliases the request's own arrays
    if len(graphs) == 1:
        packed = {name: torch.from_numpy(graphs[0].arrays[name].copy()) for name in names}
    else:
        packed = {name: torch.from_numpy(_join(name, graphs, ptr)) for name in names}
    packed["ptr"] = torch.from_numpy(ptr)
    return packed


def _join(name: str, graphs: Sequence[Graph], ptr: np.ndarray) -> np.ndarray:
    parts = [graph.arrays[name] for graph in graphs]
    if name == "feature_ptr":
        ends = np.cumsum([0] + [int(part[-1]) for part in parts])
        shifted = [part[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *shifted])
    if name in _NODE_INDICES:
        parts = [part + offset for part, offset in zip(parts, ptr[:-1], strict=True)]
    return np.concatenate(parts, axis=1 if name == "edge_index" else 0)


def unpack(outputs: Mapping[str, Tensor], graphs: Sequence[Graph]) -> list[dict[str, np.ndarray]]:
    """What belongs to each graph of a batch: its rows, or its single row for `graph-label`."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in outputs.items()}
    if len(graphs) == 1:
        return [arrays]
    ends = accumulate(1 if g.task == GRAPH_LABEL else g.num_nodes for g in graphs)
    return [
        {name: array[start:end] for name, array in arrays.items()}
        for start, end in pairwise([0, *ends])
    ]
