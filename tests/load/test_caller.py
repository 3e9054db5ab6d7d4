"""The load generator against a server that answers well, early, in pieces, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.load.caller import COMPILER, LOST, Run, closed_loop, open_loop

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def post(path: str, size: int = 10) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size
    )


LONG = 1 << 25  # more than sockets hold
ANSWERS = {
    "/well": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwell",
    "/announced": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    "/closes": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    "/endless": b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    "/early": b"HTTP/1.1 429 Busy\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy",
    "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nonly this",
    "/odd": b"whatever\r\n\r\n",
    "/drops": b"",
}


class Toy:
    """A server in a thread of its own that counts what it is sent."""

    def __init__(self) -> None:
        self.connections = 0
        self.received = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._started.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        if path == "/silent":
            await self._over.wait()
        if path != "/early":
            await reader.readexactly(int(head.split()[-1]))
        for byte in ANSWERS[path]:
            writer.write(bytes([byte]))
            await writer.drain()
        if path == "/early":
            while piece := await reader.read(1 << 16):
                self.received += len(piece)
        return path in {"/well", "/announced", "/chunks"}

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


@pytest.fixture
def toy() -> Iterator[Toy]:
    server = Toy()
    yield server
    server.stop()


def once(toy: Toy, *paths: str, size: int = 10, patience: float = 60.0) -> Run:
    """Each path by a caller of its own."""
    requests = [post(path, size) for path in paths]
    return asyncio.run(
        closed_loop(toy.port, requests, len(paths), 0, answers=True, patience=patience)
    )


@pytest.mark.parametrize("path", ["/well", "/announced", "/chunks", "/closes", "/endless"])
def test_an_answer_is_kept_as_it_came(toy: Toy, path: str) -> None:
    run = once(toy, path)
    assert run.statuses == {200: 1}
    assert run.answers == [ANSWERS[path].removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")]
    run.insist()


def test_an_answer_before_the_whole_request_is_sent_is_the_answer(toy: Toy) -> None:
    run = once(toy, "/early", size=LONG)
    toy.stop()
    assert run.statuses == {429: 1}
    assert run.replies["retry_after"].all()
    assert toy.received < LONG, "the rest was sent although nobody wanted it"
    with pytest.raises(RuntimeError, match="busy"):
        run.insist()


@pytest.mark.parametrize("path", ["/cut", "/odd", "/drops"])
def test_a_request_without_a_whole_answer_is_lost(toy: Toy, path: str) -> None:
    run = once(toy, path)
    assert run.statuses == {LOST: 1}
    assert run.unanswered == 1
    with pytest.raises(RuntimeError, match="did not answer"):
        run.insist()


def test_patience_ends(toy: Toy) -> None:
    assert once(toy, "/silent", "/well", patience=0.1).statuses == {LOST: 1, 200: 1}


def test_nobody_there_is_no_answer(toy: Toy) -> None:
    toy.stop()
    assert once(toy, "/well").statuses == {LOST: 1}


def test_callers_go_on_asking_whatever_befalls_one_of_them(toy: Toy) -> None:
    paths = ["/well", "/chunks", "/closes", "/drops"]
    run = asyncio.run(closed_loop(toy.port, [post(path) for path in paths], 4, 0.3))
    assert run.asked == len(run.replies) >= 4
    for path, reply in ((paths[reply["request"]], reply) for reply in run.replies):
        assert reply["status"] == (LOST if path == "/drops" else 200)
    assert run.unanswered == run.statuses[LOST]
    # a caller's turns follow one another in the list, so no two kinds are far apart
    assert np.ptp(np.bincount(run.replies["request"], minlength=4)) <= 4
    left = np.isin(run.replies["request"], [2, 3]).sum()
    assert toy.connections <= 4 + left, "a connection that could be kept was not"


def test_arrivals_keep_to_their_rate(toy: Toy) -> None:
    run = asyncio.run(open_loop(toy.port, [post("/well"), post("/chunks")], 400, 0.5))
    assert run.statuses == {200: run.asked}
    starts = np.sort(run.replies["start"])
    assert (starts >= np.arange(run.asked) / 400).all(), "someone came early"
    assert run.asked >= 400 * starts[-1], "someone who was due did not come"
    assert abs(np.diff(np.bincount(run.replies["request"]))[0]) <= 1
    assert toy.connections <= run.asked


def test_nobody_arrives_while_too_many_are_unanswered(toy: Toy) -> None:
    run = asyncio.run(open_loop(toy.port, [post("/closes")], 1e5, 0.2, most=3))
    assert run.statuses == {200: run.asked}
    ends = np.sort(run.replies["start"] + run.replies["seconds"])
    for begun in run.replies["start"]:
        waiting = (run.replies["start"] <= begun).sum() - np.searchsorted(ends, begun, "right")
        assert waiting <= 3
