"""Shares of a batch: what they hold, how they fail, and the threads that run them."""

from __future__ import annotations

import threading

import pytest
from service_toys import picture

from model.graph import GRAPH_LABEL
from model.request import request_graph
from service.shares import side_by_side, split

GRAPHS = [
    request_graph(GRAPH_LABEL, {"graph": picture(nodes, nodes)}, 1)
    for nodes in (40, 9, 9, 9, 12, 300, 9, 20)
]


def size(graphs: list) -> int:
    return sum(graph.num_nodes + graph.num_edges for graph in graphs)


@pytest.mark.parametrize("count", range(1, len(GRAPHS) + 1))
def test_shares_keep_the_order_and_none_is_empty(count: int) -> None:
    shares = split(GRAPHS, count)
    assert [id(graph) for share in shares for graph in share] == [id(graph) for graph in GRAPHS]
    assert len(shares) == count and all(shares)


def test_shares_are_of_about_the_same_size() -> None:
    for graphs in (GRAPHS[1:4] * 8, GRAPHS * 8):
        for count in (2, 3, 4):
            shares = [size(share) for share in split(graphs, count)]
            largest = max(size([graph]) for graph in graphs)
            assert max(shares) - min(shares) <= 2 * largest


def test_each_work_has_a_thread_of_its_own_and_the_same_one_again() -> None:
    meeting = threading.Barrier(3, timeout=20)  # passed only by three at once

    def work() -> int:
        meeting.wait()
        return threading.get_ident()

    first, again = side_by_side([work] * 3), side_by_side([work] * 3)
    assert first == again and len(set(first)) == 3
    assert first[0] == threading.get_ident()


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_is_raised_once_every_share_has_ended(failing: int) -> None:
    ended = []

    def fail() -> None:
        raise RuntimeError("spoilt")

    def succeed() -> None:
        threading.Event().wait(0.05)
        ended.append(True)

    works = [succeed, succeed]
    works[failing] = fail
    with pytest.raises(RuntimeError, match="spoilt"):
        side_by_side(works)
    assert ended == [True]
    assert side_by_side([lambda: 1, lambda: 2]) == [1, 2]  # the helper lives on


def test_helpers_end_with_the_thread_they_help() -> None:
    helpers: list[threading.Thread] = []

    def runner() -> None:
        side_by_side([lambda: None, lambda: helpers.append(threading.current_thread())])

    thread = threading.Thread(target=runner)
    thread.start()
    thread.join()
    helpers[0].join(20)
    assert not helpers[0].is_alive()
