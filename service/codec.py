"""JSON bytes to arrays: bulk numbers straight into memory, the small rest through pydantic.

`Skimmed` lets our own reader cut the arrays of numbers out of the text and fill them in, which
takes little time and no memory beside them. It says yes or nothing: what it does not take is read
again by `Document`, whose full parser knows what is wrong.

There, simdjson flattens nested arrays into one buffer but does not notice ragged rows. `Document`
proves the shape from the brackets and commas of the text, and only when that proof fails does it
walk the rows to say which one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from ops import jsontext
from service.body import Body
from service.errors import BadRequest, Invalid, TooLarge

_NOT_SKELETON = bytes(byte for byte in range(256) if byte not in b'[],"')

_SHORT = 1 << 20  # bytes of JSON

IntArray = NDArray[np.int64]


class Unusual(Exception):
    """Not for `Skimmed`; perhaps not for anyone, but that is for `Document` to say."""


class Skimmed:
    """A JSON object whose arrays of numbers are read by our own code; see `Document`.

    Any error before `proven` is no more than a wish to be read by `Document`.
    """

    def __init__(self, body: Body) -> None:
        text = jsontext.cut(body)
        if text is None:
            raise Unusual
        try:
            root = orjson.loads(text.rest)
        except orjson.JSONDecodeError:
            raise Unusual from None
        # orjson keeps the last of two fields with one name, and says nothing
        if not isinstance(root, dict) or text.colons != _count_fields(root):
            raise Unusual
        self.root: Any = root
        self.proven = False
        self._text = text
        self._untaken = len(text.cuts)

    def check_keys(self, value: Any, path: str, allowed: Iterable[str]) -> list[str]:
        return _check_keys(value, path, allowed)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, list)

    def is_object(self, value: Any) -> bool:
        return isinstance(value, dict)

    def object(self, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise Unusual
        return value

    def check_rows(self, value: Any, path: str, limit: int) -> None:
        if self._cut(value).rows > limit:
            raise Unusual

    def width(self, value: Any, path: str) -> int:
        cut = self._cut(value)
        return cut.numbers // cut.rows if cut.rows > 0 else 0

    def matrix(self, value: Any, path: str, width: int, limit: int, *, kind: str) -> NDArray[Any]:
        self.check_rows(value, path, limit)
        return self._taken(self._text.matrix(self._cut(value), width, kind))

    def ragged(
        self, value: Any, path: str, limit: int, *, whole: bool
    ) -> tuple[NDArray[Any], IntArray]:
        self.check_rows(value, path, limit)
        found = self._text.ragged(self._cut(value), "i" if whole else "d")
        self._taken(found)
        assert found is not None
        return found

    def strings(self, value: Any, path: str, limit: int) -> list[str]:
        raise Unusual

    def check_shapes(self) -> None:
        if self._untaken:
            raise Unusual
        self.proven = True

    def _cut(self, value: Any) -> jsontext.Cut:
        if not isinstance(value, list):
            raise Unusual
        return self._text.cuts[value[0]]

    def _taken(self, found: Any) -> Any:
        if found is None:
            raise Unusual
        self._untaken -= 1
        return found


class Document:
    """One parsed JSON object; arrays are taken from it by path."""

    def __init__(self, body: Body) -> None:
        try:
            # A parser owns the memory of its document, so each request has its own.
            root = simdjson.Parser().parse(body)
        except UnicodeDecodeError:
            raise BadRequest("the body is not UTF-8") from None
        except (ValueError, RuntimeError) as error:
            raise BadRequest(f"the body is not valid JSON: {_where(body, error)}") from None
        if not isinstance(root, simdjson.Object):
            raise BadRequest("the body must be a JSON object")
        self.root: Any = root
        self._body = body
        self._shapes: list[tuple[str, Any, int, int]] = []
        self._plain: list[bytes] = []  # the brackets of arrays that are no matrices

    def check_keys(self, value: Any, path: str, allowed: Iterable[str]) -> list[str]:
        return _check_keys(value, path, allowed)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, simdjson.Array)

    def is_object(self, value: Any) -> bool:
        return isinstance(value, simdjson.Object)

    def object(self, value: Any, path: str) -> simdjson.Object:
        if not isinstance(value, simdjson.Object):
            raise Invalid(f"must be an object, got {_kind(value)}", path=path)
        return value

    def rows(self, value: Any, path: str, limit: int) -> simdjson.Array:
        """An array whose length is within the limit, before anything is copied out of it."""
        if not isinstance(value, simdjson.Array):
            raise Invalid(f"must be an array, got {_kind(value)}", path=path)
        if len(value) > limit:
            raise TooLarge(f"{path} must have at most {limit} rows, got {len(value)}", path=path)
        return value

    def check_rows(self, value: Any, path: str, limit: int) -> None:
        self.rows(value, path, limit)

    def width(self, value: Any, path: str) -> int:
        """How many columns the first row claims."""
        if len(value) == 0:
            return 0
        first = value[0]
        if not isinstance(first, simdjson.Array):
            raise Invalid(f"must be an array of numbers, got {_kind(first)}", path=f"{path}[0]")
        return len(first)

    def matrix(self, value: Any, path: str, width: int, limit: int, *, kind: str) -> NDArray[Any]:
        """A [rows, width] array of whole numbers ("i"), or of others ("d"; "f" where single
        precision is enough); call `check_shapes` once all arrays are taken."""
        rows = self.rows(value, path, limit)
        flat = _flatten(rows, path, kind == "i")
        count = len(rows)
        if flat.size != count * width:
            _find_bad_row(rows, path, width)
            raise Invalid(f"must hold rows of {width} numbers", path=path)
        self._shapes.append((path, rows, count, width))
        return flat.reshape(count, width)

    def ragged(
        self, value: Any, path: str, limit: int, *, whole: bool
    ) -> tuple[NDArray[Any], IntArray]:
        """Rows of any length as one flat array and the offset of each row."""
        rows = self.rows(value, path, limit)
        lengths = np.zeros(len(rows) + 1, dtype=np.int64)
        for index, row in enumerate(rows):
            if not isinstance(row, simdjson.Array):
                raise Invalid(f"must be an array, got {_kind(row)}", path=f"{path}[{index}]")
            for column, number in enumerate(row):  # the buffer would not tell [[1, [2]]] apart
                if isinstance(number, simdjson.Array):
                    where = f"{path}[{index}][{column}]"
                    raise Invalid("must be a number, got an array", path=where)
            lengths[index + 1] = len(row)
        return _flatten(rows, path, whole), np.cumsum(lengths)

    def strings(self, value: Any, path: str, limit: int) -> list[str]:
        """A short array of words."""
        words = [*self.rows(value, path, limit)]
        for index, word in enumerate(words):
            if not isinstance(word, str):
                raise Invalid(f"must be a string, got {_kind(word)}", path=f"{path}[{index}]")
        self._plain.append(b"[" if words else b"[]")
        return words

    def check_shapes(self) -> None:
        """Prove that no matrix taken so far had ragged rows that happened to add up."""
        if b"\\" not in self._body:
            # Without escapes every second piece between quotes lies outside all strings.
            pieces = self._body.translate(None, _NOT_SKELETON).split(b'"')[::2]
            seen = sorted(piece.rstrip(b",") for piece in pieces if b"[" in piece)
            matrices = (_skeleton(rows, width) for _, _, rows, width in self._shapes)
            if seen == sorted([*self._plain, *matrices]):
                return
        for path, rows, _, width in self._shapes:
            _find_bad_row(rows, path, width)


def _check_keys(value: Any, path: str, allowed: Iterable[str]) -> list[str]:
    """The keys; unknown and repeated ones are refused, for both would pass unseen."""
    names = list(value.keys())
    known = set(allowed)
    for name in names:
        if name not in known:
            wanted = ", ".join(sorted(known))
            raise Invalid(
                f"unknown field {name[:80]!r}; known: {wanted}", path=_join(path, name[:80])
            )
    if len(names) != len(set(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"field {twice!r} appears twice", path=_join(path, twice))
    return names


def _count_fields(value: dict[str, Any]) -> int:
    return len(value) + sum(_count_fields(v) for v in value.values() if isinstance(v, dict))


def _flatten(rows: simdjson.Array, path: str, whole: bool) -> NDArray[Any]:
    try:
        buffer = rows.as_buffer(of_type="i" if whole else "d")
    except (TypeError, ValueError):
        _find_bad_number(rows, path, whole)
        raise Invalid(f"must hold {_wanted(whole)} only", path=path) from None
    except (RuntimeError, RecursionError):
        raise Invalid("is nested too deeply", path=path) from None
    return np.frombuffer(buffer, dtype=np.int64 if whole else np.float64)


def _skeleton(rows: int, width: int) -> bytes:
    row = b"[" + b"," * (width - 1) + b"],"
    return b"[" + (row * rows)[:-1] + b"]"


def _find_bad_row(rows: simdjson.Array, path: str, width: int) -> None:
    for index, row in enumerate(rows):
        where = f"{path}[{index}]"
        if not isinstance(row, simdjson.Array):
            raise Invalid(f"must be an array of {width} numbers, got {_kind(row)}", path=where)
        if len(row) != width:
            raise Invalid(f"must have {width} numbers, got {len(row)}", path=where)
        for column, number in enumerate(row):
            if isinstance(number, simdjson.Array):
                raise Invalid("must be a number, got an array", path=f"{where}[{column}]")


def _find_bad_number(rows: simdjson.Array, path: str, whole: bool) -> None:
    for index, row in enumerate(rows):
        where = f"{path}[{index}]"
        if not isinstance(row, simdjson.Array):
            _check_number(row, where, whole)
            continue
        for column, number in enumerate(row):
            _check_number(number, f"{where}[{column}]", whole)


def _check_number(value: Any, path: str, whole: bool) -> None:
    allowed = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise Invalid(f"must be a {_wanted(whole)[:-1]}, got {_kind(value)}", path=path)
    if whole and not -(2**63) <= value < 2**63:
        raise Invalid("is too large for a 64-bit integer", path=path)


def _wanted(whole: bool) -> str:
    return "whole numbers" if whole else "numbers"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, simdjson.Array):
        return "an array"
    if isinstance(value, simdjson.Object):
        return "an object"
    if isinstance(value, str):
        return "a string"
    return f"{value!r}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _where(body: Body, error: Exception) -> str:
    """What is wrong in which place, where another parser can be asked at little cost."""
    if len(body) <= _SHORT:
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as found:
            return str(found)
    said = _plain(error)
    return "a number in it does not fit into 64 bits" if "64 bits" in said else said


def _plain(error: Exception) -> str:
    """The library's sentence without its error constant."""
    return str(error).partition(": ")[2].split(".")[0] or str(error)
