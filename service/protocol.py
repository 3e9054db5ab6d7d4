"""HTTP/1.1 with patience that ends, and a short way for the busiest routes."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.exchange import Desk, Exchange, Wire

_MOST_HEADER = 64 * 1024


class PatientProtocol(HttpToolsProtocol):
    """uvicorn waits for the rest of a header for ever, and keeps all of it; a few callers who
    trickle would take every connection."""

    seconds = 30.0
    desk: Desk | None = None

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_header = True
        self._header_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        self._in_header = True
        self._exchange = None
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._exchange = self._begin_exchange()
        if self._exchange is None:
            super().on_headers_complete()
        else:
            self.cycle = self._exchange  # type: ignore[assignment]
            self._exchange.begin()

    def _begin_exchange(self) -> Exchange | None:
        """None if the request must go the long way."""
        if (
            self.desk is None
            or self.parser.get_method() != b"POST"
            or self.expect_100_continue
            or self.parser.should_upgrade()
            or self.flow.write_paused
            or not (self.cycle is None or self.cycle.response_complete)
        ):
            return None
        path, _, query = self.url.partition(b"?")
        route = self.desk.find(path.decode("latin-1"))
        if route is None:
            return None
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        wire = Wire(
            self.loop, self.transport, self.flow, self.tasks,
            self.server_state.default_headers, keep_alive, self.on_response_complete,
        )  # fmt: skip
        return Exchange(self.desk.state, route, self.headers, query, wire)

    def on_body(self, body: bytes) -> None:
        if self._exchange is None:
            super().on_body(body)
        else:
            self._exchange.feed(body)

    def on_message_complete(self) -> None:
        if self._exchange is None:
            super().on_message_complete()
        else:
            self._exchange.complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._exchange is not None:
            self._exchange.await_rest()
        if not self._in_header:
            self._stop_waiting()
            return
        self._header_bytes += len(data)
        if self._header_bytes > _MOST_HEADER:
            self._stop_waiting()
            self.transport.close()
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        self._header_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def patient(seconds: float, desk: Desk | None) -> type[PatientProtocol]:
    """The protocol of a service that waits so long for a header."""
    return type("PatientProtocol", (PatientProtocol,), {"seconds": seconds, "desk": desk})
