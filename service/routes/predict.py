"""POST /v1/{task}: friendly JSON, mesh files or images in, friendly JSON or raw arrays out."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.graph import CORRESPONDENCE, GRAPH_LABEL, NODE_LABELS
from service import answers, schemas
from service.calls import Call, RoutedCall
from service.door import Visit
from service.inputs import is_file, media_type, read_question
from service.interpret import interpret
from service.logs import milliseconds
from service.models import Model
from service.replies import Reply
from service.routes.documentation import request_body, responses
from service.state import State, state_of

router = APIRouter(tags=["predict"])
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
    """Through the door, and to the answer."""
    state = state_of(request)
    with state.engine.admit(task) as visit:
        call = RoutedCall(request, state.settings)
        visit.check(call.deadline)
        return (await answer(state, call, visit, task=task)).response()


async def answer(state: State, call: Call, visit: Visit, *, task: str) -> Reply:
    """Body, graph, answer; each stage timed, none of the heavy ones on the loop."""
    settings = state.settings
    headers, query = call.headers, call.query
    media = answers.negotiate(headers.get("accept", ""))
    body = await call.body()
    visit.begin(len(body), call.deadline)
    arrived = time.perf_counter()
    content_type = media_type(headers.get("content-type", ""))

    def lookup(task: str, name: str | None) -> Model:
        model = state.repository.resolve(task, name)
        call.note["model"] = f"{model.name}/{model.version}"  # also of what fails from here on
        return model

    question = await state.off_loop(
        _ANYWHERE if is_file(task, content_type, query) else len(body),
        read_question,
        task,
        body,
        content_type,
        query,
        settings,
        lookup,
    )
    del body  # a large one should not lie in memory while the model runs
    timings = {"decode": time.perf_counter() - arrived}
    model = question.model
    with call.leaving() as gone:
        outcome = await state.engine.predict(
            model,
            question.graph,
            question.options,
            deadline=call.deadline,
            request_id=call.request_id,
            gone=gone,
        )
    timings["queue"], timings["run"] = outcome.queue, outcome.run
    size = sum(array.nbytes for array in outcome.arrays.values())

    def finish() -> Reply:
        began = time.perf_counter()
        answer = interpret(question, outcome.arrays)
        if question.include:
            timings["carry"] = time.perf_counter() - began
        return answers.encode(answer, media, timings, call.request_id)

    # arrays are written twice as fast as they are read
    reply = await state.off_loop(_ANYWHERE if question.include else size // 2, finish)
    state.metrics.observe(model.name, timings)
    call.stages = arrived, timings
    call.note["nodes"] = question.graph.num_nodes
    call.note["batch"] = outcome.shared
    for stage, seconds in timings.items():
        call.note[f"{stage}_ms"] = milliseconds(seconds)
    return reply
