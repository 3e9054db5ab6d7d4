"""Keys, limits, headers, request ids, health and metrics."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from PIL import Image
from service_toys import Caller, ball, ring
from test_predict import problem

from model.export import export_bundle
from model.zoo import ZooEntry, write_zoo
from service.auth import Doorkeeper, KeyFileError, read_keys
from service.settings import Settings

Start = Callable[[Settings], Caller]
Make = Callable[..., Settings]


def test_without_keys_everyone_may_enter(api: Caller) -> None:
    assert api.get("/v1/models").status_code == 200


def test_keys_guard_every_route_but_health(settings: Make, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst-key\n\nsecond-key\n  # indented\n")
    app = start(settings(api_keys_file=file, api_keys="third-key", admin_key="boss"))
    for url in ("/v1/models", "/v1/models/cora", "/v2", "/v2/models/cora"):
        refused = app.get(url)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        for guess in ("guess", "# indented"):
            assert app.get(url, headers={"X-API-Key": guess}).status_code == 403
        for key in ("first-key", "second-key", "third-key", "boss"):
            assert app.get(url, headers={"X-API-Key": key}).status_code == 200
            assert app.get(url, headers={"Authorization": f"Bearer {key}"}).status_code == 200
    detail = problem(app.post("/v1/correspondence", json={"mesh": ball()}), 401)
    assert "Authorization: Bearer" in detail
    for url in ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"):
        assert app.get(url).status_code == 200
    load = "/v2/repository/models/cora/load"
    assert app.post(load, headers={"X-API-Key": "first-key"}).status_code == 403
    assert app.post(load, headers={"X-API-Key": "boss"}).status_code == 200


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot read the key file"), ("# none\n", "holds no key")]
)
def test_a_bad_key_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(KeyFileError, match=message):
        read_keys(file)


@pytest.mark.parametrize("keys", [",", " ", " , "])
def test_keys_that_are_none_do_not_open_the_service(settings: Make, keys: str) -> None:
    with pytest.raises(KeyFileError, match="--api-keys holds no key"):
        Doorkeeper(settings(api_keys=keys))


def test_sizes_are_refused_before_memory_is_taken(settings: Make, start: Start) -> None:
    app = start(settings(max_nodes=41, max_faces=10, max_edges=8, max_pixels=100))
    sent = {"mesh": {**ball(), "faces": [[0, 1, 2]]}}
    refused = app.post("/v1/correspondence", json=sent)
    assert "at most 41 rows, got 42" in problem(refused, 413, "mesh.vertices")
    refused = app.post("/v1/correspondence", json={"mesh": ball()})
    assert "at most 10 rows, got 80" in problem(refused, 413, "mesh.faces")
    refused = app.post("/v1/node-labels", json={"graph": ring()})
    assert "at most 4 rows, got 8" in problem(refused, 413, "graph.edges")
    stream = io.BytesIO()
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(stream, "png")
    headers = {"Content-Type": "image/png"}
    refused = app.post("/v1/graph-label", content=stream.getvalue(), headers=headers)
    assert "at most 100 pixels, got 28 x 28" in problem(refused, 413, "image")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("ply", b"ply\nformat ascii 1.0\nelement vertex 999999999\nend_header\n"),
        ("off", b"OFF\n999999999 1 0\n"),
        ("stl", bytes(80) + (999_999_999).to_bytes(4, "little")),
        ("obj", b"\nv 0 0 0" * 50),
    ],
)
def test_a_file_that_claims_too_much_is_not_parsed(
    settings: Make, start: Start, kind: str, data: bytes
) -> None:
    app = start(settings(max_nodes=41, max_faces=10))
    refused = app.post(
        "/v1/correspondence", content=data, headers={"Content-Type": f"model/{kind}"}
    )
    assert "must have at most" in problem(refused, 413)


def test_a_glb_that_claims_too_much_is_not_parsed(api: Caller) -> None:
    tree = orjson.dumps(
        {
            "asset": {"version": "2.0"},
            "accessors": [{"count": 10**9, "componentType": 5126, "type": "VEC3"}],
            "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
            "nodes": [{"mesh": 0}],
        }
    )
    size = len(tree).to_bytes(4, "little")
    data = b"glTF" + (2).to_bytes(4, "little") + (20 + len(tree)).to_bytes(4, "little")
    data += size + b"JSON" + tree
    headers = {"Content-Type": "model/gltf-binary"}
    refused = api.post("/v1/correspondence", content=data, headers=headers)
    assert "at most 250000 rows" in problem(refused, 413, "mesh.vertices")


def test_a_body_over_the_limit_is_413_with_or_without_a_length(
    settings: Make, start: Start
) -> None:
    app = start(settings(max_body_mb=0.001))
    body = orjson.dumps({"mesh": ball()})
    assert "must not exceed 1048 bytes" in problem(
        app.post("/v1/correspondence", content=body), 413
    )

    async def chunks() -> Any:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    problem(app.post("/v1/correspondence", content=chunks()), 413)


def test_a_bomb_is_stopped_at_the_limit(settings: Make, start: Start) -> None:
    app = start(settings(max_body_mb=1))
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 1 << 20
    response = app.post("/v1/correspondence", content=bomb, headers={"Content-Encoding": "gzip"})
    assert "must not exceed" in problem(response, 413)


@pytest.mark.parametrize("cut", [slice(None, -4), slice(None, 20)])
def test_a_cut_gzip_body_is_400(api: Caller, cut: slice) -> None:
    data = gzip.compress(orjson.dumps({"graph": ring()}))[cut]
    response = api.post("/v1/node-labels", content=data, headers={"Content-Encoding": "gzip"})
    assert "cut short" in problem(response, 400)


def test_a_body_that_trickles_is_408(settings: Make, start: Start) -> None:
    import asyncio

    app = start(settings(body_seconds=0.05))

    async def trickle() -> Any:
        yield b"{"
        await asyncio.sleep(1)
        yield b"}"

    response = app.post("/v1/correspondence", content=trickle())
    assert "within 0.05 seconds" in problem(response, 408)


def test_a_full_service_says_when_to_come_back(settings: Make, start: Start) -> None:
    app = start(settings(max_queue=1))
    app.app.state.service.engine.in_flight = 1
    response = app.post("/v1/correspondence", json={"mesh": ball()})
    app.app.state.service.engine.in_flight = 0
    problem(response, 429)
    assert int(response.headers["retry-after"]) >= 1


def test_a_draining_service_is_alive_but_not_ready(settings: Make, start: Start) -> None:
    app = start(settings())
    app.app.state.service.engine.draining = True
    response = app.post("/v1/correspondence", json={"mesh": ball()})
    assert "shutting down" in problem(response, 503)
    assert response.headers["connection"] == "close"
    assert app.get("/healthz").status_code == 200
    assert app.get("/readyz").status_code == 503
    assert app.get("/v2/health/live").status_code == 200
    assert app.get("/v2/health/ready").status_code == 503


def test_headers_are_safe_and_cors_is_off(api: Caller) -> None:
    response = api.get("/v1/models", headers={"Origin": "https://elsewhere.example"})
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers


def test_cors_lets_in_who_is_named(settings: Make, start: Start) -> None:
    app = start(settings(cors_origins=["https://viewer.example"]))
    for origin, allowed in (("https://viewer.example", True), ("https://other.example", False)):
        response = app.get("/v1/models", headers={"Origin": origin})
        assert (response.headers.get("access-control-allow-origin") == origin) is allowed


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Request-ID": "mine-1"}, "mine-1"),
        ({"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}, "ab" * 16),
        ({"X-Request-ID": "bad id\u00e9"}, None),
        ({"X-Request-ID": "x" * 200}, None),
        ({}, None),
    ],
)
def test_request_ids_are_taken_when_safe_and_always_returned(
    api: Caller, headers: dict[str, str], expected: str | None
) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    response = api.get("/v1/models/none", headers=raw)
    found = response.headers["x-request-id"]
    assert found == response.json()["request_id"]
    assert found == expected if expected else len(found) == 32


def test_metrics_use_route_templates_and_split_the_stages(settings: Make, start: Start) -> None:
    app = start(settings())
    for name in ("a", "b", "c"):
        app.get(f"/v1/models/{name}")
        app.get(f"/nowhere/{name}")
    app.post("/v1/node-labels", json={"graph": ring()})
    text = app.get("/metrics").text
    assert 'splinecnn_requests_total{method="GET",route="/v1/models/{name}",status="404"} 3' in text
    assert 'route="unmatched",status="404"} 3' in text
    for stage in ("decode", "queue", "run", "encode"):
        assert f'splinecnn_stage_seconds_count{{model="cora",stage="{stage}"}} 1.0' in text
    assert 'splinecnn_predictions_total{model="cora",status="200",version="1"} 1.0' in text
    assert 'splinecnn_batch_graphs_count{model="cora"} 1.0' in text
    assert 'splinecnn_queue_depth{lane="small"} 0.0' in text
    assert "splinecnn_ready 1.0" in text
    assert "splinecnn_resident_bytes" in text


def test_failures_are_counted_by_model_and_status(settings: Make, start: Start) -> None:
    app = start(settings())
    wrong = {**ring(), "edges": [[0, 99]]}
    app.post("/v1/node-labels", json={"graph": ring()})
    app.post("/v1/node-labels", json={"graph": wrong})
    app.post("/v1/node-labels", json={"graph": ring(), "model": "made-up"})
    app.post("/v2/models/cora/infer", json={"inputs": []})
    app.post("/v2/models/made-up/infer", json={})
    counted = [
        line for line in app.get("/metrics").text.splitlines()
        if line.startswith("splinecnn_predictions_total")
    ]  # fmt: skip
    assert sorted(counted) == [
        f'splinecnn_predictions_total{{model="cora",status="{status}",version="1"}} 1.0'
        for status in (200, 400, 422)
    ]
    (stats,) = app.get("/v2/models/cora/stats").json()["model_stats"]
    assert stats["inference_stats"]["success"]["count"] == 1
    assert stats["inference_stats"]["fail"]["count"] == 2
    by_name = {each["name"]: each for each in app.get("/v2/models/stats").json()["model_stats"]}
    assert by_name["cora"] == stats and not by_name["bodies"]["inference_stats"]["fail"]["count"]


def test_our_own_fault_is_500_without_a_word_about_it(
    settings: Make, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = start(settings())
    repository = app.app.state.service.repository

    def fall(*_: object) -> None:
        raise RuntimeError("secret path /etc/shadow")

    monkeypatch.setattr(repository, "models", fall)
    response = app.get("/v1/models")
    assert "secret" not in problem(response, 500)


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [("GET", "/v1/correspondence", 405), ("GET", "/nothing", 404), ("DELETE", "/healthz", 405)],
)
def test_wrong_paths_and_methods_are_problems_too(
    api: Caller, method: str, url: str, status: int
) -> None:
    problem(api(method, url), status)


def test_models_are_described_with_scores_samples_and_references(api: Caller) -> None:
    listed = {model["name"]: model for model in api.get("/v1/models").json()["models"]}
    assert set(listed) == {"bodies", "cora", "mnist-superpixels"}
    assert listed["bodies"]["scores"] == {"exact": 0.5}
    assert listed["bodies"] == api.get("/v1/models/bodies@1").json()
    routes = {"bodies": "correspondence", "cora": "node-labels", "mnist-superpixels": "graph-label"}
    for name, route in routes.items():
        sample = api.get(listed[name]["links"]["sample"]).json()
        assert api.post(f"/v1/{route}", json=sample).json()["model"]["name"] == name
    reference = api.get(listed["bodies"]["links"]["reference"])
    assert reference.headers["content-type"] == "model/ply"
    assert reference.content.startswith(b"ply")
    accept = {"Accept": "application/json"}
    mesh = api.get(listed["bodies"]["links"]["reference"], headers=accept).json()["mesh"]
    assert len(mesh["vertices"]) == 42
    problem(api.get("/v1/models/cora/reference"), 404)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "model/ply"),
        ("*/*", "model/ply"),
        ("text/html", "model/ply"),
        ("application/json", "application/json"),
        ("application/json;q=0, model/ply", "model/ply"),
        ("model/ply;q=0.5, application/json", "application/json"),
        ("application/json;q=0.5, model/ply", "model/ply"),
    ],
)
def test_a_reference_comes_as_asked_and_only_when_it_changed(
    api: Caller, accept: str, kind: str
) -> None:
    url, headers = "/v1/models/bodies/reference", {"Accept": accept}
    first = api.get(url, headers=headers)
    assert (first.headers["content-type"], first.headers["vary"]) == (kind, "Accept")
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = api.get(url, headers={**headers, "If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert (again.headers["etag"], again.headers["vary"]) == (tag, "Accept")
    assert api.get(url, headers={**headers, "If-None-Match": '"other"'}).status_code == 200
    other = "model/ply" if kind == "application/json" else "application/json"
    asked = {"Accept": other, "If-None-Match": tag}
    assert api.get(url, headers=asked).status_code == 200  # another form of it


def test_the_page_at_the_root_is_html_with_a_content_policy(api: Caller) -> None:
    response: httpx.Response = api.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in response.headers["content-security-policy"]


def test_the_docs_page_loads_nothing_from_elsewhere(api: Caller) -> None:
    page = api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http" not in page.text.replace("http-equiv", "")
    script = api.get("/docs/page.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "http" not in script.text


def test_the_examples_of_the_openapi_document_work(api: Caller) -> None:
    tree = api.get("/openapi.json").json()
    served = {f"/v1/{task}": f"/v1/{task}" for task in ("correspondence", "graph-label")}
    served["/v2/models/{name}/infer"] = "/v2/models/mnist-superpixels/infer"
    for route, url in served.items():
        answer = api.post(url, json=_example(tree, route))
        assert answer.status_code == 200, answer.text
    schemas = set(tree["components"]["schemas"])
    assert {"CorrespondenceRequest", "GraphRequest", "ProblemBody", "Correspondence"} <= schemas
    used = {ref.removeprefix("#/components/schemas/") for ref in _references(tree)}
    theirs = {"HTTPValidationError", "ValidationError"}  # FastAPI's, kept for old callers' tools
    assert used | theirs == schemas


def test_the_example_of_node_labels_fits_a_model_of_cora(
    tmp_path: Path, settings: Make, start: Start
) -> None:
    parameters = {"num_features": 1433, "num_classes": 7, "hidden": 4}
    entry = ZooEntry("cora", "node", parameters, "degree")
    write_zoo(tmp_path / "zoo", entry, entry.build().state_dict())
    export_bundle(tmp_path / "zoo", tmp_path / "bundles", with_onnx=False)
    app = start(settings(models=tmp_path / "bundles"))
    example = _example(app.get("/openapi.json").json(), "/v1/node-labels")
    answer = app.post("/v1/node-labels", json=example)
    assert answer.status_code == 200, answer.text


def test_every_refusal_and_option_is_in_the_openapi_document(api: Caller) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    common = {"200", "400", "401", "403", "404", "408", "413", "415", "429", "503", "504"}
    for task in ("correspondence", "node-labels", "graph-label"):
        assert set(paths[f"/v1/{task}"]["post"]["responses"]) == common | {"406", "422"}
    assert set(paths["/v2/models/{name}/infer"]["post"]["responses"]) == common
    asked = {entry["name"] for entry in paths["/v1/correspondence"]["post"]["parameters"]}
    assert asked == {"model", "format", "top_k", "include", "refine", "X-Timeout-Ms"}


def _example(tree: dict[str, Any], route: str) -> Any:
    body = tree["paths"][route]["post"]["requestBody"]
    return body["content"]["application/json"]["example"]


def _references(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        own = [tree["$ref"]] if isinstance(tree.get("$ref"), str) else []
        return own + [ref for value in tree.values() for ref in _references(value)]
    if isinstance(tree, list):
        return [ref for value in tree for ref in _references(value)]
    return []
