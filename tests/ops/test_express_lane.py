"""Graphs through a lane: each its own answer, in batches within a budget, on several threads."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ops import jsontext
from ops.express import Lane, Run, teach

pytestmark = pytest.mark.skipif(not jsontext.NATIVE, reason="the operator is not compiled")


class Sums(nn.Module):
    """Per graph the sums of its features, its positions and its sources as it numbers them."""

    def forward(
        self, features: Tensor, positions: Tensor, edge_index: Tensor, ptr: Tensor
    ) -> tuple[Tensor]:
        if bool((features == 13).any()):
            raise RuntimeError("unlucky")
        rows: list[Tensor] = []
        for graph in range(ptr.numel() - 1):
            first, last = int(ptr[graph]), int(ptr[graph + 1])
            own = (edge_index[1] >= first) & (edge_index[1] < last)
            sources = (edge_index[0][own] - first).sum()
            sums = [features[first:last].sum(), positions[first:last].sum(), sources.float()]
            rows.append(torch.stack(sums))
        return (torch.stack(rows),)


def graph(value: float, nodes: int = 3, edges: int = 4, width: int = 1) -> dict[str, np.ndarray]:
    return {
        "features": np.full((nodes, width), value, np.float32),
        "positions": np.full((nodes, 2), value / 2, np.float32),
        "edge_index": np.stack([np.arange(edges) % nodes] * 2),
    }


def sums(value: float, nodes: int = 3, edges: int = 4, width: int = 1) -> list[float]:
    return [value * nodes * width, value * nodes, float((np.arange(edges) % nodes).sum())]


@pytest.fixture(scope="module")
def script() -> Any:
    module = torch.jit.script(Sums())
    teach(module)
    return module


@pytest.fixture
def wake() -> Iterator[int]:
    number = os.eventfd(0, os.EFD_NONBLOCK)
    yield number
    os.close(number)


def lane(wake: int, **limits: Any) -> Lane:
    return Lane(wake, **{"nodes": 1000, "edges": 1000, "share": 1000, **limits})


def served(lane: Lane, script: Any) -> list[Run]:
    """All that was put into it."""
    lane.close()
    lane.serve(script)
    return list(lane.collect())


def numbers(run: Run) -> list[int]:
    return [number for number, _ in run.tickets]


def test_what_waits_runs_together_and_each_gets_its_own(script: Any, wake: int) -> None:
    found = lane(wake)
    sizes = [(1, 0), (3, 4), (2, 9), (5, 1)]
    for ticket, (nodes, edges) in enumerate(sizes):
        found.put(ticket, graph(ticket + 1.0, nodes, edges))
    (run,) = served(found, script)
    assert numbers(run) == [0, 1, 2, 3]
    assert (run.nodes, run.edges) == (11, 14)
    assert run.answers is not None
    wanted = [sums(at + 1.0, *size) for at, size in enumerate(sizes)]
    np.testing.assert_allclose(run.answers, wanted)
    assert run.seconds > 0 and all(0 <= waited < 60 for _, waited in run.tickets)
    assert os.eventfd_read(wake) == 1


def test_one_wake_is_enough_until_it_is_collected(script: Any, wake: int) -> None:
    found = lane(wake, graphs=1)
    for ticket in range(3):
        found.put(ticket, graph(1.0))
    assert [numbers(run) for run in served(found, script)] == [[0], [1], [2]]
    assert os.eventfd_read(wake) == 1
    assert list(found.collect()) == []


@pytest.mark.parametrize("limits", [{"nodes": 6}, {"edges": 8}, {"graphs": 2}])
def test_a_run_stays_within_its_budget(script: Any, wake: int, limits: dict[str, int]) -> None:
    found = lane(wake, **limits)
    for ticket in range(5):
        found.put(ticket, graph(1.0))
    assert [numbers(run) for run in served(found, script)] == [[0, 1], [2, 3], [4]]


def test_the_oldest_goes_first_and_others_that_fit_may_overtake(script: Any, wake: int) -> None:
    found = lane(wake, nodes=10)
    for ticket, nodes in enumerate([4, 9, 5, 50, 1]):
        found.put(ticket, graph(1.0, nodes))
    assert [numbers(run) for run in served(found, script)] == [[0, 2, 4], [1], [3]]


def test_graphs_of_another_width_do_not_share_a_run(script: Any, wake: int) -> None:
    found = lane(wake)
    for ticket, width in enumerate([1, 2, 1]):
        found.put(ticket, graph(1.0, width=width))
    runs = served(found, script)
    assert [numbers(run) for run in runs] == [[0, 2], [1]]
    np.testing.assert_allclose(runs[1].answers, [sums(1.0, width=2)])


def test_what_is_dropped_does_not_run(script: Any, wake: int) -> None:
    found = lane(wake)
    for ticket in range(3):
        found.put(ticket, graph(1.0))
    assert found.drop(1) and not found.drop(1) and not found.drop(7)
    (run,) = served(found, script)
    assert numbers(run) == [0, 2]


def test_an_error_loses_its_batch_and_no_other(script: Any, wake: int) -> None:
    found = lane(wake, graphs=2)
    for ticket, value in enumerate([1.0, 2.0, 13.0, 4.0, 5.0]):
        found.put(ticket, graph(value))
    found.close()
    with pytest.raises(torch.jit.Error, match="unlucky"):
        found.serve(script)
    found.serve(script)  # as its thread does
    runs = list(found.collect())
    assert [numbers(run) for run in runs] == [[0, 1], [2, 3], [4]]
    assert [run.answers is None for run in runs] == [False, True, False]


def test_answers_that_are_not_finite_are_none(script: Any, wake: int) -> None:
    found = lane(wake)
    found.put(1, graph(float("inf")))
    assert served(found, script)[0].answers is None


def test_a_network_with_too_few_answers_is_told(wake: int) -> None:
    class Short(nn.Module):
        def forward(
            self, features: Tensor, positions: Tensor, edge_index: Tensor, ptr: Tensor
        ) -> tuple[Tensor]:
            return (torch.zeros(1, 2),)

    module = torch.jit.script(Short())
    teach(module)
    found = lane(wake)
    found.put(1, graph(1.0))
    found.put(2, graph(1.0))
    found.close()
    with pytest.raises(RuntimeError, match=r"answers must be \[2, classes\], got \[1, 2\]"):
        found.serve(module)
    assert [run.answers for run in found.collect()] == [None]


@pytest.mark.parametrize(
    "wrong",
    [
        {"positions": np.zeros((2, 2), np.float32)},
        {"positions": np.zeros((3, 3), np.float32)},
        {"edge_index": np.zeros((3, 2), np.int64)},
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(wake: int, wrong: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        lane(wake).put(1, {**graph(1.0), **wrong})


def test_a_lane_that_is_not_there_is_an_error(script: Any) -> None:
    take = torch.ops.splinecnn_express.take
    with pytest.raises(RuntimeError, match="there is no lane -5"):
        take(torch.tensor([-5]))
    with pytest.raises(RuntimeError, match="lane must be int64"):
        take(torch.tensor([1.0]))
    with pytest.raises(RuntimeError, match="lane must be one number"):
        take(torch.tensor([1, 2]))


def test_it_is_known_since_when_a_run_goes_on(wake: int) -> None:
    found = lane(wake)
    assert found.busy_since() == 0
    found.put(1, graph(1.0))
    before = time.monotonic()
    torch.ops.splinecnn_express.take(torch.tensor([found.number]))
    assert before <= found.busy_since() <= time.monotonic()
    torch.ops.splinecnn_express.give(torch.tensor([found.number]), torch.zeros(1, 3))
    assert found.busy_since() == 0


def serving(lane: Lane, script: Any, count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=lane.serve, args=[script]) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_a_second_thread_helps_with_much_work_only(script: Any, wake: int) -> None:
    take, own = torch.ops.splinecnn_express.take, {}

    def helper() -> None:
        own["ptr"] = take(torch.tensor([found.number]))[3].tolist()

    found = lane(wake, threads=2, share=20, patience=60)  # three graphs of seven nodes and edges
    found.put(1, graph(1.0))
    assert take(torch.tensor([found.number]))[3].tolist() == [0, 3]
    other = threading.Thread(target=helper)
    other.start()
    found.put(2, graph(1.0))
    found.put(3, graph(1.0))
    other.join(0.2)
    assert other.is_alive()  # it leaves so little to the first
    for ticket in range(4, 8):
        found.put(ticket, graph(1.0))
    other.join(30)
    assert own["ptr"] == [0, 3, 6, 9]


def test_a_second_thread_helps_behind_a_long_run(wake: int) -> None:
    take = torch.ops.splinecnn_express.take
    found = lane(wake, threads=2, share=10**9, patience=0.02)
    number = torch.tensor([found.number])
    found.put(1, graph(1.0))
    take(number)
    found.put(2, graph(1.0))
    own: list[list[int]] = []
    other = threading.Thread(target=lambda: own.append(take(number)[3].tolist()))
    other.start()
    other.join(30)
    assert own == [[0, 3]] and found.waiting() == 0


@pytest.mark.parametrize("dropped", [True, False])
def test_a_thread_with_nothing_to_do_ends_when_the_lane_is_emptied(
    wake: int, dropped: bool
) -> None:
    take, give = torch.ops.splinecnn_express.take, torch.ops.splinecnn_express.give
    found = lane(wake, threads=2, share=10**9, patience=60)
    number = torch.tensor([found.number])
    found.put(1, graph(1.0))
    take(number)
    found.put(2, graph(1.0))
    other = threading.Thread(target=take, args=[number])
    other.start()
    time.sleep(0.05)
    found.close()
    other.join(0.1)
    assert other.is_alive()  # a graph still waits
    give(number, torch.zeros(1, 3))
    if dropped:
        found.drop(2)
    else:
        take(number)
    other.join(30)
    assert not other.is_alive()


def test_answers_to_nothing_are_an_error(wake: int) -> None:
    found, another = lane(wake), lane(wake)
    give = torch.ops.splinecnn_express.give
    with pytest.raises(RuntimeError, match="nothing was taken from this lane"):
        give(torch.tensor([found.number]), torch.zeros(0, 3))
    found.put(1, graph(1.0))
    torch.ops.splinecnn_express.take(torch.tensor([found.number]))
    with pytest.raises(RuntimeError, match="nothing was taken from this lane"):
        give(torch.tensor([another.number]), torch.zeros(1, 3))
    give(torch.tensor([found.number]), torch.zeros(1, 3))
    assert [numbers(run) for run in found.collect()] == [[1]]


def test_a_run_that_ends_late_writes_to_nobody_elses_file(tmp_path: Path) -> None:
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    found = lane(wake)
    found.put(1, graph(1.0))
    torch.ops.splinecnn_express.take(torch.tensor([found.number]))
    os.close(wake)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        assert file.fileno() == wake
        torch.ops.splinecnn_express.give(torch.tensor([found.number]), torch.zeros(1, 3))
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize("threads", [1, 3])
def test_everyone_is_answered_once_whoever_comes_and_goes(
    script: Any, wake: int, threads: int
) -> None:
    found = lane(wake, graphs=8, threads=threads, share=15)
    helpers = serving(found, script, threads)
    dropped: set[int] = set()

    def put(start: int) -> None:
        for ticket in range(start, start + 300):
            found.put(ticket, graph(float(ticket % 7), 1 + ticket % 3))
            if ticket % 10 == 0 and found.drop(ticket):
                dropped.add(ticket)

    callers = [threading.Thread(target=put, args=[start]) for start in (0, 1000)]
    for caller in callers:
        caller.start()
    answered: dict[int, Any] = {}
    until = time.monotonic() + 60
    while len(answered) + len(dropped) < 600 or any(c.is_alive() for c in callers):
        assert time.monotonic() < until
        for run in found.collect():
            assert run.answers is not None
            for number, row in zip(numbers(run), run.answers, strict=True):
                assert number not in answered
                answered[number] = row
    found.close()
    for thread in [*callers, *helpers]:
        thread.join(30)
        assert not thread.is_alive()
    assert not answered.keys() & dropped
    for number, row in answered.items():
        np.testing.assert_allclose(row, sums(float(number % 7), 1 + number % 3))
