"""Callers over real sockets: prepared requests sent at given times, every answer accounted for."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

LOST = 0  # in place of a status: the connection ended without an answer


@dataclass(frozen=True)
class Ask:
    """A request as the bytes that go over the wire, and what it is called in reports."""

    kind: str
    raw: bytes
    key: int = 0


@dataclass(frozen=True)
class Reply:
    ask: Ask
    status: int
    headers: dict[str, str]
    body: bytes
    sent: float
    seconds: float

    def json(self) -> Any:
        return orjson.loads(self.body)


def prepare(
    kind: str,
    path: str,
    body: bytes | dict[str, Any],
    headers: dict[str, str] | None = None,
    key: int = 0,
) -> Ask:
    if not isinstance(body, bytes):
        body = orjson.dumps(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", "Host: trust", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return Ask(kind, ("\r\n".join(lines) + "\r\n\r\n").encode() + body, key)


@dataclass
class Tally:
    """All replies of a run."""

    replies: list[Reply] = field(default_factory=list)
    asked: int = 0

    @property
    def statuses(self) -> Counter[int]:
        return Counter(reply.status for reply in self.replies)

    def of(self, *statuses: int) -> list[Reply]:
        return [reply for reply in self.replies if reply.status in statuses]

    @property
    def unanswered(self) -> int:
        return self.asked - len(self.replies) + self.statuses[LOST]


class Callers:
    """A pool of connections to one port; each carries one request at a time."""

    def __init__(self, port: int, patience: float = 60.0) -> None:
        self._port = port
        self._patience = patience
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.tally = Tally()

    async def send(self, ask: Ask) -> Reply:
        self.tally.asked += 1
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._patience):
                reply = await self._converse(ask, begun)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            reply = Reply(ask, LOST, {}, b"", begun, time.monotonic() - begun)
        self.tally.replies.append(reply)
        return reply

    async def _converse(self, ask: Ask, begun: float) -> Reply:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        keep = False
        try:
            writer.write(ask.raw)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            keep = headers.get("connection", "").lower() != "close"
            return Reply(
                ask, int(head[0].split()[1]), headers, body, begun, time.monotonic() - begun
            )
        finally:
            if keep:
                self._idle.append((reader, writer))
            else:
                writer.transport.abort()  # close() would wait for what is still to be written

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the sockets are closed in the loop's next turn


@asynccontextmanager
async def callers(port: int, patience: float = 60.0) -> AsyncIterator[Callers]:
    pool = Callers(port, patience)
    try:
        yield pool
    finally:
        await pool.close()


async def closed_loop(
    pool: Callers, asks: Sequence[Ask], number: int, seconds: float, pace: float = 0.0
) -> Tally:
    """So many callers, each asking again as soon as it is answered, or about every `pace` seconds.

    Not exactly so often: callers in step would go on meeting each other, or never meet.
    """
    before = len(pool.tally.replies), pool.tally.asked
    until = time.monotonic() + seconds

    async def call(first: int) -> None:
        turn, rng = first, random.Random(first)
        while time.monotonic() < until:
            begun = time.monotonic()
            await pool.send(asks[turn % len(asks)])
            turn += number
            if pace:
                pause = pace * rng.uniform(0.5, 1.5)
                await asyncio.sleep(max(0.0, begun + pause - time.monotonic()))

    await asyncio.gather(*[call(first) for first in range(number)])
    return Tally(pool.tally.replies[before[0] :], pool.tally.asked - before[1])
