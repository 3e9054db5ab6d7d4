"""GET /healthz, /readyz and /metrics: alive, willing, and measured; no key needed."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from service.state import state_of

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process works", response_model=None)
async def healthz(request: Request) -> Response:
    trouble = state_of(request).engine.health()
    return _verdict("ok" if trouble is None else trouble, trouble is None)


@router.get("/readyz", summary="Whether to send work here", response_model=None)
async def readyz(request: Request) -> Response:
    trouble = state_of(request).trouble()
    return _verdict("ready" if trouble is None else trouble, trouble is None)


@router.get("/metrics", summary="Prometheus metrics", response_model=None)
async def metrics(request: Request) -> Response:
    state = state_of(request)
    state.engine.tend()
    state.publish()
    return Response(state.metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _verdict(status: str, good: bool) -> Response:
    body = orjson.dumps({"status": status})
    return Response(body, 200 if good else 503, media_type="application/json")
