"""Arrays of numbers cut out of JSON text and read straight into memory, by our own C++.

Only what is plainly an array of numbers is read here; whatever is not is left to a full parser.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_MOST_REST = 4096
_MOST_CUTS = 16
SMALL = 64 * 1024
_KINDS: dict[str, np.dtype[Any]] = {
    "i": np.dtype(np.int64),
    "f": np.dtype(np.float32),
    "d": np.dtype(np.float64),
}

Array = np.ndarray[Any, np.dtype[Any]]

EXTENSION = Path(__file__).parent / "_C.so"
NATIVE = EXTENSION.exists()
"""Whether the compiled reader is here; without it nothing is cut."""


def _functions(library: ctypes.CDLL) -> tuple[Any, Any]:
    cut, read = library.splinecnn_json_cut, library.splinecnn_json_read
    size, where = ctypes.c_int64, ctypes.c_void_p
    cut.argtypes = [where, size, where, size, where, size, where, where]
    cut.restype = size
    read.argtypes = [where, size, size, size, size, size, ctypes.c_int32, where, where]
    read.restype = ctypes.c_int32
    return cut, read


if NATIVE:
    # A short text is read while holding the interpreter: giving it up takes longer than reading.
    _short = _functions(ctypes.PyDLL(str(EXTENSION)))
    _long = _functions(ctypes.CDLL(str(EXTENSION)))
_Table = ctypes.c_int64 * (4 * _MOST_CUTS + 2)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where an array was: `rows` of them with at most so many numbers, or -1 for numbers alone."""

    start: int
    end: int
    rows: int
    numbers: int


class Text:
    """JSON text without its arrays (`rest`, each replaced by its number in brackets) and these."""

    def __init__(self, text: bytes | bytearray, rest: bytes, colons: int, cuts: list[Cut]) -> None:
        self.rest = rest
        self.colons = colons
        self.cuts = cuts
        self._text = text
        self._address = address(text)

    def matrix(self, cut: Cut, width: int, kind: str) -> Array | None:
        """The array as [rows, width] of int64 ("i"), float32 ("f") or float64 ("d"), if it is."""
        if cut.rows < 0 or cut.numbers != cut.rows * width:
            return None
        out = np.empty((cut.rows, width), _KINDS[kind])
        return out if self._read(cut, width, kind, out, None) else None

    def ragged(self, cut: Cut, kind: str) -> tuple[Array, Array] | None:
        """Rows of any length as one flat array and the offset of each."""
        if cut.rows < 0:
            return None
        out, offsets = np.empty(cut.numbers, _KINDS[kind]), np.empty(cut.rows + 1, np.int64)
        if not self._read(cut, 0, kind, out, offsets):
            return None
        return out[: offsets[-1]], offsets

    def flat(self, cut: Cut, kind: str) -> Array | None:
        """The numbers of an array without rows."""
        if cut.rows > 0:
            return None
        out = np.empty(cut.numbers, _KINDS[kind])
        return out if cut.rows == 0 or self._read(cut, 0, kind, out, None) else None

    def _read(self, cut: Cut, width: int, kind: str, out: Array, offsets: Array | None) -> bool:
        read = (_short if cut.end - cut.start <= SMALL else _long)[1]
        where = None if offsets is None else offsets.ctypes.data
        return bool(
            read(
                self._address, cut.start, cut.end, cut.rows, width, cut.numbers,
                ord(kind), out.ctypes.data, where,
            )
        )  # fmt: skip


def cut(text: bytes | bytearray) -> Text | None:
    """The text with its arrays cut out; None if that is not possible here."""
    if not NATIVE:
        return None
    rest = ctypes.create_string_buffer(_MOST_REST)
    table = _Table()
    at = ctypes.addressof(table)
    end = at + 8 * 4 * _MOST_CUTS
    size = len(text)
    used = (_short if size <= SMALL else _long)[0](
        address(text), size, rest, _MOST_REST, at, _MOST_CUTS, end, end + 8
    )
    if used < 0:
        return None
    found, colons = table[-2:]
    cuts = [Cut(*table[4 * n : 4 * n + 4]) for n in range(found)]
    return Text(text, rest.raw[:used], colons, cuts)


def address(text: bytes | bytearray) -> Any:
    if isinstance(text, bytes):
        return text
    return np.frombuffer(text, np.uint8).ctypes.data
