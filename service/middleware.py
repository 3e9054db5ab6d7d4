"""The outermost room: a request id, safe headers, one log line and one count per request."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import explain, respond
from service.metrics import Metrics

log = logging.getLogger("splinecnn.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}
_QUIET = {"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}
_SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_CSP = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "worker-src 'self' blob:; connect-src 'self' blob: data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'"
)


class Edge:
    """Pure ASGI, for it stands before every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, cors: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._safe = {k: v for k, v in _SAFE_HEADERS.items() if not (cors and "Resource" in k)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = scope["request_id"] = request_id_of(Headers(scope=scope))
        status = 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in self._safe.items():
                    headers.setdefault(name, value)
                if headers.get("content-type", "").startswith("text/html"):
                    headers.setdefault("Content-Security-Policy", _CSP)
            await send(message)

        try:
            await self._app(scope, receive, send_safely)
        except Exception as error:
            log.exception("unhandled error", extra={"request_id": request_id})
            if status == 0:
                oip = scope["path"].startswith("/v2")
                await respond(explain(error), request_id, oip=oip)(scope, receive, send_safely)
        finally:
            self._note(scope, status, time.perf_counter() - started, request_id)

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
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


def request_id_of(headers: Headers) -> str:
    """The caller's id if it has a safe form, else its trace id, else a new one."""
    given = headers.get("x-request-id", "")
    if _REQUEST_ID.fullmatch(given):
        return given
    trace = _TRACE.fullmatch(headers.get("traceparent", ""))
    return trace[1] if trace else uuid.uuid4().hex


def route_of(scope: Scope) -> str:
    """The template of the route, never the raw path: labels must stay few."""
    template = scope.get("template") or getattr(scope.get("route"), "path", None)
    if template:
        return str(template)
    return "viewer" if "endpoint" in scope else "unmatched"
