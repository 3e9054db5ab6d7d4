"""JSON bytes to arrays: bulk numbers straight into buffers, the small rest through pydantic.

simdjson flattens nested arrays into one buffer at memory speed but does not notice ragged rows.
`Document` proves the shape from the brackets and commas of the text, and only when that proof
fails does it walk the rows to say which one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import simdjson
from numpy.typing import NDArray

from service.body import Body
from service.errors import BadRequest, Invalid, TooLarge

_NOT_SKELETON = bytes(byte for byte in range(256) if byte not in b'[],"')

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Document:
    """One parsed JSON object; arrays are taken from it by path."""

    def __init__(self, body: Body) -> None:
        try:
            # A parser owns the memory of its document, so each request has its own.
            root = simdjson.Parser().parse(body)
        except UnicodeDecodeError:
            raise BadRequest("the body is not UTF-8") from None
        except (ValueError, RuntimeError) as error:
            raise BadRequest(f"the body is not valid JSON: {_plain(error)}") from None
        if not isinstance(root, simdjson.Object):
            raise BadRequest("the body must be a JSON object")
        self.root: Any = root
        self._body = body
        self._shapes: list[tuple[str, Any, int, int]] = []
        self._plain: list[bytes] = []  # the brackets of arrays that are no matrices

    def check_keys(self, value: Any, path: str, allowed: Iterable[str]) -> list[str]:
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

    def matrix(self, value: Any, path: str, width: int, limit: int, *, whole: bool) -> NDArray[Any]:
        """A [rows, width] array; call `check_shapes` once all arrays are taken."""
        rows = self.rows(value, path, limit)
        flat = _flatten(rows, path, whole)
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
            lengths[index + 1] = len(row)
        flat = _flatten(rows, path, whole)
        offsets = np.cumsum(lengths)
        if flat.size != offsets[-1]:
            raise Invalid("must hold rows of numbers, not of arrays", path=path)
        return flat, offsets

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


def width_of(rows: simdjson.Array, path: str) -> int:
    """How many columns the first row claims."""
    if len(rows) == 0:
        return 0
    first = rows[0]
    if not isinstance(first, simdjson.Array):
        raise Invalid(f"must be an array of numbers, got {_kind(first)}", path=f"{path}[0]")
    return len(first)


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


def _plain(error: Exception) -> str:
    """The library's sentence without its error constant."""
    return str(error).partition(": ")[2].split(".")[0] or str(error)
