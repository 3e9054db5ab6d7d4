"""A batch run in shares, side by side on threads that each runner keeps for it.

Graphs know nothing of each other, so threads that take a share each need not wait for one another
in every layer, as they would if the layers of one run were shared among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from model.graph import Graph

T = TypeVar("T")
_Task = tuple[Future[Any], Callable[[], Any]]


def split(graphs: Sequence[Graph], count: int) -> list[list[Graph]]:
    """Consecutive shares of about the same size, as many as asked for; none of them empty."""
    left = sum(graph.num_nodes + graph.num_edges for graph in graphs)
    shares: list[list[Graph]] = []
    share: list[Graph] = []
    taken = 0
    for at, graph in enumerate(graphs):
        share.append(graph)
        taken += graph.num_nodes + graph.num_edges
        open_shares = count - len(shares)
        if open_shares > 1 and (taken * open_shares >= left or len(graphs) - at - 1 < open_shares):
            shares.append(share)
            left -= taken
            share, taken = [], 0
    return [*shares, share]


def side_by_side(works: Sequence[Callable[[], T]]) -> list[T]:
    """What each of them returns: one is done here, the others by this thread's helpers."""
    if not hasattr(_own, "helpers"):
        _own.helpers = _Helpers()
    others = _own.helpers.start(works[1:])
    try:
        mine = works[0]()
    finally:
        for other in others:  # the graphs are being read until the last has ended
            other.exception()
    return [mine, *[other.result() for other in others]]


class _Helpers:
    """Threads that end with the one they help."""

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[_Task | None]] = []

    def start(self, works: Sequence[Callable[[], T]]) -> list[Future[T]]:
        while len(self._queues) < len(works):
            queue: SimpleQueue[_Task | None] = SimpleQueue()
            # a daemon, for a network that hangs must not keep the process from ending
            threading.Thread(target=_help, args=(queue,), name="helper", daemon=True).start()
            self._queues.append(queue)
        futures: list[Future[T]] = [Future() for _ in works]
        for queue, future, work in zip(self._queues, futures, works, strict=False):
            queue.put((future, work))
        return futures

    def __del__(self) -> None:
        for queue in self._queues:
            queue.put(None)


def _help(queue: SimpleQueue[_Task | None]) -> None:
    while (task := queue.get()) is not None:
        future, work = task
        try:
            future.set_result(work())
        except BaseException as error:  # whatever it was, it is told to the one who asked
            future.set_exception(error)
        del task, future, work  # an idle helper must not keep the last batch alive


_own = threading.local()
