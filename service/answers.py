"""Arrays to bytes: JSON by default, raw little-endian arrays or NPY when asked."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import NotAcceptable
from service.logs import milliseconds
from service.replies import Reply

JSON = "application/json"
RAW = "application/octet-stream"
NPY = "application/x-npy"
_KNOWN = {
    JSON: JSON,
    RAW: RAW,
    NPY: NPY,
    "application/npy": NPY,
    "*/*": JSON,
    "application/*": JSON,
}


@dataclass(frozen=True)
class Answer:
    """What a task found: small facts and bulk arrays, the first of which is the answer itself."""

    facts: dict[str, Any]
    arrays: dict[str, Any]  # ndarrays, or dicts and lists of them
    flat: dict[str, NDArray[Any]] = field(default_factory=dict)  # what binary says of the dicts
    names: dict[str, list[str]] = field(default_factory=dict)  # of the rows or values of an array

    @property
    def plain(self) -> dict[str, NDArray[Any]]:
        own = {name: a for name, a in self.arrays.items() if isinstance(a, np.ndarray)}
        return own | self.flat

    def describe(self) -> str:
        """The arrays of a binary answer, in order, as JSON in letters that a header can carry."""
        entries = []
        for name, array in self.plain.items():
            entry = {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
            entries.append(entry | {"names": self.names[name]} if name in self.names else entry)
        return json.dumps(entries, separators=(",", ":"))


def negotiate(accept: str) -> str:
    """The media type to answer in, by the caller's order of preference."""
    if not accept:
        return JSON
    chosen = choose(accept, _KNOWN)
    if chosen is None:
        raise NotAcceptable(f"Accept must include {JSON}, {RAW} or {NPY}, got {accept[:120]!r}")
    return chosen


def choose(accept: str, known: Mapping[str, str]) -> str | None:
    """What the caller likes best of the known types; None if there is nothing it takes."""
    wishes: list[tuple[float, str]] = []
    for item in accept.split(","):
        media, *parameters = (part.strip().lower() for part in item.split(";"))
        if media in known:
            wishes.append((-_quality(parameters), known[media]))
    wishes = [wish for wish in wishes if wish[0] < 0]
    return min(wishes, key=lambda wish: wish[0])[1] if wishes else None


def encode(answer: Answer, media: str, timings: dict[str, float], request_id: str) -> Reply:
    """The reply, with the time of each stage in it; `timings` gains the encoding's own."""
    started = time.perf_counter()
    if media == JSON:
        body = _json(answer, timings, request_id, started)
        return Reply(body, JSON)
    headers = {
        "X-Arrays": answer.describe(),
        "X-Model": f"{answer.facts['model']['name']}/{answer.facts['model']['version']}",
    }
    if "warning" in answer.facts:
        headers["X-Warning"] = answer.facts["warning"]
    if media == NPY:
        stream = io.BytesIO()
        np.save(stream, next(iter(answer.plain.values())), allow_pickle=False)
        body = stream.getvalue()
    else:
        body = b"".join(array.tobytes() for array in answer.plain.values())
    timings["encode"] = time.perf_counter() - started
    headers["Server-Timing"] = ", ".join(
        f"{stage};dur={seconds * 1000:.3f}" for stage, seconds in timings.items()
    )
    return Reply(body, media, headers)


def _json(answer: Answer, timings: dict[str, float], request_id: str, started: float) -> bytes:
    # Arrays first, as a finished fragment, so that their cost can be told in the same answer.
    bulk = orjson.dumps(answer.arrays, option=orjson.OPT_SERIALIZE_NUMPY)
    timings["encode"] = time.perf_counter() - started
    facts = orjson.dumps(
        {
            **answer.facts,
            "request_id": request_id,
            "timings_ms": {stage: milliseconds(s) for stage, s in timings.items()},
        }
    )
    return b"%s,%s" % (facts[:-1], bulk[1:]) if len(bulk) > 2 else facts


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
