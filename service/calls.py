"""What a prediction needs of a request, whoever speaks HTTP around it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from starlette.requests import Request

from service.body import Body, read_body
from service.settings import Settings
from service.state import deadline_of

Stages = tuple[float, dict[str, float]]  # when the first began, and the seconds of each

_PATIENCE = 0.02  # seconds before it is worth knowing whether the caller is still there


class Call(Protocol):
    """One request to a prediction route."""

    headers: Mapping[str, str]  # by names in small letters
    query: Mapping[str, str]
    request_id: str
    deadline: float  # by `time.monotonic`
    note: dict[str, Any]  # what its log line says beside the usual
    stages: Stages | None  # once it is answered

    async def body(self) -> Body: ...

    def leaving(self) -> AbstractContextManager[asyncio.Future[Any]]:
        """A future that is done when the caller hangs up; used once the body has been read."""
        ...


class RoutedCall:
    """A request that came through the app's routes."""

    def __init__(self, request: Request, settings: Settings) -> None:
        self.headers: Mapping[str, str] = request.headers
        self.query: Mapping[str, str] = request.query_params
        self.request_id: str = request.scope["request_id"]
        self.deadline = deadline_of(request.headers, settings)
        self.note: dict[str, Any] = {}
        self.stages: Stages | None = None
        request.scope["note"] = self.note
        request.scope["call"] = self
        self._request = request
        self._settings = settings

    async def body(self) -> Body:
        limit, seconds = self._settings.max_body_bytes, self._settings.body_seconds
        return await read_body(self._request, limit, seconds)

    def leaving(self) -> AbstractContextManager[asyncio.Future[Any]]:
        return _Leaving(self._request)


class _Leaving:
    """Watching costs a task, so it begins only when the answer has been awaited for a while."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[Any] = self._loop.create_future()
        self._watch: asyncio.Task[Any] | None = None

    def __enter__(self) -> asyncio.Future[Any]:
        self._timer = self._loop.call_later(_PATIENCE, self._begin)
        return self._gone

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _begin(self) -> None:
        self._watch = self._loop.create_task(self._await_leaving())

    async def _await_leaving(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            continue
        if not self._gone.done():
            self._gone.set_result(None)
