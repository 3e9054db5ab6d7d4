"""A small graph out of JSON text by one call: arrays read and checked, edges in order.

Only sound graphs in their plainest form are taken, by our own C++; whatever is not is left to
`jsontext` and those who can say what is wrong with it.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from ops.jsontext import EXTENSION, NATIVE, SMALL, address

Array = np.ndarray[Any, np.dtype[Any]]

_Found = ctypes.c_int64 * 5
if NATIVE:
    # without giving up the interpreter: that takes longer than reading such a text
    _read = ctypes.PyDLL(str(EXTENSION)).splinecnn_json_graph
    _read.restype = ctypes.c_int32
    _size, _where = ctypes.c_int64, ctypes.c_void_p
    _read.argtypes = [_where, _size, _size, _size, _where, _size, _where]


class SmallGraph(NamedTuple):
    """One graph whose every number was checked; `model` is the name that came with it."""

    num_nodes: int
    edge_index: Array  # [2, E] int64, by target, then source; each edge once, no loops
    features: Array  # [N, F] float32
    positions: Array  # [N, 2] float32
    model: str | None


def read_graph(text: bytes | bytearray, most_nodes: int, most_edges: int) -> SmallGraph | None:
    """The graph of `{"graph": …, "model"?: …}`; None if it is anything else, or not small."""
    size = len(text)
    if not NATIVE or size > SMALL:
        return None
    out = np.empty(6 * size // 8 + 1, np.int64)
    found = _Found()
    if not _read(
        address(text), size, most_nodes, most_edges, out.ctypes.data, out.nbytes, found
    ):  # fmt: skip
        return None
    nodes, width, edges, start, end = found
    split = nodes * width
    numbers = out.view(np.float32)[4 * edges :]
    return SmallGraph(
        nodes,
        out[: 2 * edges].reshape(2, edges),
        numbers[:split].reshape(nodes, width),
        numbers[split : split + 2 * nodes].reshape(nodes, 2),
        str(text[start:end], "ascii") if end else None,
    )
