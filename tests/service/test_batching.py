"""Who runs next, and with whom."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from model.graph import Graph
from service.batching import Budget, Job, Lane
from service.errors import Late


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def graph(nodes: int, edges: int = 0) -> Graph:
    return Graph("node-labels", {"x": np.zeros(nodes)}, nodes, edges)


def job(model: Any, nodes: int, *, options: Any = None, seconds: float = 60) -> Job:
    future: Any = None
    return Job(model, options, graph(nodes), time.monotonic() + seconds, future)


def lane(nodes: int = 10, edges: int = 100, refused: list[Any] | None = None) -> Lane:
    seen = refused if refused is not None else []
    return Lane("test", Budget(nodes, edges), lambda j, e: seen.append((j, e)))


def test_a_single_job_goes_at_once() -> None:
    line, only = lane(), job(Named("a"), 1)
    line.put(only)
    assert line.take() == [only]
    assert line.depth == 0


def test_jobs_share_a_batch_up_to_the_budget() -> None:
    line, model = lane(nodes=10), Named("a")
    jobs = [job(model, 4) for _ in range(4)]
    for each in jobs:
        line.put(each)
    assert line.take() == jobs[:2]
    assert line.take() == jobs[2:]


def test_edges_count_too() -> None:
    line, model = lane(nodes=100, edges=10), Named("a")
    jobs = [Job(model, None, graph(1, 6), time.monotonic() + 9, None) for _ in range(2)]  # type: ignore[arg-type]
    for each in jobs:
        line.put(each)
    assert line.take() == jobs[:1]


def test_a_graph_above_the_budget_runs_alone() -> None:
    line, model = lane(nodes=10), Named("a")
    small, large = job(model, 2), job(model, 50)
    line.put(large)
    line.put(small)
    assert line.take() == [large]
    assert line.take() == [small]


def test_small_graphs_overtake_but_never_starve_a_large_one() -> None:
    line, model = lane(nodes=10), Named("a")
    first, large, second = job(model, 4), job(model, 9), job(model, 4)
    for each in (first, large, second):
        line.put(each)
    assert line.take() == [first, second]
    line.put(job(model, 4))
    assert line.take() == [large]


def test_different_options_never_share_a_batch() -> None:
    line, model = lane(), Named("a")
    one, three = job(model, 1, options=1), job(model, 1, options=3)
    line.put(one)
    line.put(three)
    assert line.take() == [one]
    assert line.take() == [three]


def test_models_take_turns_by_the_time_they_used() -> None:
    line, greedy, modest = lane(nodes=1), Named("greedy"), Named("modest")
    for _ in range(3):
        line.put(job(greedy, 1))
        line.put(job(modest, 1))
    order = []
    for _ in range(6):
        batch = line.take()
        assert batch is not None
        order.append(batch[0].model.name)
        line.charge(batch, 3.0 if batch[0].model is greedy else 1.0)
    assert order[:4] == ["greedy", "modest", "modest", "modest"]


def test_a_model_that_was_idle_has_no_credit_to_spend() -> None:
    line, busy, late = lane(nodes=1), Named("busy"), Named("late")
    for _ in range(3):
        line.put(job(busy, 1))
        line.charge(line.take() or [], 100.0)
    line.put(job(busy, 1))
    line.put(job(late, 1))
    line.put(job(late, 1))
    first = line.take() or []
    line.charge(first, 1.0)
    second = line.take() or []
    assert {first[0].model.name, second[0].model.name} == {"busy", "late"}


def test_one_who_left_is_skipped() -> None:
    line, model = lane(), Named("a")
    gone, here = job(model, 1), job(model, 1)
    line.put(gone)
    line.put(here)
    gone.abandoned = True
    assert line.take() == [here]


def test_one_past_its_deadline_is_refused_and_not_run() -> None:
    refused: list[Any] = []
    line, model = lane(refused=refused), Named("a")
    late, fine = job(model, 1, seconds=-1), job(model, 1)
    line.put(late)
    line.put(fine)
    assert line.take() == [fine]
    assert [(j, type(e)) for j, e in refused] == [(late, Late)]


def test_the_backlog_follows_the_pace_seen() -> None:
    line, model = lane(nodes=5), Named("a")
    assert line.backlog_seconds() == 0
    line.put(job(model, 5000))
    line.charge(line.take() or [], 10.0)
    line.put(job(model, 10_000))
    assert line.backlog_seconds() == 20.0


def test_a_tiny_graph_says_little_of_the_pace() -> None:
    line, model = lane(), Named("a")
    line.put(job(model, 1))
    line.charge(line.take() or [], 0.001)
    line.put(job(model, 10_000))
    assert line.backlog_seconds() < 0.01


def test_a_waiting_runner_wakes_for_work_and_for_closing() -> None:
    line, got = lane(), []
    thread = threading.Thread(target=lambda: got.extend([line.take(), line.take()]))
    thread.start()
    only = job(Named("a"), 1)
    line.put(only)
    line.close()
    thread.join(10)
    assert got == [[only], None]
