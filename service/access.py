"""One count and one log line per request, and the id both are found by."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable
from typing import Any

from service.logs import GatheringHandler, milliseconds
from service.metrics import Metrics

log = logging.getLogger("splinecnn.access")

Header = tuple[bytes, bytes]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}
_QUIET = {"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}


def note_request(
    metrics: Metrics,
    request_id: str,
    method: str,
    route: str,
    status: int,
    seconds: float,
    more: dict[str, Any],
) -> None:
    """Count a request that was answered and write its line."""
    method = method if method in _METHODS else "OTHER"
    metrics.observe_request(route, method, status, seconds)
    if "model" in more:  # only ever one that is served, so callers cannot make up names
        name, _, version = more["model"].partition("/")
        metrics.observe_prediction(name, version, status)
    level = logging.DEBUG if route in _QUIET else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields = {
        "request_id": request_id,
        "method": method,
        "route": route,
        "status": status,
        "ms": milliseconds(seconds),
        **more,
    }
    handlers = log.handlers
    if not log.propagate and len(handlers) == 1 and isinstance(handlers[0], GatheringHandler):
        handlers[0].put(log.name, level, f"{method} {route} {status}", fields)
    else:
        log.log(level, "%s %s %d", method, route, status, extra=fields)


def request_id_of(headers: Iterable[Header]) -> str:
    """The caller's id if it has a safe form, else its trace id, else a new one."""
    given = trace = ""
    for name, value in headers:
        if name == b"x-request-id":
            given = value.decode("latin-1")
        elif name == b"traceparent":
            trace = value.decode("latin-1")
    if given and _REQUEST_ID.fullmatch(given):
        return given
    traced = trace and _TRACE.fullmatch(trace)
    # an id, not a secret
    return traced[1] if traced else f"{random.getrandbits(128):032x}"  # nosec B311
