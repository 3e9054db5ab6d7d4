"""The Open Inference Protocol: the wire format by hand, and a stock client on a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
import uvicorn
from service_toys import CORA_FEATURES, Caller, ball, picture, ring

from service import oip
from service.app import create_app
from service.settings import Settings

tritonclient = pytest.importorskip("tritonclient.http")


@pytest.fixture(scope="module")
def address(toy_bundles: Path) -> Iterator[str]:
    """The app on a socket of its own, served from a thread."""
    settings = Settings(models=toy_bundles, threads=1, watch_seconds=0, admin_key="sesame")
    config = uvicorn.Config(create_app(settings), port=0, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.01)
    yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with tritonclient.InferenceServerClient(address) as each:
        yield each


def mesh_arrays() -> dict[str, np.ndarray]:
    mesh = ball()
    return {"vertices": np.float32(mesh["vertices"]), "faces": np.int32(mesh["faces"])}


def graph_arrays(graph: dict[str, Any]) -> dict[str, np.ndarray]:
    edges = np.array(graph["edges"])
    both = np.concatenate([edges, edges[:, ::-1]]).T
    arrays = {"features": np.float32(graph["features"]), "edge_index": np.int64(both)}
    if "positions" in graph:
        arrays["positions"] = np.float32(graph["positions"])
    return arrays


def triton_inputs(arrays: dict[str, np.ndarray], binary: bool = True) -> list[Any]:
    names = {"float32": "FP32", "int32": "INT32", "int64": "INT64"}
    inputs = []
    for name, array in arrays.items():
        each = tritonclient.InferInput(name, array.shape, names[array.dtype.name])
        each.set_data_from_numpy(array, binary_data=binary)
        inputs.append(each)
    return inputs


def test_a_stock_client_finds_server_and_models(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("bodies")
    assert client.is_model_ready("bodies", "1")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "splinecnn"
    metadata = client.get_model_metadata("cora")
    assert metadata["versions"] == ["1"]
    assert metadata["inputs"][0] == {
        "name": "features",
        "datatype": "FP32",
        "shape": [-1, CORA_FEATURES],
    }
    config = client.get_model_config("bodies")
    assert config["max_batch_size"] == 0
    assert config["output"][0]["data_type"] == "TYPE_INT64"
    assert {entry["state"] for entry in client.get_model_repository_index()} == {"READY"}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_a_stock_client_gets_the_numbers_of_the_json_route(
    client: Any, api: Caller, binary: bool, compression: str | None
) -> None:
    arrays = mesh_arrays()
    expected = api.post(
        "/v1/correspondence", json={"mesh": {k: v.tolist() for k, v in arrays.items()}}
    ).json()
    outputs = [
        tritonclient.InferRequestedOutput(name, binary_data=binary)
        for name in ("correspondence", "confidence")
    ]
    result = client.infer(
        "bodies",
        triton_inputs(arrays, binary),
        outputs=outputs,
        request_id="seven",
        timeout=10_000_000,
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    assert result.get_response()["id"] == "seven"
    assert result.as_numpy("correspondence").tolist() == expected["correspondence"]
    assert result.as_numpy("correspondence").dtype == np.int64
    assert result.as_numpy("confidence").tolist() == pytest.approx(expected["confidence"])


def test_all_outputs_come_when_none_is_named(client: Any) -> None:
    result = client.infer("bodies", triton_inputs(mesh_arrays()), model_version="1")
    assert result.as_numpy("confidence").shape == (42,)
    assert result.as_numpy("correspondence").shape == (42,)


def test_candidates_can_be_asked_for(client: Any) -> None:
    result = client.infer("bodies", triton_inputs(mesh_arrays()), parameters={"top_k": 3})
    assert result.as_numpy("candidates").shape == (42, 3)


def test_nodes_and_graphs_speak_tensors_too(client: Any, api: Caller) -> None:
    nodes = client.infer("cora", triton_inputs(graph_arrays(ring())))
    expected = api.post("/v1/node-labels", json={"graph": ring()}).json()
    assert nodes.as_numpy("labels").tolist() == expected["labels"]
    assert nodes.as_numpy("confidence").tolist() == pytest.approx(expected["confidence"])
    whole = client.infer("mnist-superpixels", triton_inputs(graph_arrays(picture())))
    expected = api.post("/v1/graph-label", json={"graph": picture()}).json()
    assert whole.as_numpy("label").tolist() == [expected["label"]]
    assert whole.as_numpy("probabilities").tolist() == pytest.approx(expected["probabilities"])


def test_statistics_count_what_was_inferred(client: Any) -> None:
    before = client.get_inference_statistics("cora")["model_stats"][0]["inference_count"]
    client.infer("cora", triton_inputs(graph_arrays(ring())))
    stats = client.get_inference_statistics("cora")["model_stats"][0]
    assert stats["inference_count"] == before + 1
    assert stats["inference_stats"]["compute_infer"]["ns"] > 0


def test_loading_and_unloading_needs_the_admin_key(client: Any) -> None:
    with pytest.raises(Exception, match="send an API key"):
        client.unload_model("cora")
    headers = {"X-API-Key": "sesame"}
    client.unload_model("cora", headers=headers)
    assert not client.is_model_ready("cora")
    with pytest.raises(Exception, match="no model 'cora'"):
        client.infer("cora", triton_inputs(graph_arrays(ring())))
    client.load_model("cora", headers=headers)
    assert client.is_model_ready("cora")
    with pytest.raises(Exception, match="holds no bundle 'nobody'"):
        client.load_model("nobody", headers=headers)


def tensor(name: str, array: np.ndarray, kind: str, **changes: Any) -> dict[str, Any]:
    entry = {"name": name, "shape": list(array.shape), "datatype": kind, "data": array.tolist()}
    return {**entry, **changes}


def mesh_request(**changes: Any) -> dict[str, Any]:
    arrays = mesh_arrays()
    body = {
        "inputs": [
            tensor("vertices", arrays["vertices"], "FP32"),
            tensor("faces", arrays["faces"], "INT64"),
        ]
    }
    return {**body, **changes}


def with_input(index: int, **changes: Any) -> dict[str, Any]:
    body = mesh_request()
    body["inputs"][index] = {**body["inputs"][index], **changes}
    return body


BAD_REQUESTS: list[tuple[Any, str]] = [
    ({}, "inputs must be an array of tensors"),
    ({"inputs": []}, "inputs must be an array of tensors"),
    ({"inputs": [3]}, "inputs[0] must be an object"),
    (with_input(0, name=""), "inputs[0].name must be a string"),
    (with_input(0, name="verts"), "unknown input 'verts'; wanted: vertices, faces"),
    (with_input(0, name="faces"), "input 'faces' appears twice"),
    ({"inputs": mesh_request()["inputs"][:1]}, "input 'faces' is missing"),
    (with_input(0, datatype="BYTES"), "got 'BYTES'"),
    (with_input(0, datatype="INT32"), "inputs[0].data must hold INT32 numbers only"),
    (with_input(1, datatype="FP32"), "input 'faces' must be INT32 or INT64"),
    (with_input(0, shape="no"), "inputs[0].shape must be an array of 1 to 8 sizes"),
    (with_input(0, shape=[-1, 3]), "inputs[0].shape must hold whole numbers"),
    (with_input(0, shape=[1 << 20, 1 << 20]), "inputs[0].shape has more than"),
    (with_input(0, shape=[41, 3]), "inputs[0].data must hold 123 numbers for [41, 3], got 126"),
    (with_input(0, shape=[126]), "input 'vertices' must have two dimensions, got [126]"),
    (with_input(0, data=None), "inputs[0] must have data, or parameters.binary_data_size"),
    (with_input(0, data=["x"]), "inputs[0].data must hold FP32 numbers only"),
    (with_input(0, parameters=[]), "inputs[0]: parameters must be an object"),
    (with_input(0, parameters={"binary_data_size": 7}), "binary_data_size must be 504, got 7"),
    (with_input(0, parameters={"binary_data_size": 504.0}), "must be 504, got 504.0"),
    (with_input(0, parameters={"binary_data_size": 504}), "needs 504 bytes, but 0 are left"),
    (with_input(0, parameters={"shared_memory_region": "x"}), "shared memory is not supported"),
    (with_input(1, data=[[0, 1, 99]] * 80), "mesh.faces[0]"),
    (mesh_request(outputs=3), "outputs must be an array"),
    (mesh_request(outputs=[3]), "outputs[0] must be an object"),
    (
        mesh_request(outputs=[{"name": "confidence", "parameters": {"shared_memory_region": "x"}}]),
        "outputs[0]: shared memory is not supported",
    ),
    (
        mesh_request(outputs=[{"name": "confidence", "parameters": {"binary_data": "false"}}]),
        "outputs[0].parameters.binary_data must be true or false",
    ),
    (mesh_request(outputs=[{"name": "labels"}]), "unknown output 'labels'; known: confidence"),
    (
        mesh_request(outputs=[{"name": "confidence", "parameters": {"classification": 3}}]),
        "classification is not supported",
    ),
    (mesh_request(id=7), "id must be a string"),
    (mesh_request(parameters={"top_k": 0}), "parameters.top_k must be a whole number from 1 to 42"),
    (mesh_request(parameters={"timeout": "1"}), "parameters.timeout must be a whole number"),
]


@pytest.mark.parametrize("short", [0, 1 << 20])  # bytes up to which JSON is read as a short one
@pytest.mark.parametrize(("body", "message"), BAD_REQUESTS)
def test_a_bad_infer_request_is_400_with_a_reason(
    api: Caller, body: Any, message: str, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oip, "_SHORT", short)
    response = api.post("/v2/models/bodies/infer", json=body)
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]


def graph_request(task_graph: dict[str, Any], **changes: Any) -> dict[str, Any]:
    kinds = {"float32": "FP32", "int64": "INT64"}
    arrays = graph_arrays(task_graph)
    inputs = [tensor(name, array, kinds[array.dtype.name]) for name, array in arrays.items()]
    return {"inputs": inputs, **changes}


@pytest.mark.parametrize(
    ("model", "parameters", "message"),
    [
        ("cora", {"undirected": "false"}, "parameters.undirected must be true or false"),
        ("cora", {"undirected": None}, "parameters.undirected must be true or false"),
        ("cora", {"undirected": 1}, "parameters.undirected must be true or false"),
        ("cora", {"include": "nonsense"}, "parameters.include does not apply to node-labels"),
        ("cora", {"top_k": "x"}, "parameters.top_k does not apply to node-labels"),
        ("cora", {"refine": 7}, "parameters.refine does not apply to node-labels"),
        (
            "mnist-superpixels",
            {"include": "graph"},
            "parameters.include does not apply to graph-label",
        ),
        ("bodies", {"undirected": True}, "parameters.undirected does not apply to correspondence"),
        ("bodies", {"refine": "true"}, "parameters.refine must be true or false"),
        ("bodies", {"include": ["points"]}, "parameters.include must be a string"),
        (
            "bodies",
            {"include": "nonsense"},
            "model 'bodies' can include points, reverse; got 'nonsense'",
        ),
        ("cora", {"binary_data_output": "no"}, "parameters.binary_data_output must be true"),
    ],
)
def test_a_parameter_is_never_misread(
    api: Caller, model: str, parameters: dict[str, Any], message: str
) -> None:
    graph = {"cora": ring(), "mnist-superpixels": picture()}.get(model)
    body = mesh_request() if graph is None else graph_request(graph)
    response = api.post(f"/v2/models/{model}/infer", json={**body, "parameters": parameters})
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]


def test_tensors_are_checked_before_they_are_used(
    api: Caller, settings: Callable[..., Settings], start: Callable[[Settings], Caller]
) -> None:
    def said(app: Caller, model: str, body: dict[str, Any], status: int) -> str:
        response = app.post(f"/v2/models/{model}/infer", json=body)
        assert response.status_code == status, response.text
        return str(response.json()["error"])

    wrong = graph_request(ring())
    wrong["inputs"][1] = tensor("edge_index", np.zeros((8, 2), np.int64), "INT64")
    assert said(api, "cora", wrong, 400) == "edge_index must have shape [2, E], got [8, 2]"
    small = start(settings(max_nodes=7, max_faces=10, max_edges=8))
    for model, body, name, most, found in (
        ("cora", graph_request(ring(8)), "features", 7, 8),
        ("cora", graph_request(ring(5)), "edge_index", 8, 10),
        ("bodies", mesh_request(), "vertices", 7, 42),
    ):
        told = said(small, model, body, 413)
        assert told == f"{name} must have at most {most} rows, got {found}"
    few = start(settings(max_faces=10))
    told = said(few, "bodies", mesh_request(), 413)
    assert told == "faces must have at most 10 rows, got 80"


def test_the_index_is_as_it_is_asked_for(
    settings: Callable[..., Settings], start: Callable[[Settings], Caller]
) -> None:
    app = start(settings(admin_key="boss"))
    boss = {"X-API-Key": "boss"}
    assert app.post("/v2/repository/models/cora/unload", headers=boss).status_code == 200

    def names(**asked: Any) -> list[str]:
        return [entry["name"] for entry in app.post("/v2/repository/index", json=asked).json()]

    assert names() == names(ready=False) == ["bodies", "cora", "mnist-superpixels"]
    assert names(ready=True) == ["bodies", "mnist-superpixels"]
    for route, content, message in (
        ("index", b"x", "the body is not valid JSON"),
        ("index", b"[]", "must be JSON objects"),
        ("index", b'{"ready": 1}', "ready must be true or false, got 1"),
        ("models/cora/load", b'{"parameters": {"config": "{}"}}', "parameters.config is not supp"),
        ("models/cora/load", b"x", "the body is not valid JSON"),
    ):
        response = app.post(f"/v2/repository/{route}", content=content, headers=boss)
        assert response.status_code == 400 and message in response.json()["error"]
    assert names(ready=True) == ["bodies", "mnist-superpixels"]


def test_stats_tell_when_a_model_last_answered(api: Caller) -> None:
    before = time.time()
    api.post("/v2/models/cora/infer", json=graph_request(ring()))
    stats = api.get("/v2/models/cora/stats").json()["model_stats"][0]
    assert 1000 * before - 1 <= stats["last_inference"] <= 1000 * time.time()


def test_data_in_many_brackets_is_400(api: Caller) -> None:
    data = b"[" * 300 + b"1" + b"]" * 300
    body = b'{"inputs":[{"name":"vertices","shape":[1,1],"datatype":"FP32","data":%s}]}' % data
    response = api.post("/v2/models/bodies/infer", content=body)
    assert response.status_code == 400
    assert "inputs[0].data must hold FP32 numbers only" in response.json()["error"]


def test_short_and_long_json_say_the_same(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for short in (0, 1 << 20):
        monkeypatch.setattr(oip, "_SHORT", short)
        for model, body in (
            ("bodies", mesh_request(id="a", outputs=[{"name": "confidence"}])),
            ("cora", graph_request(ring(), parameters={"undirected": True})),
            ("mnist-superpixels", graph_request(picture())),
        ):
            told.append(api.post(f"/v2/models/{model}/infer", json=body).json())
    assert told[:3] == told[3:]


def test_parameters_of_other_servers_pass(api: Caller) -> None:
    body = graph_request(ring(), parameters={"undirected": True, "priority": 1, "sequence_id": 0})
    assert api.post("/v2/models/cora/infer", json=body).status_code == 200


@pytest.mark.parametrize(
    ("length", "tail", "message"),
    [
        ("x", b"", "must be a whole number, got 'x'"),
        ("99999999", b"", "but the body has"),
        ("-1", b"", "must be a whole number"),
        (None, b"!!", "not valid JSON"),
        ("json", b"!!", "2 bytes follow the last binary tensor"),
    ],
)
def test_a_bad_header_length_is_400(
    api: Caller, length: str | None, tail: bytes, message: str
) -> None:
    head = orjson.dumps(mesh_request())
    headers = {}
    if length is not None:
        value = str(len(head)) if length == "json" else length
        headers["Inference-Header-Content-Length"] = value
    response = api.post("/v2/models/bodies/infer", content=head + tail, headers=headers)
    assert response.status_code == 400
    assert message in response.json()["error"]


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/v2/models/nobody", 404),
        ("GET", "/v2/models/bodies/versions/9", 404),
        ("POST", "/v2/models/nobody/infer", 404),
        ("GET", "/v2/models/bodies/infer", 405),
        ("POST", "/v2/repository/models/bodies/load", 403),
        ("GET", "/v2/nothing", 404),
    ],
)
def test_errors_of_the_protocol_have_its_shape(
    api: Caller, method: str, url: str, status: int
) -> None:
    response = api(method, url)
    assert response.status_code == status
    assert list(response.json()) == ["error"]


def test_a_late_request_is_504(api: Caller) -> None:
    response = api.post("/v2/models/bodies/infer", json=mesh_request(parameters={"timeout": 1}))
    assert response.status_code in (429, 504)


def test_a_caller_who_hangs_up_is_counted_and_harms_nobody(address: str, client: Any) -> None:
    host, port = address.split(":")
    body = orjson.dumps({"mesh": ball(6)})  # still running when the service looks for the caller
    head = f"POST /v1/correspondence HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(50):
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(head.encode() + body)
        metrics = httpx.get(f"http://{address}/metrics", timeout=60).text
        if 'splinecnn_rejected_total{reason="gone"}' in metrics:
            break
    else:
        raise AssertionError("nobody was seen to leave")
    result = client.infer("bodies", triton_inputs(mesh_arrays()))
    assert result.as_numpy("confidence").shape == (42,)
