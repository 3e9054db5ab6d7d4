"""The busiest routes served where their bytes arrive, without the app's layers around them.

A small prediction costs the network a tenth of a millisecond, so what stands between the socket
and the engine counts. The same routes stay in the app, documented, and do the same; what is
unusual here (a pipelined request, `Expect`, other origins) is sent there. Refusals that need no
body are written before one is read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from uvicorn.protocols.http.flow_control import FlowControl

from model.graph import TASKS
from service.access import Header, log, note_request, request_id_of
from service.body import Body, check_headers, too_large, too_slow, unpack
from service.calls import Stages
from service.door import Visit
from service.errors import EXPECTED, Gone, explain, reply_to
from service.middleware import SAFE_HEADERS
from service.replies import Reply
from service.routes import predict, v2
from service.state import State, deadline_of

_INFER = re.compile(r"/v2/models/([^/%]+)(?:/versions/([^/%]+))?/infer")
_INFER_ROUTES = ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer")
_ONE_WRITE = 64 * 1024  # up to this, joining costs less than another system call
_SAFE = b"".join(b"%s: %s\r\n" % pair for pair in SAFE_HEADERS)
_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_NOTHING: Mapping[str, str] = {}
_LONG_QUERY = 256  # bytes; most callers send the same few short ones


Answer = Callable[["State", "Exchange", Visit], Awaitable[Reply]]


class Route(NamedTuple):
    """Where a request goes: to a task, or to a model by its name and perhaps its version."""

    template: str
    task: str | None
    name: str = ""
    version: str | None = None

    def open(self, state: State, query: Mapping[str, str]) -> tuple[str, Answer]:
        """The task, and who answers."""
        if self.task is not None:
            return self.task, partial(predict.answer, task=self.task)
        version = query.get("version") if self.version is None else self.version
        model = state.repository.get(self.name, version)
        return model.task, partial(v2.answer, model=model)


class Desk:
    """Knows which requests are served here."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._routes = {f"/v1/{task}": Route(f"/v1/{task}", task) for task in TASKS}

    def find(self, path: str) -> Route | None:
        route = self._routes.get(path)
        if route is None and path.startswith("/v2") and (found := _INFER.fullmatch(path)):
            return Route(_INFER_ROUTES[found[2] is not None], None, found[1], found[2])
        return route


class Exchange:
    """One request from its headers to the last byte of its answer.

    It stands where uvicorn keeps a cycle of its own, and has what that protocol asks of one:
    `response_complete`, `disconnected`, `keep_alive` and a `message_event` to `set`.
    """

    def __init__(
        self,
        state: State,
        route: Route,
        headers: list[Header],
        query: bytes,
        wire: Wire,
    ) -> None:
        self._state = state
        self._route = route
        self._raw = headers
        self._wire = wire
        self._started = time.perf_counter()
        self._visit: Visit | None = None
        self._answer: Answer | None = None
        self._chunks: Body = b""
        self._timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[Any] | None = None
        self._encoding = "identity"
        self._arrived = False  # the whole body
        self.request_id = request_id_of(headers)
        self.deadline = 0.0
        self.query: Mapping[str, str] = _parse_query(query) if query else _NOTHING
        self.headers: Mapping[str, str] = _NOTHING
        self.note: dict[str, Any] = {}
        self.stages: Stages | None = None
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = wire.keep_alive

    def begin(self) -> None:
        """The headers are here: refuse now what needs no body to be refused."""
        engine, settings = self._state.engine, self._state.settings
        try:
            self.headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in reversed(self._raw)  # of two with one name, the first counts
            }
            self._state.doorkeeper.check_caller(self.headers)  # before a word about the models
            task, self._answer = self._route.open(self._state, self.query)
            visit = engine.admit(task)
            self.deadline = deadline_of(self.headers, settings)
            visit.check(self.deadline)
            self._encoding = check_headers(self.headers, settings.max_body_bytes)
            self._visit = visit.__enter__()  # until the answer is written, in `_finish`
        except Exception as error:
            self._refuse(error)

    def feed(self, chunk: bytes) -> None:
        if self.response_complete:
            return
        if not self._chunks:
            self._chunks = chunk
        elif isinstance(self._chunks, bytearray):
            self._chunks += chunk
        else:
            self._chunks = bytearray(self._chunks)
            self._chunks += chunk
        limit = self._state.settings.max_body_bytes
        if len(self._chunks) > limit:
            self._chunks = b""
            self._refuse(too_large(limit))

    def await_rest(self) -> None:
        """More of the body is to come, but not for ever; nor of one that nobody wants any more."""
        if not self._arrived and self._timer is None:
            seconds = self._state.settings.body_seconds
            self._timer = self._wire.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.response_complete:
            self.keep_alive = False
            self._refuse(too_slow(self._state.settings.body_seconds))
        self._wire.transport.close()

    def complete(self) -> None:
        """The whole body is here."""
        self._arrived = True
        self._stop_timer()
        if not self.response_complete:
            task = self._wire.loop.create_task(self._run())
            self._wire.tasks.add(task)
            task.add_done_callback(self._wire.tasks.discard)

    async def _run(self) -> None:
        assert self._answer is not None and self._visit is not None
        try:
            reply = await self._answer(self._state, self, self._visit)
            if self._wire.flow.write_paused and not self.disconnected:
                await self._wire.flow.drain()
            self._finish(reply)
        except Exception as error:
            self._refuse(error)

    # What a prediction asks of its call

    async def body(self) -> Body:
        chunks, self._chunks = self._chunks, b""
        return await unpack(chunks, self._encoding, self._state.settings.max_body_bytes)

    def leaving(self) -> Exchange:
        return self

    def __enter__(self) -> asyncio.Future[Any]:
        self._gone = self._wire.loop.create_future()
        if self.disconnected:
            self._gone.set_result(None)
        return self._gone

    def __exit__(self, *_: object) -> None:
        self._gone = None

    # What the protocol asks of its cycle

    @property
    def message_event(self) -> Exchange:
        return self

    def set(self) -> None:
        """The connection was lost."""
        self._stop_timer()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        if not self._arrived and not self.response_complete:
            self._refuse(Gone("the caller left before the body was complete"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, error: Exception) -> None:
        if self.response_complete:
            return
        if not isinstance(error, EXPECTED):
            log.exception("unhandled error", exc_info=error, extra={"request_id": self.request_id})
        reply = reply_to(explain(error), self.request_id, oip=self._route.task is None)
        self._finish(reply, type(error))

    def _finish(self, reply: Reply, error: type[Exception] | None = None) -> None:
        if self._visit is not None:
            self._visit.__exit__(error)
            self._visit = None
        self.response_complete = True
        if not self.disconnected:
            self._write(reply)
        seconds = time.perf_counter() - self._started
        note_request(
            self._state.metrics, self.request_id, "POST", self._route.template,
            reply.status, seconds, self.note,
        )  # fmt: skip
        if self._state.traces is not None:
            self._state.traces.record(self, self._route.template, reply.status, self._started)
        if not self.disconnected:
            if not self.keep_alive:
                self._wire.transport.close()
            self._wire.done()

    def _write(self, reply: Reply) -> None:
        content = reply.content
        lines = [
            _STATUS.get(reply.status) or f"HTTP/1.1 {reply.status} ",
            f"content-type: {reply.media_type}",
            f"content-length: {len(content)}",
            f"x-request-id: {self.request_id}",
        ]
        for name, value in reply.headers.items():
            if name == "Connection":
                self.keep_alive = False
            else:
                lines.append(f"{name.lower()}: {value}")
        if not self.keep_alive:
            lines.append("connection: close")
        told = "\r\n".join(lines).encode("latin-1")
        head = b"%s\r\n%s%s\r\n" % (told, _lines(self._wire.usual), _SAFE)
        if len(content) <= _ONE_WRITE:
            self._wire.transport.write(head + content)
        else:
            self._wire.transport.write(head)
            self._wire.transport.write(content)


def _parse_query(query: bytes) -> Mapping[str, str]:
    return _usual_query(query) if len(query) <= _LONG_QUERY else QueryParams(query)


@lru_cache(256)
def _usual_query(query: bytes) -> Mapping[str, str]:
    return dict(QueryParams(query))  # which is quicker to ask


_usual_lines: tuple[list[Header], bytes] = ([], b"")  # headers, and how they are written


def _lines(headers: list[Header]) -> bytes:
    """Those of every answer; the server makes a new list when the second changes."""
    global _usual_lines
    if headers is not _usual_lines[0]:
        _usual_lines = headers, b"".join(b"%s: %s\r\n" % pair for pair in headers)
    return _usual_lines[1]


class Wire(NamedTuple):
    """What an exchange needs of its connection."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: FlowControl
    tasks: set[asyncio.Task[None]]
    usual: list[Header]  # headers of every answer, such as the date
    keep_alive: bool
    done: Callable[[], None]
