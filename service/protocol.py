"""HTTP/1.1 with patience that ends: a header must come whole, within a time and a size."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_HEADER = 64 * 1024


class PatientProtocol(HttpToolsProtocol):
    """uvicorn waits for the rest of a header for ever, and keeps all of it; a few callers who
    trickle would take every connection."""

    seconds = 30.0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_header = True
        self._header_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        self._in_header = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_header = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
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


def patient(seconds: float) -> type[PatientProtocol]:
    """The protocol of a service that waits so long for a header."""
    return type("PatientProtocol", (PatientProtocol,), {"seconds": seconds})
