"""Arrays cut out of JSON text: the numbers a full parser finds, or nothing at all."""

import json
import math

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import jsontext

pytestmark = pytest.mark.skipif(not jsontext.NATIVE, reason="the operator is not compiled")

floats = st.floats(allow_nan=False, allow_infinity=False)
small = st.floats(-1e30, 1e30)
whole = st.integers(-(10**18) + 1, 10**18 - 1)
spaces = st.sampled_from(["", " ", "\n", "\t \r\n"])


def only(text: str | bytes) -> tuple[jsontext.Text, jsontext.Cut]:
    """The single array of an object, as our reader sees it."""
    raw = text.encode() if isinstance(text, str) else text
    found = jsontext.cut(raw)
    assert found is not None and len(found.cuts) == 1
    return found, found.cuts[0]


def matrix(rows: str, width: int, kind: str) -> list[list[float]] | None:
    found, cut = only('{"a":' + rows + "}")
    array = found.matrix(cut, width, kind)
    return None if array is None else array.tolist()


@settings(deadline=None)
@given(st.lists(st.lists(floats, min_size=3, max_size=3), min_size=1), spaces, spaces)
def test_floats_are_those_python_reads(rows: list[list[float]], comma: str, colon: str) -> None:
    text = json.dumps(rows, separators=(f"{comma},{comma}", f":{colon}"))
    assert matrix(text, 3, "d") == rows


@settings(deadline=None)
@given(st.text("0123456789", min_size=1, max_size=40), st.integers(-320, 300))
def test_long_numbers_are_rounded_correctly(digits: str, exponent: int) -> None:
    number = f"{digits[0]}.{digits[1:] or 0}e{exponent}"
    value = float(number)
    got = matrix(f"[[{number}]]", 1, "d")
    assert got == [[value]] or (got is None and (value == 0 or value < 1e-307 or value > 1e308))


@settings(deadline=None)
@given(st.lists(st.lists(small, min_size=2, max_size=2), min_size=1))
def test_single_precision_is_rounded_from_double(rows: list[list[float]]) -> None:
    expected = np.array(rows).astype(np.float32)
    assert matrix(json.dumps(rows), 2, "f") == expected.tolist()


@settings(deadline=None)
@given(st.lists(st.lists(whole, min_size=2, max_size=2), min_size=1))
def test_whole_numbers_are_exact(rows: list[list[int]]) -> None:
    assert matrix(json.dumps(rows), 2, "i") == rows


@settings(deadline=None)
@given(st.lists(st.lists(whole, max_size=4)))
def test_rows_of_any_length_have_offsets(rows: list[list[int]]) -> None:
    found, cut = only(orjson.dumps({"a": rows}))
    got = found.ragged(cut, "i")
    assert got is not None
    flat, offsets = got
    assert [flat[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)] == rows


@pytest.mark.parametrize(
    "bad",
    [
        "[[1,2],[3]]", "[[1],[2,3],[4]]", "[[1,2,3]]", "[[1,2],3]", "[[1,2]", "[[1,2]]]",
        "[[1,,2]]", "[[1,2],]", "[[1 2]]", "[[,1]]", "[[1,2][3,4]]", "[[[1,2]]]", "[1,2]",
        "[[01,2]]", "[[1.,2]]", "[[.5,2]]", "[[+1,2]]", "[[1e,2]]", "[[-,2]]", "[[1,NaN]]",
        "[[1,null]]", "[[1,true]]", "[[1,1e400]]", "[[0x1,2]]", "[[1,2]x]", "[[1\u00a0,2]]",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_others(bad: str) -> None:
    found = jsontext.cut(('{"a":' + bad + "}").encode())
    if found is None or len(found.cuts) != 1:
        return
    if found.rest != b'{"a":[0]}':
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(found.rest)
        return
    assert found.matrix(found.cuts[0], 2, "d") is None


@pytest.mark.parametrize("bad", ["[[1.0]]", "[[1e3]]", "[[1234567890123456789]]", "[[-]]", "[[]]"])
def test_what_is_not_whole_is_left_to_others(bad: str) -> None:
    assert matrix(bad, 1, "i") is None


def test_too_large_for_single_precision_is_left_to_others() -> None:
    assert matrix("[[1e30]]", 1, "f") == [[float(np.float32(1e30))]]
    assert matrix("[[1.1e30]]", 1, "f") is None


def test_the_rest_keeps_strings_and_numbers_its_arrays() -> None:
    text = rb'{"a\"[":"[1,2]\\","b":[[1]], "c" : {"d":[ ],"e":[1,2]}}'
    found = jsontext.cut(text)
    assert found is not None
    assert orjson.loads(found.rest) == {'a"[': "[1,2]\\", "b": [0], "c": {"d": [1], "e": [2]}}
    assert found.colons == 5
    flat = found.flat(found.cuts[2], "d")
    assert flat is not None and flat.tolist() == [1, 2]
    empty = found.flat(found.cuts[1], "d")
    assert empty is not None and empty.size == 0


@pytest.mark.parametrize("text", [b'"', b'"\\', b'{"a":["', b'{"a":[', b"[" * 40, b'{"a":[}'])
def test_text_that_ends_too_soon_is_left_to_others(text: bytes) -> None:
    found = jsontext.cut(text)
    if found is not None:
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(found.rest)


def test_a_bytearray_is_read_where_it_lies() -> None:
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    found, cut = only(bytearray(orjson.dumps({"a": rows.tolist()})))
    array = found.matrix(cut, 3, "d")
    assert array is not None and np.array_equal(array, rows)


def test_minus_zero_keeps_its_sign() -> None:
    got = matrix("[[-0.0, -0]]", 2, "d")
    assert got is not None and [math.copysign(1, x) for x in got[0]] == [-1, -1]
