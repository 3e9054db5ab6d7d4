"""The outermost room: a request id, safe headers, one log line and one count per request."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import EXPECTED, explain, respond
from service.metrics import Metrics

log = logging.getLogger("splinecnn.access")

Header = tuple[bytes, bytes]
Shortcut = Callable[[Scope, Receive], Awaitable[Response] | None]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}
_QUIET = {"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}
_SAFE_HEADERS: list[Header] = [
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
    """Pure ASGI, for it stands before every request; the busiest branch off here."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, cors: bool, shortcut: Shortcut | None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._shortcut = shortcut
        self._safe = [pair for pair in _SAFE_HEADERS if not (cors and b"resource" in pair[0])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = scope["request_id"] = request_id_of(scope["headers"])
        status = 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._dress(message["headers"], request_id)
            await send(message)

        try:
            answer = None
            if self._shortcut is not None and scope["method"] == "POST":
                answer = self._shortcut(scope, receive)
            if answer is None:
                await self._app(scope, receive, send_safely)
            else:
                await (await answer)(scope, receive, send_safely)
        except Exception as error:
            if not isinstance(error, EXPECTED):
                log.exception("unhandled error", extra={"request_id": request_id})
            if status == 0:
                oip = scope["path"].startswith("/v2")
                await respond(explain(error), request_id, oip=oip)(scope, receive, send_safely)
        finally:
            self._note(scope, status, time.perf_counter() - started, request_id)

    def _dress(self, headers: Iterable[Header], request_id: str) -> list[Header]:
        """The answer's own headers, and those it lacks."""
        dressed = list(headers)
        said = dict(dressed)
        dressed.append((b"x-request-id", request_id.encode("latin-1")))
        dressed += [pair for pair in self._safe if pair[0] not in said]
        if said.get(b"content-type", b"").startswith(b"text/html") and _CSP[0] not in said:
            dressed.append(_CSP)
        return dressed

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.observe_request(route, method, status, seconds)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "%s %s %d",
                method,
                route,
                status,
                extra={
                    "request_id": request_id,
                    "method": method,
                    "route": route,
                    "status": status,
                    "ms": round(seconds * 1000, 2),
                    **scope.get("note", {}),
                },
            )


def request_id_of(headers: Iterable[Header]) -> str:
    """The caller's id if it has a safe form, else its trace id, else a new one."""
    given = trace = ""
    for name, value in headers:
        if name == b"x-request-id":
            given = value.decode("latin-1")
        elif name == b"traceparent":
            trace = value.decode("latin-1")
    if _REQUEST_ID.fullmatch(given):
        return given
    traced = _TRACE.fullmatch(trace)
    # an id, not a secret
    return traced[1] if traced else f"{random.getrandbits(128):032x}"  # nosec B311


def route_of(scope: Scope) -> str:
    """The template of the route, never the raw path: labels must stay few."""
    template = scope.get("template") or getattr(scope.get("route"), "path", None)
    if template:
        return str(template)
    return "viewer" if "endpoint" in scope else "unmatched"
