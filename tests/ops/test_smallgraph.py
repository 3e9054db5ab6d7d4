"""Small graphs out of JSON text: what the long way makes of them, or nothing at all."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import InvalidGraph
from model.tasks import label_graph
from ops import smallgraph
from ops.smallgraph import Block, SmallGraph, read_graph, take_graph

pytestmark = pytest.mark.skipif(not smallgraph.NATIVE, reason="the operator is not compiled")

MOST = 1000
GRAPH: dict[str, Any] = {
    "num_nodes": 3,
    "edges": [[0, 1], [2, 1], [1, 0], [2, 2], [2, 1]],
    "features": [[1], [0.5], [-2e-3]],
    "positions": [[0, 0], [1.25, 3], [7, -1]],
}


def read(document: Any, most_nodes: int = MOST, most_edges: int = MOST) -> SmallGraph | None:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_graph(text, most_nodes, most_edges)


def changed(**fields: Any) -> dict[str, Any]:
    return {"graph": {**GRAPH, **fields}}


def test_a_graph_is_read_whole():
    found = read({"model": "digits", "graph": GRAPH})
    assert found is not None
    assert found.arrays.num_nodes == 3 and found.model == "digits"
    assert found.arrays["edge_index"].tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert found.arrays["features"].tolist() == np.float32([[1], [0.5], [-2e-3]]).tolist()
    assert found.arrays["positions"].tolist() == [[0, 0], [1.25, 3], [7, -1]]


def test_edges_may_have_a_direction_or_not_be_there():
    found = read(changed(undirected=False))
    assert found is not None and found.arrays["edge_index"].tolist() == [[1, 0, 2], [0, 1, 1]]
    found = read(changed(edges=[]))
    assert found is not None and found.arrays["edge_index"].shape == (2, 0) and found.model is None


number = st.floats(-1e30, 1e30) | st.integers(-1000, 1000)


@st.composite
def graphs(draw: Any) -> dict[str, Any]:
    """Mostly sound ones; a few with too many rows or with nodes that do not exist."""
    count = draw(st.integers(1, 6))
    rows = count + draw(st.sampled_from([0, 0, 0, 0, 1]))
    width = draw(st.integers(1, 3))
    node = st.integers(0, count - 1 + draw(st.sampled_from([0, 0, 0, 0, 1])))
    graph = {
        "num_nodes": count,
        "edges": draw(st.lists(st.tuples(node, node), max_size=20)),
        "features": draw(_rows(rows, width)),
        "positions": draw(_rows(count, 2)),
        "undirected": draw(st.booleans()),
    }
    return {name: graph[name] for name in draw(st.permutations(list(graph)))}


def _rows(count: int, width: int) -> Any:
    row = st.lists(number, min_size=width, max_size=width)
    return st.lists(row, min_size=count, max_size=count)


@settings(deadline=None, max_examples=300)
@given(graphs(), st.sampled_from([None, (",", ":"), (" ,\n", "\t: ")]))
def test_it_is_what_the_long_way_makes_of_it(graph: dict[str, Any], separators: Any) -> None:
    found = read(json.dumps({"graph": graph}, separators=separators).encode())
    try:
        wanted = label_graph(**graph)
    except InvalidGraph:
        assert found is None
        return
    assert found is not None and found.arrays.num_nodes == wanted.num_nodes
    for name in ("edge_index", "features", "positions"):
        got = found.arrays[name]
        assert got.dtype == wanted.arrays[name].dtype
        assert got.shape == wanted.arrays[name].shape
        assert got.tobytes() == np.ascontiguousarray(wanted.arrays[name]).tobytes()


@pytest.mark.parametrize(
    "bad",
    [
        changed(num_nodes=4), changed(num_nodes=2), changed(num_nodes=0), changed(num_nodes=3.0),
        changed(num_nodes=True), changed(num_nodes="3"), changed(edges=[[0, 3]]),
        changed(edges=[[-1, 0]]), changed(edges=[[0, 1, 2]]), changed(edges=[[0.5, 1]]),
        changed(edges=[0, 1]), changed(edges=[[0, 1], []]), changed(edges=[[0, 2**40]]),
        changed(edges=None), changed(features=[[1], [2], [3, 4]]), changed(features=[[1], [2]]),
        changed(features=[[], [], []]), changed(features=[[1], [2], [None]]),
        changed(features=[[1], [2], [1e31]]), changed(features={"size": 1, "indices": [[0]] * 3}),
        changed(positions=[[0, 0, 0]] * 3), changed(positions=[[0], [0], [0]]),
        changed(undirected=1), changed(undirected="true"), changed(pseudo=[[0.5]] * 5),
        changed(unknown=1), {"graph": GRAPH, "model": 3}, {"graph": GRAPH, "model": None},
        {"graph": GRAPH, "model": "\u00e4"}, {"graph": GRAPH, "include": ["graph"]},
        {"graph": GRAPH, "top_k": 1}, {"graph": [GRAPH]}, {"model": "digits"}, {}, [GRAPH],
        *({"graph": {k: v for k, v in GRAPH.items() if k != name}} for name in GRAPH),
        b"", b"{", b"null", b'{"graph":{}}', b'{"graph":{"num_nodes":1,}}',
        json.dumps({"graph": GRAPH}).encode() + b"x",
        json.dumps({"graph": GRAPH}).encode()[:-1] + b',"graph":{}}',
        json.dumps(changed()).encode().replace(b'"num_nodes"', b'"num_nodes":3,"num_nodes"'),
        json.dumps(changed()).encode().replace(b"num_nodes", b"num_nod\\u0065s"),
        json.dumps(changed()).encode().replace(b"0.5", b"NaN"),
        json.dumps(changed()).encode().replace(b"0.5", b"00.5"),
    ],
)  # fmt: skip
def test_whatever_else_it_is_is_left_to_others(bad: Any) -> None:
    assert read(bad) is None


def test_every_beginning_of_a_text_is_refused():
    text = json.dumps({"model": "digits", "graph": {**GRAPH, "undirected": True}}).encode()
    assert read(text) is not None
    assert all(read(text[:end]) is None for end in range(len(text)))


def test_limits_are_those_of_the_caller():
    assert read({"graph": GRAPH}, most_nodes=2) is None
    assert read({"graph": GRAPH}, most_edges=9) is None  # five, both ways
    assert read({"graph": GRAPH}, most_edges=10) is not None
    assert read(changed(undirected=False), most_edges=5) is not None


def test_a_text_that_came_in_parts_is_read_too():
    assert read_graph(bytearray(json.dumps({"graph": GRAPH}).encode()), MOST, MOST) is not None


def test_large_texts_are_for_others():
    assert read({"graph": GRAPH, "model": "m" * 70_000}) is None


def arrays(graph: dict[str, Any]) -> dict[str, Any]:
    """What `take_graph` is given for it, each array where no number would stand by itself."""
    kinds = {"features": np.float32, "positions": np.float32, "edges": np.int64}
    given = {name: np.asarray(graph[name], kind) for name, kind in kinds.items()}
    pairs = given.pop("edges").reshape(-1, 2)
    given["edge_index"] = np.ascontiguousarray(pairs.T)
    return {name: shifted(array) for name, array in given.items()}


def shifted(array: Any) -> Any:
    behind = memoryview(b"x" + array.tobytes())[1:]
    return np.frombuffer(behind, array.dtype).reshape(array.shape)


def take(undirected: bool = True, most: int = MOST, **given: Any) -> Block | None:
    return take_graph(**{**arrays(GRAPH), **given}, undirected=undirected,
                      most_nodes=most, most_edges=MOST)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(graphs())
def test_arrays_become_what_the_long_way_makes_of_them(graph: dict[str, Any]) -> None:
    given = arrays(graph)
    count = len(given["features"])
    undirected = graph["undirected"]
    try:
        wanted = label_graph(count, given["edge_index"].T, given["features"], given["positions"],
                             undirected)  # fmt: skip
    except InvalidGraph:
        assert take(undirected, **given) is None
        return
    found = take(undirected, **given)
    assert found is not None and found.num_nodes == count
    for name in wanted.arrays:
        assert found[name].tobytes() == np.ascontiguousarray(wanted.arrays[name]).tobytes()


def test_other_arrays_are_left_to_others():
    plain = arrays(GRAPH)
    assert take() is not None
    assert take(most=2) is None
    assert take_graph(**plain, undirected=True, most_nodes=MOST, most_edges=9) is None
    for name, array in plain.items():
        wide = np.int32 if name == "edge_index" else np.float64
        assert take(**{name: array.astype(wide)}) is None
        assert take(**{name: array[:, :0]}) is None or name == "edge_index"
        assert take(**{name: np.concatenate([array, array])}) is None
        assert take(**{name: np.asfortranarray(np.repeat(array, 2, 1))}) is None
    for number in (np.nan, np.inf, 1.1e30, -1.1e30):
        for name in ("features", "positions"):
            spoilt = plain[name].copy()
            spoilt[-1, -1] = number
            assert take(**{name: spoilt}) is None
    for node in (-1, 3, 2**40):
        spoilt = plain["edge_index"].copy()
        spoilt[0, -1] = node
        assert take(edge_index=spoilt) is None
    many = np.zeros((9000, 2), np.float32)
    assert take(features=many, positions=many, most=9000) is None
