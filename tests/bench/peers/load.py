"""The load generator of every server: keep-alive connections that ask, wait, and ask again."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


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
    seconds: list[float] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    wall: float = 0.0

    def quantile_ms(self, q: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1000

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.wall


class _Connection(asyncio.Protocol):
    def __init__(self, requests: list[Request], turn: int, end: float, outcome: Outcome) -> None:
        self._requests = requests
        self._turn = turn
        self._end = end
        self._outcome = outcome
        self._received = b""
        self._wanted = 0
        self._chunked = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._received, self._wanted = b"", 0
        self._began = time.perf_counter()
        self._transport.write(self._requests[self._turn % len(self._requests)].wire)
        self._turn += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._wanted:
            split = self._received.find(b"\r\n\r\n")
            if split < 0:
                return
            head = self._received[: split + 2]
            length = _LENGTH.search(head)
            self._chunked = length is None and b"chunked" in head.lower()
            if not head.startswith(b"HTTP/1.1 200") or not (length or self._chunked):
                self.done.set_exception(RuntimeError(self._received[:600].decode(errors="replace")))
                self._transport.close()
                return
            self._wanted = split + 4 + (int(length[1]) if length else 0)
        if len(self._received) < self._wanted:
            return
        if self._chunked and not self._received.endswith(b"\r\n0\r\n\r\n"):
            return
        now = time.perf_counter()
        self._outcome.seconds.append(now - self._began)
        self._outcome.answers.append(self._received)
        if time.monotonic() < self._end:
            self._ask()
        else:
            self._transport.close()
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the server closed the connection: {error}"))


async def _run(port: int, requests: list[Request], callers: int, seconds: float) -> Outcome:
    loop = asyncio.get_running_loop()
    outcome = Outcome()
    began = time.monotonic()
    connections = []
    for number in range(callers):
        turn = number * len(requests) // callers
        _, connection = await loop.create_connection(
            lambda turn=turn: _Connection(requests, turn, began + seconds, outcome),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        connections.append(connection)
    await asyncio.gather(*(connection.done for connection in connections))
    outcome.wall = time.monotonic() - began
    return outcome


def load(port: int, requests: list[Request], callers: int, seconds: float) -> Outcome:
    """Ask for `seconds`, every caller at least once; an answer other than 200 is an error."""
    return asyncio.run(_run(port, requests, callers, seconds))


def body_of(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole
