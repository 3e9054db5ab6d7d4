"""What a request may ask beside its mesh: refining; and what an answer may say: a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
import trimesh
from service_toys import Caller, ball, ring
from test_predict import problem

from service.metrics import Metrics
from service.repository import Repository
from service.settings import Settings
from tests.toys import make_nearest_bundle

Start = Callable[[Settings], Caller]


@pytest.fixture
def nearest(own_bundles: Path, settings: Callable[..., Settings], start: Start) -> Caller:
    """The toys, and one that refines, doubts and is the default of its task."""
    make_nearest_bundle(own_bundles, trimesh.creation.icosphere(1), doubt=0.5, default=True)
    return start(settings(models=own_bundles))


def test_the_model_marked_as_default_answers_and_the_list_says_so(nearest: Caller) -> None:
    assert nearest.post("/v1/correspondence", json={"mesh": ball()}).json()["model"]["name"] == (
        "nearest"
    )
    listed = {m["name"]: m for m in nearest.get("/v1/models").json()["models"]}
    assert listed["nearest"]["default"] and not listed["bodies"]["default"]
    assert listed["nearest"]["refine"] and not listed["bodies"]["refine"]


def test_a_configured_default_comes_before_a_marked_one(
    nearest: Caller, own_bundles: Path, settings: Callable[..., Settings]
) -> None:
    chosen = settings(models=own_bundles, default_models="correspondence=bodies")
    repository = Repository(chosen, Metrics())
    repository.load_all()
    assert repository.resolve("correspondence", None).name == "bodies"


def test_refining_is_asked_in_the_body_or_the_query(nearest: Caller) -> None:
    body = {"mesh": ball()}
    plain = np.array(nearest.post("/v1/correspondence", json=body).json()["confidence"])
    for url, more in (("", {"refine": True}), ("?refine=true", {})):
        answer = nearest.post(f"/v1/correspondence{url}", json={**body, **more}).json()
        assert np.array(answer["confidence"]) == pytest.approx(plain**10, rel=1e-3)
    for url, more in (("", {"refine": False}), ("?refine=true", {"refine": False})):
        answer = nearest.post(f"/v1/correspondence{url}", json={**body, **more}).json()
        assert answer["confidence"] == pytest.approx(plain)
    file = trimesh.Trimesh(**ball(), process=False).export(file_type="ply")
    answer = nearest.post(
        "/v1/correspondence?refine=true", content=file, headers={"Content-Type": "model/ply"}
    ).json()
    assert np.array(answer["confidence"]) == pytest.approx(plain**10, rel=1e-3)


def test_refined_and_plain_requests_never_share_a_run(nearest: Caller) -> None:
    """Both at once, many times: each gets the answer it gets alone."""
    import asyncio

    bodies = [{"mesh": ball(seed=n), "refine": n % 2 == 0} for n in range(24)]
    alone = [nearest.post("/v1/correspondence", json=body).json() for body in bodies]

    async def together() -> list[dict[str, object]]:
        posts = [nearest.client.post("/v1/correspondence", json=body) for body in bodies]
        return [response.json() for response in await asyncio.gather(*posts)]

    for one, other in zip(alone, nearest._runner.run(together()), strict=True):
        assert one["confidence"] == other["confidence"]


def test_a_model_that_cannot_refine_says_so(nearest: Caller) -> None:
    body = {"mesh": ball(), "model": "bodies", "refine": True}
    said = problem(nearest.post("/v1/correspondence", json=body), 422, "refine")
    assert said == "model 'bodies' cannot refine its answers"
    for value in ("true", "false"):
        url = f"/v1/node-labels?refine={value}"
        said = problem(nearest.post(url, json={"graph": ring()}), 422, "refine")
        assert said == "does not apply to node-labels"
    for wrong, want in ((1, "must be true or false, got"), ("yes", "must be true or false, got")):
        body = {"mesh": ball(), "refine": wrong}
        assert want in problem(nearest.post("/v1/correspondence", json=body), 422, "refine")
    said = problem(nearest.post("/v1/correspondence?refine=1", json={"mesh": ball()}), 422)
    assert "must be true or false, got '1'" in said


def test_the_open_inference_protocol_refines_by_a_parameter(nearest: Caller) -> None:
    mesh = ball()
    inputs = [
        {"name": "vertices", "datatype": "FP32", "shape": [42, 3], "data": mesh["vertices"]},
        {"name": "faces", "datatype": "INT64", "shape": [80, 3], "data": mesh["faces"]},
    ]

    def infer(model: str, **parameters: object) -> object:
        body = {"inputs": inputs, "parameters": parameters}
        return nearest.post(f"/v2/models/{model}/infer", json=body)

    plain = np.array(infer("nearest").json()["outputs"][1]["data"])
    refined = infer("nearest", refine=True).json()["outputs"][1]["data"]
    assert refined == pytest.approx(plain**10, rel=1e-3)
    assert "model 'bodies' cannot refine its answers" in infer("bodies", refine=True).text
    assert "parameters.refine must be true or false" in infer("nearest", refine=3).text


def test_an_answer_the_model_doubts_carries_a_warning(nearest: Caller) -> None:
    far = ball()
    far["vertices"] = (np.array(far["vertices"]) + 5).tolist()
    assert "warning" not in nearest.post("/v1/correspondence", json={"mesh": ball()}).json()
    answer = nearest.post("/v1/correspondence", json={"mesh": far}).json()
    assert "does not look like what the model 'nearest' knows" in answer["warning"]
    assert "usually above 0.50" in answer["warning"] and "guess" in answer["warning"]
    for accept in ("application/octet-stream", "application/x-npy"):
        raw = nearest.post("/v1/correspondence", json={"mesh": far}, headers={"Accept": accept})
        assert raw.headers["x-warning"] == answer["warning"]
        raw = nearest.post("/v1/correspondence", json={"mesh": ball()}, headers={"Accept": accept})
        assert "x-warning" not in raw.headers
    never = nearest.post("/v1/correspondence", json={"mesh": far, "model": "bodies"}).json()
    assert "warning" not in never


def test_a_doubted_answer_is_told_to_protocol_clients_too(nearest: Caller) -> None:
    mesh = ball()
    far = (np.array(mesh["vertices"]) + 5).tolist()
    inputs = [
        {"name": "vertices", "datatype": "FP32", "shape": [42, 3], "data": far},
        {"name": "faces", "datatype": "INT64", "shape": [80, 3], "data": mesh["faces"]},
    ]
    answer = nearest.post("/v2/models/nearest/infer", content=orjson.dumps({"inputs": inputs}))
    assert "guess" in answer.json()["parameters"]["warning"]
