"""The small graphs of one model, on threads that never need the interpreter.

Loop and runner otherwise hand the interpreter to and fro, which costs a small graph more than its
network does. Only what is plain comes this way: a graph whose run fails or whose answer is not
finite is done again by a runner, which can say what is wrong.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ops.express import Lane
from service.batching import LEAST_COST, Budget, Job

log = logging.getLogger("splinecnn.express")

Serve = Callable[[Lane], None]


class Ended(NamedTuple):
    """A run: who was in it, how long each of them waited, and a row of answers for each."""

    jobs: list[tuple[Job | None, float]]  # None for one that left meanwhile
    nodes: int
    edges: int
    seconds: float
    answers: np.ndarray | None  # None if it failed


class Express:
    """A lane and the threads that serve it; everything but their work happens on the loop."""

    def __init__(
        self, model: str, serve: Serve, wake: int, budget: Budget, threads: int, share: int
    ) -> None:
        self.model = model
        self.lane = Lane(
            wake, budget.nodes, budget.edges, budget.graphs, threads=threads, share=share
        )
        self._jobs: dict[int, Job] = {}
        self._last = 0
        self._load = 0  # cost of the jobs that have no answer yet
        self._pace = 0.0  # seconds per unit of cost, as lately seen
        self._threads = [_Thread(f"express-{model}-{n}", serve, self.lane) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """How many wait for a run."""
        return self.lane.waiting()

    def put(self, job: Job) -> int:
        """The ticket it goes by."""
        ticket = self._last + 1
        self.lane.put(ticket, job.graph.arrays)
        self._last = ticket
        self._jobs[ticket] = job
        self._load += job.cost
        return ticket

    def drop(self, ticket: int) -> None:
        """Forget whoever no longer wants the answer, and spare it the run if it still waits."""
        job = self._jobs.pop(ticket, None)
        if job is not None:
            self._load -= job.cost
            self.lane.drop(ticket)

    def collect(self) -> Iterator[Ended]:
        for run in self.lane.collect():
            pace = run.seconds / max(LEAST_COST, run.nodes + run.edges)
            self._pace = 0.8 * (self._pace or pace) + 0.2 * pace
            jobs = []
            for ticket, waited in run.tickets:
                job = self._jobs.pop(ticket, None)
                if job is not None:
                    self._load -= job.cost
                jobs.append((job, waited))
            yield Ended(jobs, run.nodes, run.edges, run.seconds, run.answers)

    def backlog_seconds(self) -> float:
        """How long the jobs without an answer should take."""
        return self._load * self._pace / len(self._threads)

    def stuck(self, seconds: float) -> bool:
        since = self.lane.busy_since()
        return bool(since) and time.monotonic() - since > seconds

    def is_alive(self) -> bool:
        """Whether all its threads are."""
        return all(thread.is_alive() for thread in self._threads)

    def is_over(self) -> bool:
        """Whether none of them is."""
        return not any(thread.is_alive() for thread in self._threads)

    def waiting(self) -> list[Job]:
        """Take out everything that is not being run."""
        found = [ticket for ticket in self._jobs if self.lane.drop(ticket)]
        jobs = [self._jobs.pop(ticket) for ticket in found]
        self._load -= sum(job.cost for job in jobs)
        return jobs

    def close(self) -> None:
        """Let the threads end once nothing waits any more."""
        self.lane.close()

    def join(self, seconds: float) -> None:
        for thread in self._threads:
            thread.join(seconds)


class _Thread(threading.Thread):
    def __init__(self, name: str, serve: Serve, lane: Lane) -> None:
        # a daemon, for a network that hangs must not keep the process from ending
        super().__init__(name=name, daemon=True)
        self._serve = serve
        self._lane = lane

    def run(self) -> None:
        while True:
            try:
                return self._serve(self._lane)
            except BaseException as error:  # whatever it was, the next batch deserves a thread
                log.warning("a shared run failed and is done again: %s", type(error).__name__)
