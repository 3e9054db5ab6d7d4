"""From a graph to its answer: admission, two lanes of waiting work, runner threads, delivery.

Small graphs have a lane and a runner of their own on every device, so none waits behind a mesh;
those of a model that can do without the interpreter have an express way to it.
The event loop only ever puts a job in and awaits its future.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Hashable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from model.errors import InvalidGraph, SplineCNNError
from model.graph import Graph
from service.batching import Budget, Job, Lane
from service.door import Door, Visit, too_late
from service.errors import Full, Gone, Invalid, Late, ModelFailed, NotReady, Refusal, TooLarge
from service.express import Ended, Express
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger("splinecnn.engine")

Arrays = dict[str, np.ndarray]
_HUGE = 1e6  # no sound network overflows on values up to this
_MOST_COPIED = 1 << 16  # nodes and edges of a graph that the event loop may copy
_LAST_WAIT = 5.0  # seconds for what runs at the end, which nobody waits for any more
_MOST_REPLACED = 3  # hung runners replaced before the process asks to be restarted


class Servable(Protocol):
    """What the engine needs of a model; identity is its key."""

    name: str
    version: str

    def run(self, graphs: list[Graph], options: Hashable, device: str) -> list[Arrays]: ...

    def open_express(self, wake: int, budget: Budget) -> Express | None: ...


class Outcome(NamedTuple):
    """One answer, with the seconds it waited and the seconds its batch ran."""

    arrays: Arrays
    queue: float
    run: float
    shared: int


class Engine:
    """The only thing routes ask for predictions."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        budget = Budget(settings.batch_nodes, settings.batch_edges)
        if not settings.batching:
            budget = Budget(1, 1, graphs=1)
        self._budget = budget
        self.lanes = [Lane(name, budget, self._refuse) for name in ("small", "large")]
        self._express: dict[int, Express | None] = {}  # by the identity of a living model
        self._retired: list[Runner | Express] = []  # replaced, but their last runs may yet end
        self._wake = -1
        self._runners: list[Runner] = []
        self._devices = len(settings.devices)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrivals: list[list[Job]] = [[] for _ in self.lanes]
        self._replaced = 0
        self._stopping = False
        self.left_behind = 0  # threads that still ran when it stopped
        self.broken: str | None = None
        self.draining = False
        self.in_flight = 0
        self._doors: defaultdict[str, Door] = defaultdict(Door)  # by task

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop.add_reader(self._wake, self._collect)
        for device in self._settings.devices:
            self._runners += [Runner(self, lane, device) for lane in self.lanes]
        for runner in self._runners:
            runner.start()

    async def stop(self) -> None:
        """Let the running batches finish, then end the threads."""
        self._stopping = True
        self._put_arrivals()
        for lane in self.lanes:
            for job in lane.clear():
                self._refuse(job, _ended())
            lane.close()
        for express in self._expresses():
            for job in express.waiting():
                self._refuse(job, _ended())
            express.close()
        until = time.monotonic() + _LAST_WAIT
        working = [*self._runners, *self._expresses(), *self._retired]
        for each in working:
            await asyncio.to_thread(each.join, max(0.0, until - time.monotonic()))
        self.left_behind = sum(not each.is_over() for each in working)
        self._collect()
        self._runners = []
        self._express.clear()
        self._retired.clear()
        if self._loop is not None and self._wake >= 0:
            self._loop.remove_reader(self._wake)
            os.close(self._wake)
            self._wake = -1

    def admit(self, task: str) -> Visit:
        """Refuse at the door, before a body is read; else a visit to be used with `with`."""
        if self.draining:
            self._metrics.rejected.labels("draining").inc()
            refusal = NotReady("the service is shutting down; ask another replica")
            refusal.headers["Connection"] = "close"
            raise refusal
        if self.in_flight >= self._settings.max_queue:
            self._metrics.rejected.labels("full").inc()
            raise Full(f"{self.in_flight} requests are being served, no more fit", self._backlog())
        return Visit(self, self._doors[task])

    def count_refusal(self, why: Full | Late) -> None:
        self._metrics.rejected.labels("late" if isinstance(why, Late) else "backlog").inc()

    async def predict(
        self,
        model: Servable,
        graph: Graph,
        options: Hashable = None,
        *,
        deadline: float,
        request_id: str = "",
        gone: asyncio.Future[Any] | None = None,
    ) -> Outcome:
        """Queue the graph and await its answer, the deadline, or the caller's leaving."""
        assert self._loop is not None, "the engine is not started"
        if self._stopping:
            raise _ended()
        settings = self._settings
        small = graph.num_nodes <= settings.small_nodes and graph.num_edges <= settings.batch_edges
        number = int(not small)
        light = small and graph.num_nodes + graph.num_edges <= _MOST_COPIED
        express = self._express_of(model) if light else None
        if express is None:
            wait = self.lanes[number].backlog_seconds() / self._devices
        else:
            wait = express.backlog_seconds()
        left = deadline - time.monotonic()
        if wait >= left:
            refusal = too_late(wait, left)
            self.count_refusal(refusal)
            raise refusal
        job = Job(model, options, graph, deadline, self._loop.create_future(), request_id)
        timer = self._loop.call_later(deadline - time.monotonic(), self._expire, job)
        leave = partial(self._leave, job)
        if gone is not None:
            gone.add_done_callback(leave)
        ticket = 0
        try:
            if express is not None:
                ticket = express.put(job)
            else:
                self._put(number, job)
            outcome: Outcome = await job.future
            return outcome
        finally:
            job.abandoned = True
            timer.cancel()
            if gone is not None:
                gone.remove_done_callback(leave)
            if express is not None:
                express.drop(ticket)

    def _express_of(self, model: Servable) -> Express | None:
        key = id(model)
        if key not in self._express:
            self._express[key] = model.open_express(self._wake, self._budget)
            weakref.finalize(model, self._close_express, key).atexit = False
        return self._express[key]

    def _close_express(self, key: int) -> None:
        """The model is gone, and so is everyone who asked for it."""
        express = self._express.pop(key, None)
        if express is not None:
            express.close()

    def _expresses(self) -> list[Express]:
        known = list(self._express.values())  # at once: other threads take models away
        return [express for express in known if express is not None]

    def _working(self) -> list[Runner | Express]:
        return [*self._runners, *self._expresses()]

    def _collect(self) -> None:
        """Tell those their answers whose runs have ended."""
        if self._wake >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        retired = [each for each in self._retired if isinstance(each, Express)]
        for express in [*self._expresses(), *retired]:
            for ended in express.collect():
                if ended.answers is not None:
                    sizes = len(ended.jobs), ended.nodes, ended.edges
                    self._metrics.observe_batch(express.model, *sizes)
                self._settle(ended)

    def _settle(self, ended: Ended) -> None:
        for at, (job, waited) in enumerate(ended.jobs):
            if job is None or job.future.done():
                continue
            if ended.answers is None:
                self._put(0, job)
            else:
                arrays = {"probabilities": ended.answers[at : at + 1]}
                outcome = Outcome(arrays, waited, ended.seconds, len(ended.jobs))
                job.future.set_result(outcome)

    def _put(self, number: int, job: Job) -> None:
        if self._stopping:
            job.future.set_exception(_ended())
            return
        if not any(self._arrivals):
            # Whoever else arrived in this turn of the loop goes in by the same wake-up.
            assert self._loop is not None
            self._loop.call_soon(self._put_arrivals)
        self._arrivals[number].append(job)

    def _put_arrivals(self) -> None:
        arrivals, self._arrivals = self._arrivals, [[] for _ in self.lanes]
        for lane, jobs in zip(self.lanes, arrivals, strict=True):
            if jobs:
                lane.put(*jobs)

    def _expire(self, job: Job) -> None:
        if not job.future.done():
            self._metrics.rejected.labels("late").inc()
            job.future.set_exception(Late("the deadline passed before the answer was ready"))

    def _leave(self, job: Job, _: asyncio.Future[Any]) -> None:
        if not job.future.done():
            self._metrics.rejected.labels("gone").inc()
            job.future.set_exception(Gone("the caller left before the answer was ready"))

    def health(self) -> str | None:
        """Why the process should be restarted, if it should."""
        if self.broken:
            return self.broken
        if self._replaced > _MOST_REPLACED:
            return f"{self._replaced} model runs hung"
        if self._runners and not all(runner.is_alive() for runner in self._runners):
            return "a runner thread has ended"
        return None

    def trouble(self) -> str | None:
        """Why no new work should be sent here now, if so."""
        if self.draining:
            return "shutting down"
        if any(each.stuck(self._settings.stuck_seconds) for each in self._working()):
            return "a model run is stuck"
        return self.health()

    def tend(self) -> None:
        """Called about once a second: replace what hangs or died, publish gauges."""
        over = [each for each in self._retired if each.is_over()]
        self._collect()  # theirs for the last time
        self._retired = [each for each in self._retired if each not in over]
        for index, runner in enumerate(self._runners):
            stuck = runner.stuck(self._settings.stuck_seconds)
            if (stuck and self._replaced <= _MOST_REPLACED) or not runner.is_alive():
                log.error(
                    "replacing a runner on %s: %s", runner.device, "hung" if stuck else "dead"
                )
                runner.retired = True
                self._retired.append(runner)
                self._replaced += stuck
                self._runners[index] = Runner(self, runner.lane, runner.device)
                self._runners[index].start()
        for key, express in list(self._express.items()):
            if express is None:
                continue
            stuck = express.stuck(self._settings.stuck_seconds)
            if (stuck and self._replaced <= _MOST_REPLACED) or not express.is_alive():
                log.error("replacing the express threads of %s", express.model)
                self._replaced += stuck
                waiting = express.waiting()
                self._close_express(key)
                self._retired.append(express)
                for job in waiting:
                    self._put(0, job)
        depths = {lane.name: lane.depth for lane in self.lanes}
        depths["small"] += sum(express.depth for express in self._expresses())
        for name, depth in depths.items():
            self._metrics.queue_depth.labels(name).set(depth)
        self._metrics.in_flight.set(self.in_flight)

    def _backlog(self) -> float:
        waiting: list[Lane | Express] = [*self.lanes, *self._expresses()]
        return max(each.backlog_seconds() for each in waiting)

    def serve(self, lane: Lane, device: str, jobs: list[Job]) -> None:
        """Run one batch on the calling thread; each job gets its own answer or its own error."""
        started = time.monotonic()
        answers = self._run(device, jobs)
        seconds = time.monotonic() - started
        lane.charge(jobs, seconds)
        self.deliver(
            [
                (job, Outcome(answer, started - job.arrived, seconds, len(jobs)))
                if not isinstance(answer, Exception)
                else (job, answer)
                for job, answer in zip(jobs, answers, strict=True)
            ],
            ran=True,
        )

    def _run(self, device: str, jobs: list[Job]) -> list[Arrays | Exception]:
        model, options = jobs[0].model, jobs[0].options
        try:
            answers = model.run([job.graph for job in jobs], options, device)
        except Exception as error:
            if len(jobs) == 1:
                return [self._judge(jobs[0], error)]
            # One graph spoilt the run: find it, and let its neighbours have their answers.
            self._metrics.isolated.labels(model.name).inc()
            return [answer for job in jobs for answer in self._run(device, [job])]
        if _all_finite(answers):
            return list(answers)
        return [self._check_finite(job, answer) for job, answer in zip(jobs, answers, strict=True)]

    def _check_finite(self, job: Job, arrays: Arrays) -> Arrays | Exception:
        """The answer if it is one; else whose fault it is that it is none."""
        if all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"):
            return arrays
        given = [array for array in job.graph.arrays.values() if array.dtype.kind == "f"]
        if max((float(np.abs(array).max(initial=0)) for array in given), default=0) > _HUGE:
            return Invalid("the values are so large that the network's answer is not finite")
        name = job.model.name
        log.error(
            "model %s answered with numbers that are not finite",
            name,
            extra={"request_id": job.request_id},
        )
        return ModelFailed(f"the model {name!r} failed on this graph")

    def _judge(self, job: Job, error: Exception) -> Exception:
        if isinstance(error, InvalidGraph | Refusal):
            return error
        text = str(error)
        if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate" in text:
            return TooLarge("the graph does not fit into the memory of the device")
        if "CUDA error" in text or "device-side assert" in text:
            self.broken = "the device reported an error that only a restart clears"
        name = job.model.name
        log.error(
            "model %s failed: %s: %s",
            name,
            type(error).__name__,
            text.strip().splitlines()[-1] if text.strip() else "",
            extra={"request_id": job.request_id},
            exc_info=not isinstance(error, SplineCNNError),
        )
        return ModelFailed(f"the model {name!r} failed on this graph")

    def deliver(self, answers: list[tuple[Job, Outcome | Exception]], *, ran: bool = False) -> None:
        assert self._loop is not None
        try:  # one wake-up for the whole batch
            self._loop.call_soon_threadsafe(self._tell, answers, ran)
        except RuntimeError:
            log.warning("%d answers came after the event loop had closed", len(answers))

    def _refuse(self, job: Job, error: Exception) -> None:
        if isinstance(error, Late):
            self._metrics.rejected.labels("late").inc()
        self.deliver([(job, error)])

    def _tell(self, answers: list[tuple[Job, Outcome | Exception]], ran: bool) -> None:
        if ran:
            nodes = sum(job.graph.num_nodes for job, _ in answers)
            edges = sum(job.graph.num_edges for job, _ in answers)
            self._metrics.observe_batch(answers[0][0].model.name, len(answers), nodes, edges)
        for job, answer in answers:
            if job.future.done():
                continue
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)


class Runner(threading.Thread):
    """One thread that runs batches of one lane on one device until the lane closes."""

    def __init__(self, engine: Engine, lane: Lane, device: str) -> None:
        super().__init__(name=f"runner-{lane.name}-{device}", daemon=True)
        self.engine = engine
        self.lane = lane
        self.device = device
        self.retired = False
        self._busy_since: float | None = None

    def is_over(self) -> bool:
        return not self.is_alive()

    def stuck(self, seconds: float) -> bool:
        since = self._busy_since
        return since is not None and time.monotonic() - since > seconds

    def run(self) -> None:
        from service.runner import prepare_thread

        prepare_thread(self.engine._settings.run_threads, self.device)
        while not self.retired and (jobs := self.lane.take()) is not None:
            self._busy_since = time.monotonic()
            try:
                self.engine.serve(self.lane, self.device, jobs)
            except BaseException as error:  # whatever it was, the next batch deserves a runner
                log.exception("a runner failed and goes on")
                refusal = NotReady(f"the run was lost ({type(error).__name__}); try again")
                self.engine.deliver([(job, refusal) for job in jobs])
            finally:
                self._busy_since = None
                del jobs  # an idle runner must not keep the last model alive


def _ended() -> NotReady:
    return NotReady("the service is stopping")


def _all_finite(answers: list[Arrays]) -> bool:
    """Whether a whole batch is; asked once, for a question per answer costs more than its run."""
    for name, array in answers[0].items():
        if array.dtype.kind == "f":
            several = len(answers) > 1
            together = np.concatenate([a[name] for a in answers]) if several else array
            if not np.isfinite(together).all():
                return False
    return True
