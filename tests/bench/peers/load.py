"""The load generator of every server: keep-alive connections that ask, wait, and ask again."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))
from tests.load.caller import closed_loop  # noqa: E402


@dataclass(frozen=True)
class Request:
    """A POST, ready to be sent."""

    wire: bytes

    @staticmethod
    def post(path: str, body: bytes, headers: dict[str, str]) -> Request:
        lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return Request("\r\n".join([*lines, "", ""]).encode() + body)


@dataclass
class Outcome:
    seconds: list[float]
    answers: list[bytes]
    wall: float

    def quantile_ms(self, q: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1000

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.wall


def load(port: int, requests: list[Request], callers: int, seconds: float) -> Outcome:
    """Ask for `seconds`, every caller at least once; an answer other than 200 is an error."""
    wires = [request.wire for request in requests]
    run = asyncio.run(closed_loop(port, wires, callers, seconds, answers=True))
    run.insist()
    return Outcome(run.replies["seconds"].tolist(), run.answers, run.wall)


def body_of(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole
