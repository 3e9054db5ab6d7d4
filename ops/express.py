"""Small graphs to a network and back without the interpreter: the lane of csrc/cpu/express.cpp.

Whoever has graphs puts them into a lane; a thread that calls a module's `serve` takes what waits as
one batch, runs it and gives the answers, over and over, in TorchScript and C++ alone.
"""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ops.jsontext import EXTENSION, NATIVE
from ops.smallgraph import Block

Array = np.ndarray[Any, np.dtype[Any]]

_SERVE = """
def serve(self, lane: Tensor) -> None:
    features, positions, edge_index, ptr = torch.ops.splinecnn_express.take(lane)
    while ptr.numel() > 1:
        answers, = self.forward(features, positions, edge_index, ptr)
        torch.ops.splinecnn_express.give(lane, answers)
        features, positions, edge_index, ptr = torch.ops.splinecnn_express.take(lane)
"""


_TICKET = np.dtype([("number", np.int64), ("waited", np.float64)])
_ROW = np.dtype(np.float32)


class _Run(ctypes.Structure):
    _fields_ = (
        ("graphs", ctypes.c_int64),
        ("nodes", ctypes.c_int64),
        ("edges", ctypes.c_int64),
        ("classes", ctypes.c_int64),
        ("seconds", ctypes.c_double),
        ("tickets", ctypes.c_void_p),
        ("answers", ctypes.c_void_p),
    )


if NATIVE:
    # every call is shorter than giving up the interpreter and getting it back
    _library = ctypes.PyDLL(str(EXTENSION))
    _size, _where = ctypes.c_int64, ctypes.c_void_p
    _open = _library.splinecnn_express_open
    _open.argtypes, _open.restype = [ctypes.c_int32, *[_size] * 5, ctypes.c_double], _size
    _put = _library.splinecnn_express_put
    _put.argtypes, _put.restype = [*[_size] * 5, _where], ctypes.c_int32
    _drop = _library.splinecnn_express_drop
    _drop.argtypes, _drop.restype = [_size, _size], ctypes.c_int32
    _collect = _library.splinecnn_express_collect
    _collect.argtypes, _collect.restype = [_size, _where], ctypes.c_int32
    _busy_since = _library.splinecnn_express_busy_since
    _busy_since.argtypes, _busy_since.restype = [_size], ctypes.c_double
    _waiting = _library.splinecnn_express_waiting
    _waiting.argtypes, _waiting.restype = [_size], _size
    _lose, _close, _forget = (
        getattr(_library, f"splinecnn_express_{name}") for name in ("lose", "close", "forget")
    )
    for _function in (_lose, _close, _forget):
        _function.argtypes, _function.restype = [_size], None


class Run(NamedTuple):
    """What ran together: tickets with the seconds each waited, and a row of answers for each."""

    tickets: list[tuple[int, float]]
    nodes: int
    edges: int
    seconds: float
    answers: Array | None  # [graphs, classes] float32; None if the run failed


def teach(module: Any) -> None:
    """Give a loaded script of a graph-label network its `serve(lane)`."""
    module.define(_SERVE)


class Lane:
    """Graphs waiting for one network; `wake` is an eventfd, written to when a run has ended.

    Several threads may serve it: one at a time, unless `share` nodes and edges wait, or more, or a
    run takes longer than `patience` seconds.
    """

    def __init__(
        self,
        wake: int,
        nodes: int,
        edges: int,
        graphs: int = 512,
        *,
        threads: int = 1,
        share: int,
        patience: float = 0.01,
    ) -> None:
        self.number: int = _open(wake, nodes, edges, graphs, threads, share, patience)
        self._run = _Run()
        self._at = ctypes.addressof(self._run)

    def put(self, ticket: int, arrays: Mapping[str, Array]) -> None:
        """edge_index [2, E], features [N, F] and positions [N, 2], which are copied."""
        block = arrays if isinstance(arrays, Block) else _block(arrays)
        sizes = block.num_nodes, block.num_edges, block.width
        if not _put(self.number, ticket, *sizes, block.data):
            raise MemoryError("the graph could not be copied")

    def drop(self, ticket: int) -> bool:
        """Take a graph out; False if it was no longer waiting."""
        return bool(_drop(self.number, ticket))

    def collect(self) -> Iterator[Run]:
        """The runs that have ended since the last time."""
        run = self._run
        while _collect(self.number, self._at):
            count, at = run.graphs, run.answers
            tickets = _array(run.tickets, 16 * count, _TICKET).tolist()
            answers = at and _array(at, 4 * count * run.classes, _ROW).reshape(count, -1)
            yield Run(tickets, run.nodes, run.edges, run.seconds, answers)

    def waiting(self) -> int:
        """How many graphs wait for a run."""
        return int(_waiting(self.number))

    def busy_since(self) -> float:
        """When the longest run began, by the monotonic clock; 0 if there is none."""
        return float(_busy_since(self.number))

    def serve(self, module: Any) -> None:
        """Run what comes until the lane is closed and empty; an error loses the batch it is of."""
        try:
            module.serve(torch.tensor([self.number]))
        except BaseException:
            _lose(self.number)
            raise

    def close(self) -> None:
        """Take no more; what waits is still served."""
        _close(self.number)

    def __del__(self) -> None:
        _forget(self.number)


def _block(arrays: Mapping[str, Array]) -> Block:
    edge_index = np.asarray(arrays["edge_index"], np.int64)
    features = np.asarray(arrays["features"], np.float32)
    positions = np.asarray(arrays["positions"], np.float32)
    (two, edges), (nodes, width) = edge_index.shape, features.shape
    if two != 2 or positions.shape != (nodes, 2):
        shapes = edge_index.shape, features.shape, positions.shape
        raise ValueError(f"arrays must be [2, E], [N, F] and [N, 2], got {shapes}")
    data = b"".join((edge_index.tobytes(), features.tobytes(), positions.tobytes()))
    return Block(data, nodes, edges, width)


def _array(at: int, size: int, kind: np.dtype[Any]) -> Array:
    return np.frombuffer(ctypes.string_at(at, size), kind)
