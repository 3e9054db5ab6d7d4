"""GET /v1/models…: what is served, its scores, its reference shape, a request that works."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.attributes import FILE
from service import answers
from service.errors import NotFound
from service.meshfiles import read_exported
from service.models import Model
from service.state import state_of

router = APIRouter(tags=["models"])
_PLY = "model/ply"
_REFERENCE = {_PLY: _PLY, answers.JSON: answers.JSON, "application/*": answers.JSON, "*/*": _PLY}


@router.get("/v1/models", summary="Every served model", response_model=None)
async def list_models(request: Request) -> Response:
    return _json({"models": [_describe(request, m) for m in state_of(request).repository.models()]})


@router.get("/v1/models/{name}", summary="One model", response_model=None)
async def show_model(request: Request, name: str) -> Response:
    return _json(_describe(request, _find(request, name)))


@router.get("/v1/models/{name}/sample", summary="A request that works", response_model=None)
async def show_sample(request: Request, name: str) -> Response:
    model = _find(request, name)
    return _json({**model.bundle.sample, "model": model.name})


@router.get(
    "/v1/models/{name}/reference",
    summary="The reference mesh, as PLY, or as JSON when Accept asks for it",
    response_model=None,
)
async def show_reference(request: Request, name: str) -> Response:
    model = _find(request, name)
    body = model.reference
    if body is None:
        raise NotFound(f"model {model.name!r} has no reference shape")
    kind = answers.choose(request.headers.get("accept", ""), _REFERENCE) or _PLY
    digest = model.manifest.files["reference.ply"]
    headers = _cached(digest if kind == _PLY else f"{digest}-json") | {"Vary": "Accept"}
    if _has(request, headers):
        return Response(None, 304, headers)
    if kind == _PLY:
        headers["Content-Disposition"] = f'attachment; filename="{model.name}.ply"'
        return Response(body, 200, headers, _PLY)
    vertices, faces = await asyncio.to_thread(read_exported, body)
    mesh = {"vertices": vertices.astype(np.float32), "faces": faces}
    return _json({"mesh": mesh}, headers)


@router.get(
    "/v1/models/{name}/attributes",
    summary="Landmarks and segments of the reference mesh",
    response_model=None,
)
async def show_attributes(request: Request, name: str) -> Response:
    model = _find(request, name)
    attributes = model.bundle.attributes
    if attributes is None:
        raise NotFound(f"the reference of model {model.name!r} has no landmarks or segments")
    headers = _cached(model.manifest.files[FILE])
    if _has(request, headers):
        return Response(None, 304, headers)
    segments = {"names": attributes.segment_names, "of_vertex": attributes.segments}
    return _json({"landmarks": attributes.landmarks, "segments": segments}, headers)


def _cached(tag: str) -> dict[str, str]:
    return {"ETag": f'"{tag}"', "Cache-Control": "no-cache"}


def _has(request: Request, headers: dict[str, str]) -> bool:
    """Whether the caller says that it has just this already."""
    known = request.headers.get("if-none-match", "").split(",")
    return any(tag.strip().removeprefix("W/") in ("*", headers["ETag"]) for tag in known)


def _find(request: Request, name: str) -> Model:
    base, _, version = name.partition("@")
    return state_of(request).repository.get(base, version or None)


def _describe(request: Request, model: Model) -> dict[str, Any]:
    """A model's facts, and whether its task takes it when a request names none."""
    chosen = state_of(request).repository.resolve(model.task, None)
    return {**model.describe(), "default": chosen is model}


def _json(value: Any, headers: dict[str, str] | None = None) -> Response:
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, 200, headers, "application/json")
