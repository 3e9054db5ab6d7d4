"""A small graph out of JSON text or arrays by one call: numbers read and checked, edges in order.

Only sound graphs in their plainest form are taken, by our own C++; whatever is not is left to
those who can say what is wrong with it.
"""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ops.jsontext import EXTENSION, NATIVE, SMALL, address

Array = np.ndarray[Any, np.dtype[Any]]


class _Found(ctypes.Structure):
    _names = ("nodes", "features", "edges", "model", "model_end", "size")
    _fields_ = (*((name, ctypes.c_int64) for name in _names), ("block", ctypes.c_void_p))


if NATIVE:
    # without giving up the interpreter: that takes longer than such a graph
    _library = ctypes.PyDLL(str(EXTENSION))
    _size, _where = ctypes.c_int64, ctypes.c_void_p
    _read = _library.splinecnn_json_graph
    _read.argtypes, _read.restype = [_where, _size, _size, _size, _where], ctypes.c_int32
    _take = _library.splinecnn_array_graph
    _take.argtypes = [*[_size] * 3, *[_where] * 3, ctypes.c_int32, _size, _size, _where]
    _take.restype = ctypes.c_int32


class Block(Mapping[str, Array]):
    """The arrays of a graph in one piece of memory, cut out when somebody asks for them.

    edge_index [2, E] int64, by target, then source, each edge once and no loops; features [N, F]
    and positions [N, 2] float32.
    """

    NAMES = ("edge_index", "features", "positions")
    __slots__ = ("data", "num_edges", "num_nodes", "width")

    def __init__(self, data: bytes, num_nodes: int, num_edges: int, width: int) -> None:
        self.data = data
        self.num_nodes = num_nodes
        self.num_edges = num_edges
        self.width = width

    def __getitem__(self, name: str) -> Array:
        nodes, edges, width = self.num_nodes, self.num_edges, self.width
        if name == "edge_index":
            return np.frombuffer(self.data, np.int64, 2 * edges).reshape(2, edges)
        numbers = np.frombuffer(self.data, np.float32, offset=16 * edges)
        if name == "features":
            return numbers[: nodes * width].reshape(nodes, width)
        if name == "positions":
            return numbers[nodes * width :].reshape(nodes, 2)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)


class SmallGraph(NamedTuple):
    """One graph whose every number was checked; `model` is the name that came with it."""

    arrays: Block
    model: str | None


def read_graph(text: bytes | bytearray, most_nodes: int, most_edges: int) -> SmallGraph | None:
    """The graph of `{"graph": …, "model"?: …}`; None if it is anything else, or not small."""
    size = len(text)
    if not NATIVE or size > SMALL:
        return None
    found = _Found()
    if not _read(address(text), size, most_nodes, most_edges, ctypes.addressof(found)):
        return None
    name = str(text[found.model : found.model_end], "ascii") if found.model_end else None
    return SmallGraph(_block(found), name)


def take_graph(
    features: Array,
    positions: Array,
    edge_index: Array,
    undirected: bool,
    most_nodes: int,
    most_edges: int,
) -> Block | None:
    """The graph of float32 [N, F] and [N, 2] and int64 [2, E]; None if it is anything else."""
    (nodes, width), (two, edges) = features.shape, edge_index.shape
    plain = (
        NATIVE
        and features.dtype == positions.dtype == np.float32
        and edge_index.dtype == np.int64
        and two == 2
        and width > 0
        and positions.shape == (nodes, 2)
        and features.flags.c_contiguous
        and positions.flags.c_contiguous
        and edge_index.flags.c_contiguous
        and features.nbytes + positions.nbytes + edge_index.nbytes <= SMALL
    )
    if not plain:
        return None
    found = _Found()
    where = features.ctypes.data, positions.ctypes.data, edge_index.ctypes.data
    limits = most_nodes, most_edges
    if not _take(nodes, width, edges, *where, undirected, *limits, ctypes.addressof(found)):
        return None
    return _block(found)


def _block(found: _Found) -> Block:
    data = ctypes.string_at(found.block, found.size)
    return Block(data, found.nodes, found.edges, found.features)
