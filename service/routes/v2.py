"""The Open Inference Protocol v2 as stock clients speak it: health, metadata, infer, stats."""

from __future__ import annotations

import time
from typing import Any

import orjson
from fastapi import APIRouter
from prometheus_client.samples import Sample
from starlette.requests import Request
from starlette.responses import Response

from service import __version__, oip, tensors
from service.body import Body
from service.calls import Call, RoutedCall
from service.door import Visit
from service.errors import BadRequest, NotFound
from service.inputs import Question
from service.interpret import doubts
from service.models import Model
from service.replies import Reply
from service.routes.documentation import infer_body, infer_responses
from service.state import State, state_of

health = APIRouter(tags=["open inference protocol"])
router = APIRouter(tags=["open inference protocol"])
_EXTENSIONS = ["binary_tensor_data", "model_repository", "model_configuration", "statistics"]


@health.get("/v2/health/live", summary="Live", response_model=None)
async def live(request: Request) -> Response:
    return Response(status_code=200 if state_of(request).engine.health() is None else 503)


@health.get("/v2/health/ready", summary="Ready", response_model=None)
async def ready(request: Request) -> Response:
    return Response(status_code=200 if state_of(request).trouble() is None else 503)


@router.get("/v2", summary="Server metadata", response_model=None)
async def server() -> Response:
    return _json({"name": "splinecnn", "version": __version__, "extensions": _EXTENSIONS})


@router.get("/v2/models/stats", summary="Statistics of all models", response_model=None)
async def all_stats(request: Request) -> Response:
    state = state_of(request)
    samples = state.metrics.samples()
    return _json({"model_stats": [_stats(samples, m) for m in state.repository.models()]})


@router.get("/v2/models/{name}", summary="Model metadata", response_model=None)
@router.get("/v2/models/{name}/versions/{version}", include_in_schema=False, response_model=None)
async def metadata(request: Request, name: str, version: str | None = None) -> Response:
    repository = state_of(request).repository
    model = repository.get(name, version)
    return _json(
        {
            "name": name,
            "versions": [m.version for m in repository.models() if m.name == name],
            "platform": _platform(state_of(request)),
            "inputs": [vars(facts) for facts in tensors.inputs_of(model)],
            "outputs": [vars(facts) for facts in tensors.outputs_of(model)],
        }
    )


@router.get("/v2/models/{name}/ready", summary="Model ready", response_model=None)
@router.get(
    "/v2/models/{name}/versions/{version}/ready", include_in_schema=False, response_model=None
)
async def model_ready(request: Request, name: str, version: str | None = None) -> Response:
    state = state_of(request)
    try:
        state.repository.get(name, version)
    except NotFound:
        return Response(status_code=400)  # what a stock client reads as "no"
    return Response(status_code=200 if state.trouble() is None else 503)


@router.get("/v2/models/{name}/config", summary="Model configuration", response_model=None)
@router.get(
    "/v2/models/{name}/versions/{version}/config", include_in_schema=False, response_model=None
)
async def config(request: Request, name: str, version: str | None = None) -> Response:
    model = state_of(request).repository.get(name, version)
    return _json(
        {
            "name": name,
            "platform": _platform(state_of(request)),
            "backend": "splinecnn",
            "max_batch_size": 0,  # graphs have no batch dimension; the engine packs them
            "input": [_configured(facts) for facts in tensors.inputs_of(model)],
            "output": [_configured(facts) for facts in tensors.outputs_of(model)],
        }
    )


@router.get("/v2/models/{name}/stats", summary="Model statistics", response_model=None)
@router.get(
    "/v2/models/{name}/versions/{version}/stats", include_in_schema=False, response_model=None
)
async def stats(request: Request, name: str, version: str | None = None) -> Response:
    state = state_of(request)
    model = state.repository.get(name, version)
    return _json({"model_stats": [_stats(state.metrics.samples(), model)]})


@router.post(
    "/v2/models/{name}/infer",
    summary="Infer",
    response_model=None,
    responses=infer_responses(),
    openapi_extra=infer_body(),
)
@router.post(
    "/v2/models/{name}/versions/{version}/infer", include_in_schema=False, response_model=None
)
async def infer(request: Request, name: str, version: str | None = None) -> Response:
    state = state_of(request)
    model = state.repository.get(name, version)
    with state.engine.admit(model.task) as visit:
        call = RoutedCall(request, state.settings)
        visit.check(call.deadline)
        return (await answer(state, call, visit, model=model)).response()


async def answer(state: State, call: Call, visit: Visit, *, model: Model) -> Reply:
    """Body, tensors, answer, as the friendly routes do it."""
    settings = state.settings
    body = await call.body()
    visit.begin(len(body), call.deadline)
    arrived = started = time.perf_counter()
    call.note["model"] = f"{model.name}/{model.version}"

    def decode(body: Body) -> tuple[oip.InferRequest, Question]:
        length = call.headers.get(oip.HEADER_LENGTH.lower())
        asked = oip.read_infer(body, length, settings.max_body_bytes)
        question = tensors.question_of(model, asked.tensors, asked.parameters, settings)
        asked.tensors.clear()  # the graph has what it needs of them
        return asked, question

    asked, question = await state.off_loop(len(body), decode, body)
    del body
    known = tensors.known_outputs(question)
    for want in asked.outputs or []:
        if want.name not in known:
            raise BadRequest(
                f"unknown output {want.name[:80]!r}; known: {', '.join(sorted(known))}"
            )
    timings = {"decode": time.perf_counter() - started}
    with call.leaving() as gone:
        outcome = await state.engine.predict(
            model,
            question.graph,
            question.options,
            deadline=_sooner(call.deadline, asked.parameters),
            request_id=call.request_id,
            gone=gone,
        )
    timings["queue"], timings["run"] = outcome.queue, outcome.run
    encoding = call.headers.get("accept-encoding", "")
    started = time.perf_counter()

    def encode() -> Reply:
        facts: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
        if warning := doubts(question, outcome.arrays):
            facts["parameters"] = {"warning": warning}
        results = tensors.results_of(question, outcome.arrays)
        content, head = oip.write_infer(facts, results, asked)
        media = "application/json" if head is None else "application/octet-stream"
        headers = {} if head is None else {oip.HEADER_LENGTH: str(head)}
        content, coding = oip.compress(content, encoding)
        if coding is not None:
            headers["Content-Encoding"] = coding
        return Reply(content, media, headers)

    size = sum(array.nbytes for array in outcome.arrays.values())
    if question.include:
        size = 1 << 40  # always in a thread
    if "gzip" in encoding:
        size *= 8
    elif asked.all_binary:
        size //= 16  # is copied, no more
    reply = await state.off_loop(size, encode)
    timings["encode"] = time.perf_counter() - started
    state.metrics.observe(model.name, timings)
    call.stages = arrived, timings
    call.note["batch"] = outcome.shared
    return reply


def _sooner(deadline: float, parameters: dict[str, Any]) -> float:
    """The protocol's `timeout` counts microseconds; it may shorten our deadline."""
    timeout = parameters.get("timeout")
    if timeout is None:
        return deadline
    if isinstance(timeout, bool) or not isinstance(timeout, int) or timeout < 0:
        raise BadRequest("parameters.timeout must be a whole number of microseconds")
    return min(deadline, time.monotonic() + timeout / 1e6) if timeout else deadline


def _platform(state: State) -> str:
    return {"torchscript": "pytorch_libtorch", "onnx": "onnxruntime_onnx"}[state.settings.runtime]


def _configured(facts: tensors.TensorFacts) -> dict[str, Any]:
    return {"name": facts.name, "data_type": f"TYPE_{facts.datatype}", "dims": facts.shape}


def _stats(samples: list[Sample], model: Model) -> dict[str, Any]:
    """What became of the requests for a model, all its versions together."""

    def count(name: str, **labels: str) -> float:
        wanted = {"model": model.name, **labels}.items()
        return sum(s.value for s in samples if s.name == name and wanted <= s.labels.items())

    def spent(stage: str) -> dict[str, int]:
        times = count("splinecnn_stage_seconds_count", stage=stage)
        seconds = count("splinecnn_stage_seconds_sum", stage=stage)
        return {"count": int(times), "ns": int(seconds * 1e9)}

    stages = {stage: spent(stage) for stage in ("decode", "queue", "run", "encode")}
    asked = count("splinecnn_predictions_total")
    failed = asked - count("splinecnn_predictions_total", status="200")
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(1000 * count("splinecnn_last_prediction_timestamp_seconds")),
        "inference_count": stages["run"]["count"],
        "execution_count": int(count("splinecnn_batch_graphs_count")),
        "inference_stats": {
            "success": {
                "count": stages["run"]["count"],
                "ns": sum(stage["ns"] for stage in stages.values()),
            },
            "fail": {"count": int(failed), "ns": 0},  # their time is not measured by model
            "queue": stages["queue"],
            "compute_input": stages["decode"],
            "compute_infer": stages["run"],
            "compute_output": stages["encode"],
        },
        "batch_stats": [],
    }


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
