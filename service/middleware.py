"""The outermost room: a request id, safe headers, one log line and one count per request."""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access import Header, log, note_request, request_id_of
from service.errors import EXPECTED, explain, respond
from service.metrics import Metrics
from service.traces import Traces

SAFE_HEADERS: list[Header] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_CSP: Header = (
    b"content-security-policy",
    b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    b"worker-src 'self' blob:; connect-src 'self' blob: data:; frame-ancestors 'none'; "
    b"base-uri 'none'; form-action 'self'",
)


class Edge:
    """Pure ASGI, for it stands before every request."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, cors: bool, traces: Traces | None = None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._traces = traces
        self._safe = [pair for pair in SAFE_HEADERS if not (cors and b"resource" in pair[0])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        method = scope["method"]
        if method == "HEAD":  # what GET answers, without the body
            scope = {**scope, "method": "GET"}
        request_id = scope["request_id"] = request_id_of(scope["headers"])
        status = 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._dress(message["headers"], request_id)
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, send_safely)
        except Exception as error:
            if not isinstance(error, EXPECTED):
                log.exception("unhandled error", extra={"request_id": request_id})
            if status == 0:
                oip = scope["path"].startswith("/v2")
                await respond(explain(error), request_id, oip=oip)(scope, receive, send_safely)
        finally:
            seconds = time.perf_counter() - started
            more = scope.get("note", {})
            route = route_of(scope)
            note_request(self._metrics, request_id, method, route, status, seconds, more)
            if self._traces is not None and "call" in scope:
                self._traces.record(scope["call"], route, status, started)

    def _dress(self, headers: Iterable[Header], request_id: str) -> list[Header]:
        """The answer's own headers, and those it lacks."""
        dressed = list(headers)
        said = dict(dressed)
        dressed.append((b"x-request-id", request_id.encode("latin-1")))
        dressed += [pair for pair in self._safe if pair[0] not in said]
        if said.get(b"content-type", b"").startswith(b"text/html") and _CSP[0] not in said:
            dressed.append(_CSP)
        return dressed


def route_of(scope: Scope) -> str:
    """The template of the route, never the raw path: labels must stay few."""
    template = scope.get("template") or getattr(scope.get("route"), "path", None)
    if template:
        return str(template)
    return "viewer" if "endpoint" in scope else "unmatched"
