"""The repository part of the protocol: list for every caller, load and unload for the admin."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from service.body import read_body
from service.errors import BadRequest, Invalid
from service.state import State, state_of

router = APIRouter(tags=["repository"])
_MOST_BYTES = 64 * 1024


async def _check_admin(request: Request) -> None:
    state_of(request).doorkeeper.check_admin(request.headers)


@router.post("/v2/repository/index", summary="Every bundle and its state", response_model=None)
async def index(request: Request) -> Response:
    ready = (await _asked(request)).get("ready", False)
    if not isinstance(ready, bool):
        raise BadRequest(f"ready must be true or false, got {ready!r}")
    found = await asyncio.to_thread(state_of(request).repository.index)
    found = [each for each in found if each["state"] == "READY" or not ready]
    return Response(orjson.dumps(found), media_type="application/json")


@router.post(
    "/v2/repository/models/{name}/load",
    summary="Load or reload a model",
    response_model=None,
    dependencies=[Depends(_check_admin)],
)
async def load(request: Request, name: str) -> Response:
    state = _alone(request)
    for parameter in (await _asked(request)).get("parameters") or {}:
        raise BadRequest(
            f"parameters.{parameter[:40]} is not supported; a model is as its bundle on disk says"
        )
    try:
        await asyncio.to_thread(state.repository.load, name)
    except Invalid as error:
        raise BadRequest(error.detail) from None
    return Response(status_code=200)


@router.post(
    "/v2/repository/models/{name}/unload",
    summary="Stop serving a model",
    response_model=None,
    dependencies=[Depends(_check_admin)],
)
async def unload(request: Request, name: str) -> Response:
    await asyncio.to_thread(_alone(request).repository.unload, name)
    return Response(status_code=200)


async def _asked(request: Request) -> dict[str, Any]:
    """The body, which may be left out."""
    body = await read_body(request, _MOST_BYTES, state_of(request).settings.body_seconds)
    try:
        asked = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("parameters", {}), dict):
        raise BadRequest("the body and its parameters must be JSON objects")
    return asked


def _alone(request: Request) -> State:
    state = state_of(request)
    if state.settings.workers > 1:
        raise BadRequest(
            "with several workers, change the bundles on disk: every worker picks that up"
        )
    return state
