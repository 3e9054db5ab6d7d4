"""The repository part of the protocol: list for every caller, load and unload for the admin."""

from __future__ import annotations

import asyncio

import orjson
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from service.errors import BadRequest, Invalid
from service.state import State, state_of

router = APIRouter(tags=["repository"])


async def _check_admin(request: Request) -> None:
    state_of(request).doorkeeper.check_admin(request.headers)


@router.post("/v2/repository/index", summary="Every bundle and its state", response_model=None)
async def index(request: Request) -> Response:
    found = await asyncio.to_thread(state_of(request).repository.index)
    return Response(orjson.dumps(found), media_type="application/json")


@router.post(
    "/v2/repository/models/{name}/load",
    summary="Load or reload a model",
    response_model=None,
    dependencies=[Depends(_check_admin)],
)
async def load(request: Request, name: str) -> Response:
    state = _alone(request)
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


def _alone(request: Request) -> State:
    state = state_of(request)
    if state.settings.workers > 1:
        raise BadRequest(
            "with several workers, change the bundles on disk: every worker picks that up"
        )
    return state
