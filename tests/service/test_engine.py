"""From a graph to its answer: deadlines, leavers, failures, hangs, and never a blocked loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from model.errors import InvalidGraph
from model.graph import Graph
from service.engine import Engine, Outcome
from service.errors import Full, Gone, Invalid, Late, ModelFailed, NotReady, TooLarge
from service.metrics import Metrics
from service.settings import Settings


def graph(value: float = 0.0, nodes: int = 1) -> Graph:
    return Graph("node-labels", {"x": np.full(nodes, value)}, nodes, 0)


class Fake:
    """Answers each graph with its own values, when the gate is open."""

    name = "fake"
    version = "1"

    def __init__(self, on_value: Callable[[float], None] = lambda value: None) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.entered = threading.Event()
        self._on_value = on_value

    def open_express(self, *_: Any) -> None:
        """There is none: it is run by this class alone."""

    def run(self, graphs: list[Graph], options: Any, device: str) -> list[dict[str, np.ndarray]]:
        self.batches.append(len(graphs))
        self.entered.set()
        assert self.gate.wait(30)
        for each in graphs:
            self._on_value(float(each.arrays["x"][0]))
        return [{"y": each.arrays["x"] * 2} for each in graphs]


@asynccontextmanager
async def started(**changes: Any) -> AsyncIterator[Engine]:
    engine = Engine(Settings(threads=1, **changes), Metrics())
    engine.start()
    yield engine
    await engine.stop()


def ask(engine: Engine, model: Fake, value: float, **more: Any) -> asyncio.Task[Outcome]:
    nodes = more.pop("nodes", 1)
    seconds = more.pop("seconds", 30.0)
    deadline = time.monotonic() + seconds
    return asyncio.create_task(
        engine.predict(model, graph(value, nodes), deadline=deadline, **more)
    )


async def held(engine: Engine, model: Fake, *values: float) -> list[asyncio.Task[Outcome]]:
    """Keep the runner busy with one graph while the others gather behind it."""
    model.gate.clear()
    first = ask(engine, model, 0.0)
    await asyncio.to_thread(model.entered.wait, 10)
    tasks = [ask(engine, model, value) for value in values]
    await asyncio.sleep(0)
    return [first, *tasks]


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_those_who_arrive_in_one_turn_of_the_loop_share_a_run() -> None:
    async def work() -> None:
        model = Fake()
        async with started() as engine:
            await asyncio.gather(*(ask(engine, model, float(n)) for n in range(5)))
            assert model.batches == [5]

    run(work())


def test_those_who_wait_share_one_run_and_each_gets_its_own() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model, 1.0, 2.0, 3.0)
            model.gate.set()
            outcomes = await asyncio.gather(*tasks)
            assert [outcome.arrays["y"][0] for outcome in outcomes] == [0, 2, 4, 6]
            assert model.batches == [1, 3]
            assert outcomes[1].shared == 3
            assert outcomes[1].queue > 0

    run(work())


def test_with_batching_off_everyone_runs_alone() -> None:
    async def work() -> None:
        async with started(batching=False) as engine:
            model = Fake()
            tasks = await held(engine, model, 1.0, 2.0)
            model.gate.set()
            await asyncio.gather(*tasks)
            assert model.batches == [1, 1, 1]

    run(work())


def fail_on_13(error: BaseException) -> Callable[[float], None]:
    def check(value: float) -> None:
        if value == 13:
            raise error

    return check


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("index out of range"), ModelFailed),
        (InvalidGraph("too odd", "graph"), InvalidGraph),
        (MemoryError(), TooLarge),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), TooLarge),
    ],
)
def test_a_failing_graph_is_isolated_from_its_batch(
    error: Exception, expected: type[Exception]
) -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake(fail_on_13(error))
            tasks = await held(engine, model, 1.0, 13.0, 3.0)
            model.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers[2], expected)
            assert [a.arrays["y"][0] for a in answers if isinstance(a, Outcome)] == [0, 2, 6]
            assert model.batches == [1, 3, 1, 1, 1]

    run(work())


def test_an_answer_that_overflows_on_huge_values_is_the_callers_422() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model, float("inf"), 2.0)
            model.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers[1], Invalid)
            assert isinstance(answers[2], Outcome)

    run(work())


def test_an_answer_that_is_not_finite_is_the_models_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Fake):
        def run(self, graphs: list[Graph], *more: Any) -> list[dict[str, np.ndarray]]:
            answers = super().run(graphs, *more)
            return [{"y": np.where(a["y"] == 26, np.nan, a["y"])} for a in answers]

    async def work() -> None:
        async with started() as engine:
            model = Broken()
            tasks = await held(engine, model, 13.0, 2.0)
            model.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers[1], ModelFailed)
            assert isinstance(answers[2], Outcome)

    run(work())
    assert "model fake answered with numbers that are not finite" in caplog.text


def test_a_device_error_makes_the_service_unhealthy() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake(fail_on_13(RuntimeError("CUDA error: device-side assert triggered")))
            with pytest.raises(ModelFailed):
                await ask(engine, model, 13.0)
            assert "only a restart" in (engine.trouble() or "")
            assert engine.health() is not None

    run(work())


def test_cancelled_request_leaves_its_batch_unharmed() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model, 1.0, 2.0, 3.0)
            tasks[2].cancel()
            await asyncio.sleep(0.01)
            model.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers[2], asyncio.CancelledError)
            assert [a.arrays["y"][0] for a in answers if isinstance(a, Outcome)] == [0, 2, 6]
            assert model.batches == [1, 2]

    run(work())


def test_a_caller_who_hangs_up_is_dropped_from_the_queue() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model)
            gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            leaver = ask(engine, model, 9.0, gone=gone)
            await asyncio.sleep(0)
            gone.set_result({"type": "http.disconnect"})
            with pytest.raises(Gone):
                await leaver
            model.gate.set()
            await asyncio.gather(*tasks)
            await ask(engine, model, 1.0)
            assert model.batches == [1, 1]

    run(work())


def test_past_the_deadline_is_504_even_while_the_model_runs() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            model.gate.clear()
            with pytest.raises(Late, match="before the answer was ready"):
                await ask(engine, model, 1.0, seconds=0.02)
            model.gate.set()
            assert (await ask(engine, model, 2.0)).arrays["y"][0] == 4

    run(work())


def test_a_full_house_is_429_with_a_time_to_come_back() -> None:
    async def work() -> None:
        async with started(max_queue=2) as engine:
            engine.in_flight = 2
            with pytest.raises(Full) as caught:
                engine.admit("node-labels")
            assert int(caught.value.headers["Retry-After"]) >= 1

    run(work())


def test_a_backlog_beyond_the_deadline_is_429_at_once() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model, 1.0)
            engine.lanes[0]._pace["fake"] = 100.0
            with pytest.raises(Full, match="need about 100.0 s"):
                await ask(engine, model, 2.0)
            model.gate.set()
            await asyncio.gather(*tasks)

    run(work())


def test_a_deadline_that_has_passed_is_504_on_an_idle_engine() -> None:
    async def work() -> None:
        async with started() as engine:
            with pytest.raises(Late):
                await ask(engine, Fake(), 1.0, seconds=-0.001)
            samples = {s.labels.get("reason"): s.value for s in engine._metrics.samples()
                       if s.name == "splinecnn_rejected_total"}  # fmt: skip
            assert samples == {"late": 1.0}

    run(work())


def test_while_draining_new_work_is_503_and_accepted_work_is_answered() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model, 1.0)
            engine.draining = True
            with pytest.raises(NotReady, match="shutting down"):
                engine.admit("node-labels")
            assert engine.trouble() == "shutting down"
            assert engine.health() is None
            model.gate.set()
            assert len(await asyncio.gather(*tasks)) == 2

    run(work())


def test_a_small_graph_does_not_wait_behind_a_large_one() -> None:
    async def work() -> None:
        async with started(small_nodes=10) as engine:
            slow, quick = Fake(), Fake()
            slow.gate.clear()
            large = ask(engine, slow, 1.0, nodes=11)
            await asyncio.to_thread(slow.entered.wait, 10)
            assert (await ask(engine, quick, 2.0, nodes=10)).arrays["y"][0] == 4
            assert not large.done()
            slow.gate.set()
            await large

    run(work())


def test_the_loop_goes_on_while_a_model_runs() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            model.gate.clear()
            task = ask(engine, model, 1.0)
            await asyncio.to_thread(model.entered.wait, 10)
            for _ in range(100):  # each of these needs the loop
                await asyncio.sleep(0)
            assert not task.done()
            model.gate.set()
            await task

    run(work())


def test_a_runner_that_is_killed_loses_one_batch_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake(fail_on_13(SystemExit()))
            with pytest.raises(NotReady, match="try again"):
                await ask(engine, model, 13.0)
            assert (await ask(engine, model, 1.0)).arrays["y"][0] == 2
            assert engine.health() is None

    run(work())


def test_a_hung_runner_is_noticed_and_replaced() -> None:
    async def work() -> None:
        async with started(stuck_seconds=0.05) as engine:
            hung, fine = Fake(), Fake()
            hung.gate.clear()
            with pytest.raises(Late):
                await ask(engine, hung, 1.0, seconds=0.2)
            assert engine.trouble() == "a model run is stuck"
            engine.tend()
            assert engine.trouble() is None
            assert (await ask(engine, fine, 1.0)).arrays["y"][0] == 2
            hung.gate.set()

    run(work())


def test_too_many_hung_runs_ask_for_a_restart() -> None:
    async def work() -> None:
        async with started(stuck_seconds=0.01) as engine:
            models = [Fake() for _ in range(4)]
            for model in models:
                model.gate.clear()
                with pytest.raises(Late):
                    await ask(engine, model, 1.0, seconds=0.05)
                engine.tend()
            assert "hung" in (engine.health() or "")
            for model in models:
                model.gate.set()

    run(work())


def test_stopping_refuses_what_still_waits() -> None:
    async def work() -> None:
        async with started() as engine:
            model = Fake()
            tasks = await held(engine, model, 1.0)
            stopping = asyncio.create_task(engine.stop())
            await asyncio.sleep(0.01)
            model.gate.set()
            await stopping
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers[0], Outcome)
            assert isinstance(answers[1], NotReady)

    run(work())


def test_a_visit_counts_from_the_door_to_the_answer() -> None:
    async def work() -> None:
        async with started() as engine:
            soon = time.monotonic() + 1
            with engine.admit("mesh") as first, engine.admit("mesh") as second:
                assert engine.in_flight == 2
                first.begin(10**6, soon)
                engine._doors["mesh"].leave(10**6, None)  # as if a second had taken them all
                engine._doors["mesh"].enter(10**6)
                engine._doors["mesh"]._seconds = 1.0
                with pytest.raises(Full, match="need about"):
                    second.begin(10, soon)
                with engine.admit("graph") as other:  # another task has a door of its own
                    other.begin(10, soon)
            assert engine.in_flight == 0
            assert engine._doors["mesh"].inside == engine._doors["graph"].inside == 0

    run(work())
