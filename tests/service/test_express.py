"""The express way: the bits of the long way, the same refusals, and nothing that can hang it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_toys import picture

import ops
from model.bundle import open_bundle
from model.graph import Graph
from model.request import request_graph
from ops.express import Lane
from service.batching import Budget
from service.engine import Engine, Outcome
from service.errors import Gone, Invalid, Late, ModelFailed, NotReady
from service.express import Express
from service.metrics import Metrics
from service.models import Model
from service.runner import TorchScriptRuntime
from service.settings import Settings

pytestmark = pytest.mark.skipif(not ops.NATIVE, reason="the operator is not compiled")
NAME = "mnist-superpixels"


def graph(nodes: int, seed: int = 0) -> Graph:
    return request_graph("graph-label", {"graph": picture(nodes, seed)}, 1)


def load(bundles: Path, **changes: Any) -> Model:
    settings = Settings(models=bundles, threads=1, **changes)
    model = Model(open_bundle(bundles / NAME / "1"), settings)
    model.learn_pace(graph(20), settings.devices[0])
    model.learn_to_serve(graph(20))
    return model


@asynccontextmanager
async def started(**changes: Any) -> AsyncIterator[Engine]:
    engine = Engine(Settings(threads=1, **changes), Metrics())
    engine.start()
    yield engine
    await engine.stop()


def ask(engine: Engine, model: Any, each: Graph, **more: Any) -> asyncio.Task[Outcome]:
    deadline = time.monotonic() + more.pop("seconds", 30.0)
    return asyncio.create_task(engine.predict(model, each, deadline=deadline, **more))


def express_of(engine: Engine, model: Any) -> Express:
    express = engine._express_of(model)
    assert express is not None
    return express


class Held:
    """A model whose shared runs wait until they are let go, and then fail if they are told to."""

    def __init__(self, model: Model) -> None:
        self.name, self.version = model.name, model.version
        self.let_go = threading.Event()
        self.entered = threading.Event()
        self.fails = False
        self.alone: list[int] = []
        self._model = model

    def serve(self, lane: Lane) -> None:
        assert self._model._quick is not None
        self.entered.set()
        assert self.let_go.wait(30)
        if self.fails:
            self.fails = False
            raise RuntimeError("once")
        self._model._quick.serve(lane)

    def open_express(self, wake: int, budget: Budget) -> Express:
        return Express(self.name, self.serve, wake, budget, 1, 10**9)

    def run(self, graphs: list[Graph], options: Any, device: str) -> list[dict[str, np.ndarray]]:
        self.alone.append(len(graphs))
        return self._model.run(graphs, options, device)


def with_engine(work: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    async def run() -> None:
        async with started(**settings) as engine:
            await work(engine, *arguments)

    asyncio.run(run())


def test_answers_have_the_bits_of_the_long_way(toy_bundles: Path) -> None:
    model = load(toy_bundles)
    graphs = [graph(20 + seed, seed) for seed in range(12)]
    alone = [model.run([each], None, "cpu")[0]["probabilities"] for each in graphs]

    async def work(engine: Engine) -> None:
        held = Held(model)
        asked = [ask(engine, held, each) for each in graphs]
        await asyncio.sleep(0)  # all are put
        held.let_go.set()
        outcomes = await asyncio.gather(*asked)
        for outcome, wanted in zip(outcomes, alone, strict=True):
            np.testing.assert_array_equal(outcome.arrays["probabilities"], wanted)
            assert outcome.run > 0 and outcome.queue >= 0
        assert all(outcome.shared == len(graphs) for outcome in outcomes)
        samples = {(s.name, s.labels.get("model")): s.value for s in engine._metrics.samples()}
        assert samples["splinecnn_batch_nodes_sum", NAME] == sum(g.num_nodes for g in graphs)
        assert express_of(engine, held).depth == 0

    with_engine(work)


def test_only_small_graphs_of_networks_that_can_go_this_way(
    toy_bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(toy_bundles, batching=False).open_express(-1, Budget(1, 1)) is None
    model = load(toy_bundles)
    monkeypatch.setattr(ops, "NATIVE", False)
    assert load(toy_bundles).open_express(-1, Budget(1, 1)) is None

    async def work(engine: Engine) -> None:
        held = Held(model)
        await ask(engine, held, graph(30))  # its lane would wait for ever
        assert held.alone == [1]

    with_engine(work, small_nodes=20)


def test_a_network_of_another_form_is_left_to_runners(toy_bundles: Path) -> None:
    class One(ops.torch.nn.Module):
        def forward(self, features: Any, positions: Any, edge_index: Any, ptr: Any) -> Any:
            return features

    model = load(toy_bundles)
    (runtime,) = model._runtimes.values()
    assert isinstance(runtime, TorchScriptRuntime)
    assert not runtime.teach()  # it has a `serve` by now
    runtime._module = ops.torch.jit.script(One())
    assert not runtime.teach()


def test_what_fails_in_company_is_done_again_by_a_runner(toy_bundles: Path) -> None:
    model = load(toy_bundles)

    async def work(engine: Engine) -> None:
        fine, huge = graph(20), graph(25, 1)
        arrays = {**huge.arrays, "features": np.full((25, 1), np.float32("inf"))}
        huge = Graph(huge.task, arrays, huge.num_nodes, huge.num_edges)
        broken = {**fine.arrays, "features": np.zeros((20, 5), np.float32)}
        wide = Graph(fine.task, broken, fine.num_nodes, fine.num_edges)
        answers = await asyncio.gather(
            *(ask(engine, model, each) for each in (fine, huge, wide, fine)), return_exceptions=True
        )
        assert isinstance(answers[1], Invalid) and "so large" in str(answers[1])
        assert isinstance(answers[2], ModelFailed)
        wanted = model.run([fine], None, "cpu")[0]["probabilities"]
        for answer in (answers[0], answers[3]):
            assert isinstance(answer, Outcome)
            np.testing.assert_array_equal(answer.arrays["probabilities"], wanted)
        assert engine.health() is None

    with_engine(work)


def test_a_thread_survives_what_its_network_raises(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        held.fails = True
        held.let_go.set()
        assert (await ask(engine, held, graph(20))).shared == 1
        assert not held.fails and express_of(engine, held).is_alive()

    with_engine(work)


def test_who_leaves_or_is_late_is_taken_out(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        leaver = ask(engine, held, graph(20), gone=gone)
        late = ask(engine, held, graph(20), seconds=0.02)
        cancelled = ask(engine, held, graph(20))
        stays = ask(engine, held, graph(20))
        await asyncio.sleep(0)
        assert express_of(engine, held).depth == 4
        gone.set_result(None)
        cancelled.cancel()
        with pytest.raises(Gone):
            await leaver
        with pytest.raises(Late):
            await late
        assert express_of(engine, held).depth == 1
        held.let_go.set()
        assert (await stays).shared == 1
        assert express_of(engine, held).backlog_seconds() == 0

    with_engine(work)


def test_a_hung_run_is_noticed_and_what_waits_goes_another_way(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        model = load(toy_bundles)
        held = Held(model)
        express = express_of(engine, held)
        # as a network does that takes a batch and never comes back
        first = ask(engine, held, graph(20), seconds=0.3)
        await asyncio.sleep(0)
        hung = threading.Thread(
            target=ops.torch.ops.splinecnn_express.take,
            args=[ops.torch.tensor([express.lane.number])],
        )
        hung.start()
        hung.join(10)
        behind = ask(engine, held, graph(20))
        await asyncio.sleep(0.06)
        assert engine.trouble() == "a model run is stuck"
        engine.tend()
        assert (await behind).shared == 1
        assert held.alone == [1]
        assert engine.trouble() is None
        with pytest.raises(Late):
            await first
        held.let_go.set()

    with_engine(work, stuck_seconds=0.05)


def test_a_run_that_was_taken_for_hung_may_still_answer(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        express = express_of(engine, held)
        asked = ask(engine, held, graph(20))
        await asyncio.sleep(0)
        lane = ops.torch.tensor([express.lane.number])
        splinecnn = ops.torch.ops.splinecnn_express
        splinecnn.take(lane)
        await asyncio.sleep(0.06)
        engine.tend()
        assert express_of(engine, held) is not express
        splinecnn.give(lane, ops.torch.full((1, 10), 0.1))
        assert (await asked).arrays["probabilities"].tolist() == [[np.float32(0.1)] * 10]
        held.let_go.set()
        await asyncio.to_thread(express.join, 10)
        engine.tend()
        assert engine._retired == []

    with_engine(work, stuck_seconds=0.05)


def test_answers_whose_telling_failed_are_told_by_and_by(
    toy_bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is woken for a run while others before it still wait to be collected."""

    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        express = express_of(engine, held)
        asked = ask(engine, held, graph(20))
        await asyncio.sleep(0)
        collect = Express.collect
        failed: list[Express] = []

        def fail(each: Express) -> Any:
            failed.append(each)
            raise MemoryError

        monkeypatch.setattr(Express, "collect", fail)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        lane = ops.torch.tensor([express.lane.number])
        ops.torch.ops.splinecnn_express.take(lane)
        ops.torch.ops.splinecnn_express.give(lane, ops.torch.full((1, 10), 0.1))
        await asyncio.sleep(0.05)
        assert failed and not asked.done()
        monkeypatch.setattr(Express, "collect", collect)
        engine.tend()
        assert (await asked).shared == 1
        held.let_go.set()

    with_engine(work)


def test_a_graph_that_cannot_be_copied_leaves_nothing_behind(
    toy_bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        express = express_of(engine, held)
        monkeypatch.setattr("ops.express._put", lambda *_: 0)
        with pytest.raises(MemoryError, match="could not be copied"):
            await ask(engine, held, graph(20))
        assert express.depth == 0 and express.backlog_seconds() == 0 and not express._jobs
        held.let_go.set()

    with_engine(work)


def test_a_graph_of_many_edges_is_not_small(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        dense = graph(30)
        assert dense.num_edges > 20
        await ask(engine, held, dense)  # the express lane would keep it for ever
        assert held.alone == [1]
        assert engine.lanes[1]._pace and not engine.lanes[0]._pace

    with_engine(work, batch_edges=20)


def test_its_threads_end_with_the_model(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        model = load(toy_bundles)
        await ask(engine, model, graph(20))
        express = express_of(engine, model)
        assert [thread.name for thread in express._threads] == [f"express-{NAME}-0"]
        del model
        gc.collect()
        await asyncio.to_thread(express.join, 10)
        assert not express.is_alive()
        assert engine._expresses() == []

    with_engine(work)


def test_stopping_refuses_what_still_waits(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        waiting = ask(engine, held, graph(20))
        await asyncio.sleep(0)
        express = express_of(engine, held)
        stopping = asyncio.create_task(engine.stop())
        with pytest.raises(NotReady, match="stopping"):
            await waiting
        held.let_go.set()
        await stopping
        assert not express.is_alive()

    with_engine(work)


def test_nothing_new_begins_once_it_stops(toy_bundles: Path) -> None:
    async def work(engine: Engine) -> None:
        held = Held(load(toy_bundles))
        express = express_of(engine, held)
        running = ask(engine, held, graph(20))
        await asyncio.sleep(0)
        lane = ops.torch.tensor([express.lane.number])
        ops.torch.ops.splinecnn_express.take(lane)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        with pytest.raises(NotReady, match="stopping"):
            await ask(engine, held, graph(20))
        # this would be done again by a runner
        ops.torch.ops.splinecnn_express.give(lane, ops.torch.full((1, 10), np.nan))
        with pytest.raises(NotReady, match="stopping"):
            await running
        held.let_go.set()
        await stopping
        assert engine.left_behind == 0

    with_engine(work)
