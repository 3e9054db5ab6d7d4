"""JSON to arrays: exact numbers, proven shapes, and limits before copies."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import jsontext
from service import answers, codec
from service.codec import Document, Skimmed, Unusual
from service.errors import BadRequest, Invalid, NotAcceptable, TooLarge
from service.inputs import _read_json
from service.metrics import Metrics
from service.repository import Repository
from service.settings import Settings


def matrix(rows: Any, width: int = 3, *, whole: bool = False, limit: int = 100) -> Any:
    document = Document(orjson.dumps({"rows": rows}))
    found = document.matrix(document.root["rows"], "rows", width, limit, kind="i" if whole else "d")
    document.check_shapes()
    return found


def test_numbers_arrive_exactly() -> None:
    rows = [[0.1, -1e-300, 3], [2**53 - 1, 5e-324, 1.7976931348623157e308]]
    assert (matrix(rows) == np.array(rows)).all()
    whole = [[-(2**63), 2**63 - 1, 0]]
    assert matrix(whole, whole=True).tolist() == whole


def test_even_rows_are_proven_without_looking_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(*_: object) -> None:
        raise AssertionError("the rows were walked one by one")

    monkeypatch.setattr(codec, "_find_bad_row", walk)
    assert matrix([[1, 2, 3]] * 50).shape == (50, 3)


def test_what_no_walk_explains_is_refused_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the walks that name the row: no number must pass because one of them is blind."""
    monkeypatch.setattr(codec, "_find_bad_row", lambda *_: None)
    monkeypatch.setattr(codec, "_find_bad_number", lambda *_: None)
    for rows, whole, message in (
        ([[1, 2]], False, "must hold rows of 3 numbers"),
        ([[1, 2, "3"]], False, "must hold numbers only"),
        ([[1, 2, 2.5]], True, "must hold whole numbers only"),
    ):
        with pytest.raises(Invalid, match=f"^{message}$") as caught:
            matrix(rows, whole=whole)
        assert [error.path for error in caught.value.errors] == ["rows"]


@pytest.mark.parametrize("error", [RuntimeError, RecursionError])
def test_arrays_too_deep_for_the_parser_are_the_callers_fault(error: type[Exception]) -> None:
    class Deep:
        def as_buffer(self, of_type: str) -> bytes:
            raise error

    with pytest.raises(Invalid, match="^is nested too deeply$") as caught:
        codec._flatten(Deep(), "rows", whole=True)
    assert [error.path for error in caught.value.errors] == ["rows"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [[1,2,3],[4,5,6]], "note": "a \\" quote"}',
        b'{"note": "[[,,],[,,]]", "rows": [[1,2,3],[4,5,6]]}',
        b'{ "rows" : [ [ 1 , 2 , 3 ] ,\n[4,5,6] ] , "z": [1] }',
    ],
)
def test_where_the_quick_proof_fails_the_rows_are_walked(body: bytes) -> None:
    document = Document(body)
    document.matrix(document.root["rows"], "rows", 3, 10, kind="d")
    document.check_shapes()


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        ([[1, 2], [3, 4, 5, 6]], "rows[0]"),
        ([[1, 2, 3], [4, 5, 6, 7], [8, 9]], "rows[1]"),
        ([[[1], 2, 3]], "rows[0][0]"),
        ([[1, [2, 3]], [4, 5, 6]], "rows[0]"),
    ],
)
def test_ragged_rows_that_add_up_are_found(rows: Any, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        matrix(rows)
    assert caught.value.errors[0].path == path


def test_the_length_is_checked_before_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_flatten", lambda *_: pytest.fail("copied"))
    with pytest.raises(TooLarge, match="at most 2 rows, got 3"):
        matrix([[1, 2, 3]] * 3, limit=2)


def test_ragged_rows_keep_their_lengths() -> None:
    document = Document(b'{"rows": [[5], [], [6, 7]]}')
    flat, offsets = document.ragged(document.root["rows"], "rows", 10, whole=True)
    assert flat.tolist() == [5, 6, 7]
    assert offsets.tolist() == [0, 1, 1, 3]
    for body in (b'{"rows": [[5], [[6, 7]]]}', b'{"rows": [[5], [[6]]]}'):
        nested = Document(body)
        with pytest.raises(Invalid, match="must be a number, got an array") as caught:
            nested.ragged(nested.root["rows"], "rows", 10, whole=True)
        assert [error.path for error in caught.value.errors] == ["rows[1][0]"]


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", answers.JSON),
        ("*/*", answers.JSON),
        ("text/html, */*;q=0.1", answers.JSON),
        ("application/octet-stream", answers.RAW),
        ("application/json;q=0.5, application/x-npy", answers.NPY),
        ("application/x-npy;q=0, application/json", answers.JSON),
    ],
)
def test_the_answer_comes_in_the_form_preferred(accept: str, media: str) -> None:
    assert answers.negotiate(accept) == media


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "application/json;q=x"])
def test_no_common_form_is_406(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        answers.negotiate(accept)


def test_what_is_not_json_is_said_plainly() -> None:
    with pytest.raises(BadRequest, match="not valid JSON"):
        Document(b'{"a": tru}')


numbers = st.one_of(
    st.integers(-5, 40),
    st.floats(-1e3, 1e3),
    st.just(1e31),
    st.just(10**19),
    st.none(),
    st.just("7"),
)
rows = st.one_of(
    st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=2), max_size=6),
    st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=2), max_size=6),
    st.lists(st.lists(numbers, max_size=3), max_size=4),
    numbers,
)
graphs = st.fixed_dictionaries(
    {"num_nodes": st.sampled_from([1, 6, 6, 6, "6"])},
    optional={
        "edges": rows,
        "features": st.one_of(
            rows,
            st.just([[0.5]] * 6),
            st.fixed_dictionaries(
                {"size": st.just(12), "indices": rows}, optional={"values": rows}
            ),
        ),
        "positions": st.one_of(rows, st.just([[1, 2]] * 6)),
        "undirected": st.booleans(),
        "tea": rows,
    },
)


@pytest.fixture(scope="session")
def toy_models(toy_bundles: Path) -> dict[str, Any]:
    repository = Repository(Settings(models=toy_bundles, threads=1), Metrics())
    repository.load_all()
    return {model.task: model for model in repository.models()}


def read_by(document: type, task: str, body: bytes, model: Any) -> Any:
    """What is read of a body, or what is said of it."""
    try:
        found = _read_json(task, document(body), {}, Settings(), lambda task, name: model)
    except Unusual:
        return Unusual
    except Exception as error:
        return type(error), str(error)
    return {name: array.tolist() for name, array in found.graph.arrays.items()}


@pytest.mark.skipif(not jsontext.NATIVE, reason="the operator is not compiled")
@settings(max_examples=400, deadline=None)
@given(graphs, st.sampled_from(["node-labels", "graph-label"]), st.booleans(), st.data())
def test_what_is_skimmed_is_what_a_full_parser_reads(
    toy_models: dict[str, Any], graph: dict[str, Any], task: str, spoil: bool, data: st.DataObject
) -> None:
    body = json.dumps({"graph": graph}).encode()
    if spoil:
        at = data.draw(st.integers(0, len(body) - 1))
        body = (
            body[:at]
            + data.draw(st.sampled_from([b"", b"[", b"]", b",", b"0", b'"']))
            + body[at + 1 :]
        )
    model = toy_models[task]
    try:
        skimmed = Skimmed(body)
    except Unusual:
        return
    ours = read_by(Skimmed, task, body, model)
    if ours is not Unusual and (not isinstance(ours, tuple) or _proven(skimmed, task, model)):
        assert ours == read_by(Document, task, body, model)


def _proven(skimmed: Skimmed, task: str, model: Any) -> bool:
    with suppress(Exception):
        _read_json(task, skimmed, {}, Settings(), lambda task, name: model)
    return skimmed.proven
