"""POST /v1/{task}: friendly JSON, mesh files or images in, friendly JSON or raw arrays out."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.graph import CORRESPONDENCE, GRAPH_LABEL, NODE_LABELS
from service import answers, schemas
from service.body import read_body
from service.engine import Visit
from service.inputs import is_file, media_type, read_question
from service.interpret import interpret
from service.routes.documentation import request_body, responses
from service.state import State, deadline_of, state_of

router = APIRouter(tags=["predict"])
_PATIENCE = 0.02  # seconds before it is worth knowing whether the caller is still there
_ANYWHERE = 1 << 40  # for what is always done in a thread


@router.post(
    "/v1/correspondence",
    summary="For every vertex of a mesh, the vertex of the reference shape it corresponds to",
    response_model=None,
    responses=responses(schemas.Correspondence),
    openapi_extra=request_body(CORRESPONDENCE),
)
async def correspondence(request: Request) -> Response:
    return await predict(request, CORRESPONDENCE)


@router.post(
    "/v1/node-labels",
    summary="For every node of a graph, its label",
    response_model=None,
    responses=responses(schemas.NodeLabels),
    openapi_extra=request_body(NODE_LABELS),
)
async def node_labels(request: Request) -> Response:
    return await predict(request, NODE_LABELS)


@router.post(
    "/v1/graph-label",
    summary="The class of a graph or of an image",
    response_model=None,
    responses=responses(schemas.GraphLabel),
    openapi_extra=request_body(GRAPH_LABEL),
)
async def graph_label(request: Request) -> Response:
    return await predict(request, GRAPH_LABEL)


async def predict(request: Request, task: str) -> Response:
    """Door, body, graph, answer; each stage timed, none of the heavy ones on the loop."""
    state = state_of(request)
    with state.engine.admit(task) as visit:
        return await _predict(request, state, task, visit)


async def _predict(request: Request, state: State, task: str, visit: Visit) -> Response:
    settings = state.settings
    deadline = deadline_of(request, settings)
    visit.check(deadline)
    media = answers.negotiate(request.headers.get("accept", ""))
    body = await read_body(request, settings.max_body_bytes, settings.body_seconds)
    visit.begin(len(body), deadline)
    started = time.perf_counter()
    content_type = media_type(request.headers.get("content-type", ""))
    query = request.query_params
    question = await state.off_loop(
        _ANYWHERE if is_file(task, content_type, query) else len(body),
        read_question,
        task,
        body,
        content_type,
        query,
        settings,
        state.repository.resolve,
    )
    del body  # a large one should not lie in memory while the model runs
    timings = {"decode": time.perf_counter() - started}
    model = question.model
    request_id = request.scope["request_id"]
    with leaving(request) as gone:
        outcome = await state.engine.predict(
            model,
            question.graph,
            question.options,
            deadline=deadline,
            request_id=request_id,
            gone=gone,
        )
    timings |= {"queue": outcome.queue, "run": outcome.run}
    size = sum(array.nbytes for array in outcome.arrays.values())

    def finish() -> Response:
        began = time.perf_counter()
        answer = interpret(question, outcome.arrays)
        if question.include:
            timings["carry"] = time.perf_counter() - began
        return answers.encode(answer, media, timings, request_id)

    response = await state.off_loop(_ANYWHERE if question.include else size, finish)
    state.metrics.observe(model.name, model.version, timings)
    request.scope["note"] = {
        "model": f"{model.name}/{model.version}",
        "nodes": question.graph.num_nodes,
        "batch": outcome.shared,
        **{f"{stage}_ms": round(seconds * 1000, 2) for stage, seconds in timings.items()},
    }
    return response


class leaving:
    """A future that is done when the caller hangs up; used once the body has been read.

    Watching costs a task, so it begins only when the answer has been awaited for a while.
    """

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
