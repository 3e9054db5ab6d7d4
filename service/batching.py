"""Who runs next, and with whom: waiting graphs grouped into batches by a budget.

A lane never waits for company: whoever is there when a runner is free goes now. Models take turns
by the run time they have used. Within a model the oldest graph always goes, and others that still
fit join it, so small graphs may overtake a large one but can never starve it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from model.graph import Graph
from service.errors import Late

# A run of less costs hardly less, so a pace learned from a few nodes would be far too slow.
LEAST_COST = 4096
_SCAN = 256  # how far behind the oldest graph to look for others that fit


@dataclass(eq=False, slots=True)
class Job:
    """One graph waiting for its answer; whoever asked holds the future."""

    model: Any
    options: Hashable
    graph: Graph
    deadline: float
    future: asyncio.Future[Any]
    request_id: str = ""
    arrived: float = field(default_factory=time.monotonic)
    abandoned: bool = False

    @property
    def cost(self) -> int:
        return self.graph.num_nodes + self.graph.num_edges


@dataclass(frozen=True)
class Budget:
    """The most one run may hold."""

    nodes: int
    edges: int
    graphs: int = 512


class Lane:
    """The waiting jobs of one size class; safe to use from any thread."""

    def __init__(self, name: str, budget: Budget, refuse: Callable[[Job, Exception], None]) -> None:
        self.name = name
        self._budget = budget
        self._refuse = refuse
        self._groups: dict[tuple[Any, Hashable], deque[Job]] = {}
        self._used: dict[str, float] = {}  # run time charged to each model, by name
        self._pace: dict[str, float] = {}  # seconds per unit of cost, as lately seen
        self._load: dict[str, int] = {}  # cost waiting
        self._changed = threading.Condition()
        self._closed = False
        self.depth = 0

    def put(self, *jobs: Job) -> None:
        with self._changed:
            for job in jobs:
                self._put(job)
            self._changed.notify(len(jobs))

    def _put(self, job: Job) -> None:
        name = job.model.name
        if not self._load.get(name):
            # A model that was idle starts level with the others; it has no credit to spend.
            floor = min((self._used[model.name] for model, _ in self._groups), default=0.0)
            self._used[name] = max(self._used.get(name, 0.0), floor)
        self._groups.setdefault((job.model, job.options), deque()).append(job)
        self._load[name] = self._load.get(name, 0) + job.cost
        self.depth += 1

    def take(self) -> list[Job] | None:
        """The next batch, as soon as there is one; None once the lane is closed and empty."""
        while True:
            with self._changed:
                while not self._groups:
                    if self._closed:
                        return None
                    self._changed.wait()
                jobs, late = self._next_batch()
            for job in late:
                self._refuse(job, Late("the deadline passed while the request was waiting"))
            if jobs:
                return jobs

    def charge(self, jobs: list[Job], seconds: float) -> None:
        """Tell the lane what a batch cost, for fairness and for waiting-time estimates."""
        name = jobs[0].model.name
        pace = seconds / max(LEAST_COST, sum(job.cost for job in jobs))
        with self._changed:
            self._used[name] = self._used.get(name, 0.0) + seconds
            self._pace[name] = 0.8 * self._pace.get(name, pace) + 0.2 * pace

    def backlog_seconds(self) -> float:
        """How long the jobs now waiting should take."""
        if not self.depth:
            return 0.0
        with self._changed:
            return sum(self._pace.get(name, 0.0) * cost for name, cost in self._load.items())

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def clear(self) -> list[Job]:
        """Take out everything that waits."""
        with self._changed:
            jobs = [job for group in self._groups.values() for job in group]
            self._groups.clear()
            self._load.clear()
            self.depth = 0
            return jobs

    def _next_batch(self) -> tuple[list[Job], list[Job]]:
        key = min(self._groups, key=self._turn)
        group = self._groups[key]
        now = time.monotonic()
        jobs: list[Job] = []
        late: list[Job] = []
        passed: list[Job] = []
        nodes = edges = 0
        while group and len(jobs) < self._budget.graphs and len(passed) < _SCAN:
            job = group.popleft()
            if (
                not job.abandoned
                and job.deadline > now
                and jobs
                and not self._fits(job, nodes, edges)
            ):
                passed.append(job)
                continue
            self.depth -= 1
            self._load[job.model.name] -= job.cost
            if job.abandoned:
                continue
            if job.deadline <= now:
                late.append(job)
                continue
            jobs.append(job)
            nodes += job.graph.num_nodes
            edges += job.graph.num_edges
            if nodes >= self._budget.nodes or edges >= self._budget.edges:
                break
        group.extendleft(reversed(passed))
        if not group:
            del self._groups[key]
        return jobs, late

    def _turn(self, key: tuple[Any, Hashable]) -> tuple[float, float]:
        return self._used[key[0].name], self._groups[key][0].arrived

    def _fits(self, job: Job, nodes: int, edges: int) -> bool:
        return (
            nodes + job.graph.num_nodes <= self._budget.nodes
            and edges + job.graph.num_edges <= self._budget.edges
        )
