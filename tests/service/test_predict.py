"""POST /v1/{task} through the real app: answers, forms of bodies and answers, and refusals."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import trimesh
from PIL import Image
from service_toys import CORA_FEATURES, Caller, ball, picture, ring

from model.export import export_bundle
from model.zoo import ZooEntry, write_zoo
from service.settings import Settings


def problem(response: Any, status: int, path: str | None = None) -> str:
    """Assert the one shape of errors and return its sentence."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["type"] == "about:blank"
    assert body["title"]
    assert body["request_id"] == response.headers["x-request-id"]
    if path is not None:
        assert [error["path"] for error in body["errors"]] == [path]
        return str(body["errors"][0]["message"])
    return str(body["detail"])


def test_a_mesh_gets_a_reference_vertex_for_each_vertex(api: Caller) -> None:
    mesh = ball(2)
    answer = api.post("/v1/correspondence", json={"mesh": mesh}).json()
    assert answer["model"] == {"name": "bodies", "version": "1"}
    assert answer["reference"] == {"vertices": 42, "href": "/v1/models/bodies/reference"}
    assert len(answer["correspondence"]) == len(answer["confidence"]) == len(mesh["vertices"])
    assert all(0 <= vertex < 42 for vertex in answer["correspondence"])
    assert all(0 <= value <= 1 for value in answer["confidence"])
    assert set(answer["timings_ms"]) == {"decode", "queue", "run", "encode"}
    assert "candidates" not in answer


def test_candidates_come_with_top_k_and_start_with_the_answer(api: Caller) -> None:
    answer = api.post("/v1/correspondence", json={"mesh": ball(), "top_k": 3}).json()
    index = np.array(answer["candidates"]["index"])
    confidence = np.array(answer["candidates"]["confidence"])
    assert index.shape == confidence.shape == (42, 3)
    assert (index[:, 0] == answer["correspondence"]).all()
    assert (np.diff(confidence) <= 0).all()


def test_nodes_get_labels_names_and_confidence(api: Caller) -> None:
    answer = api.post("/v1/node-labels?include=probabilities", json={"graph": ring()}).json()
    probabilities = np.array(answer["probabilities"])
    assert answer["labels"] == probabilities.argmax(1).tolist()
    names = ["theory", "genetics", "networks"]
    assert answer["names"] == [names[label] for label in answer["labels"]]
    assert answer["confidence"] == pytest.approx(probabilities.max(1))


def test_sparse_features_mean_the_same_as_dense_ones(api: Caller) -> None:
    graph = ring()
    dense = np.zeros((8, CORA_FEATURES))
    dense[np.arange(8), np.arange(8) % 3] = 0.5
    rows = {
        "size": CORA_FEATURES,
        "indices": [[n % 3] for n in range(8)],
        "values": [[0.5]] * 8,
    }
    one = api.post("/v1/node-labels", json={"graph": {**graph, "features": dense.tolist()}})
    other = api.post("/v1/node-labels", json={"graph": {**graph, "features": rows}})
    assert one.json()["confidence"] == other.json()["confidence"]


def test_a_graph_gets_one_label(api: Caller) -> None:
    answer = api.post("/v1/graph-label", json={"graph": picture()}).json()
    assert answer["label"] == int(np.argmax(answer["probabilities"]))
    assert answer["name"] == str(answer["label"])
    assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-5)
    assert "graph" not in answer


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_an_image_is_classified_and_shows_its_graph(api: Caller, kind: str) -> None:
    pixels = np.zeros((28, 28), np.uint8)
    pixels[6:22, 12:16] = 255
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    response = api.post(
        "/v1/graph-label?include=graph&model=mnist-superpixels",
        content=stream.getvalue(),
        headers={"Content-Type": f"image/{kind}"},
    )
    graph = response.json()["graph"]
    assert len(graph["positions"]) == len(graph["features"]) == graph["num_nodes"] > 10
    again = api.post("/v1/graph-label", json={"graph": graph})
    assert again.json()["probabilities"] == response.json()["probabilities"]


@pytest.mark.parametrize("kind", ["ply", "ply_ascii", "obj", "off", "stl", "glb"])
def test_a_mesh_file_gets_the_answer_of_its_json(api: Caller, kind: str) -> None:
    mesh = trimesh.Trimesh(**ball(2), process=False)
    extra = {"encoding": "ascii"} if kind == "ply_ascii" else {}
    data = mesh.export(file_type=kind.removesuffix("_ascii"), **extra)
    media = {"glb": "model/gltf-binary"}.get(kind, f"model/{kind.removesuffix('_ascii')}")
    response = api.post(
        "/v1/correspondence?top_k=2&model=bodies",
        content=data,
        headers={"Content-Type": media},
    )
    assert response.status_code == 200, response.text
    answer = response.json()
    assert len(answer["correspondence"]) == len(mesh.vertices)
    if kind not in ("stl", "off", "obj"):  # those reorder or round
        points = np.float32(mesh.vertices) if "ascii" not in kind else mesh.vertices
        same = api.post(
            "/v1/correspondence",
            json={"mesh": {"vertices": points.tolist(), "faces": mesh.faces.tolist()}},
        )
        assert answer["confidence"] == pytest.approx(same.json()["confidence"], abs=1e-5)


def test_an_obj_of_several_materials_keeps_the_vertices_of_the_file(api: Caller) -> None:
    rows = ["v {} {} {}".format(*row) for row in ball()["vertices"]]
    for number, face in enumerate(ball()["faces"]):
        rows += [f"usemtl m{number % 3}", "f {} {} {}".format(*(v + 1 for v in face))]
    media = {"Content-Type": "model/obj"}
    answer = api.post("/v1/correspondence", content="\n".join(rows), headers=media).json()
    assert len(answer["correspondence"]) == 42


def test_raw_arrays_carry_the_numbers_of_the_json(api: Caller) -> None:
    body = {"mesh": ball(), "top_k": 1}
    plain = api.post("/v1/correspondence", json=body).json()
    accept = {"Accept": "application/octet-stream"}
    raw = api.post("/v1/correspondence", json=body, headers=accept)
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["x-model"] == "bodies/1"
    assert "run;dur=" in raw.headers["server-timing"]
    offset = 0
    for entry in orjson.loads(raw.headers["x-arrays"]):
        dtype = np.dtype(entry["dtype"])
        count = int(np.prod(entry["shape"]))
        array = np.frombuffer(raw.content, dtype, count, offset)
        offset += array.nbytes
        assert array.tolist() == pytest.approx(plain[entry["name"]])
    assert offset == len(raw.content)


def test_npy_holds_the_answer_itself(api: Caller) -> None:
    body = {"graph": ring()}
    response = api.post("/v1/node-labels", json=body, headers={"Accept": "application/x-npy"})
    labels = np.load(io.BytesIO(response.content), allow_pickle=False)
    assert labels.tolist() == api.post("/v1/node-labels", json=body).json()["labels"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_is_read(api: Caller, encoding: str) -> None:
    import zlib

    body = orjson.dumps({"graph": ring()})
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    response = api.post(
        "/v1/node-labels",
        content=packed,
        headers={"Content-Encoding": encoding, "Content-Type": "application/json"},
    )
    assert response.status_code == 200


def mesh_with(**changes: Any) -> dict[str, Any]:
    return {"mesh": {**ball(), **changes}}


def graph_with(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    graph = {**base, **changes}
    return {"graph": {key: value for key, value in graph.items() if value != "absent"}}


BAD_MESHES: list[tuple[Any, int, str, str]] = [
    ({}, 422, "mesh", "is required"),
    ({"mesh": None}, 422, "mesh", "is required, got null"),
    ({"mesh": [1]}, 422, "mesh", "must be an object, got an array"),
    ({"mesh": {"vertices": []}}, 422, "mesh.faces", "is required"),
    (mesh_with(colour=1), 422, "mesh.colour", "unknown field 'colour'; known: faces, vertices"),
    (
        {**mesh_with(), "mod": 1},
        422,
        "mod",
        "unknown field 'mod'; known: include, mesh, model, refine, top_k",
    ),
    (mesh_with(vertices="abc"), 422, "mesh.vertices", "must be an array, got a string"),
    (
        mesh_with(vertices=[[0, 0, 0], [1, 2]]),
        422,
        "mesh.vertices[1]",
        "must have 3 numbers, got 2",
    ),
    (
        mesh_with(vertices=[[0, 0], [1, 2, 3, 4]]),
        422,
        "mesh.vertices[0]",
        "must have 3 numbers, got 2",
    ),
    (
        mesh_with(vertices=[[0, [0], 0], [1, 2, 3]]),
        422,
        "mesh.vertices[0][1]",
        "must be a number, got an array",
    ),
    (
        mesh_with(vertices=[[0, 0, None]]),
        422,
        "mesh.vertices[0][2]",
        "must be a number, got null",
    ),
    (mesh_with(vertices=[1.0, 2.0, 3.0]), 422, "mesh.vertices[0]", "got 1.0"),
    (mesh_with(faces=[[0, 1, 2.5]]), 422, "mesh.faces[0][2]", "must be a whole number, got 2.5"),
    (mesh_with(faces=[[0, 1, True]]), 422, "mesh.faces[0][2]", "must be a whole number, got true"),
    (mesh_with(faces=[[0, 1, 2**63]]), 422, "mesh.faces[0][2]", "too large for a 64-bit integer"),
    (mesh_with(faces=[[0, 1, 99]]), 422, "mesh.faces[0]", "99"),
    (mesh_with(faces=[[0, 1, -1]]), 422, "mesh.faces[0]", "-1"),
    (mesh_with(vertices=[]), 422, "mesh.vertices", "must hold at least one vertex, got none"),
    ({**mesh_with(), "top_k": 0}, 422, "top_k", "must be at least 1, got 0"),
    ({**mesh_with(), "top_k": "2"}, 422, "top_k", 'must be a whole number, got "2"'),
    ({**mesh_with(), "top_k": True}, 422, "top_k", "must be a whole number, got true"),
    ({**mesh_with(), "top_k": 101}, 422, "top_k", "must be at most 100, got 101"),
    ({**mesh_with(), "top_k": 43}, 422, "top_k", "the size of the reference, got 43"),
    ({**mesh_with(), "top_k": [1]}, 422, "top_k", "must be a single value, got an array"),
    ({**mesh_with(), "model": 5}, 422, "model", "must be a string, got 5"),
    ({**mesh_with(), "model": "cora"}, 422, "model", "answers node-labels, not correspondence"),
]


@pytest.mark.parametrize(("body", "status", "path", "message"), BAD_MESHES)
def test_a_bad_mesh_is_refused_by_field(
    api: Caller, body: Any, status: int, path: str, message: str
) -> None:
    assert message in problem(api.post("/v1/correspondence", json=body), status, path)


BAD_GRAPHS: list[tuple[str, Any, int, str, str]] = [
    ("node-labels", {"graph": 3}, 422, "graph", "must be an object, got 3"),
    ("node-labels", graph_with(ring(), num_nodes="absent"), 422, "graph.num_nodes", "is required"),
    ("node-labels", graph_with(ring(), num_nodes=2.5), 422, "graph.num_nodes", "got 2.5"),
    ("node-labels", graph_with(ring(), num_nodes=0), 422, "graph.num_nodes", "got 0"),
    ("node-labels", graph_with(ring(), num_nodes=10**7), 413, "graph.num_nodes", "at most 250000"),
    ("node-labels", graph_with(ring(), undirected=1), 422, "graph.undirected", "true or false"),
    ("node-labels", graph_with(ring(), edges=[[0, 8]]), 422, "graph.edges[0]", "8"),
    ("node-labels", graph_with(ring(), edges=[[0]]), 422, "graph.edges[0]", "must have 2 numbers"),
    ("node-labels", graph_with(ring(), features=7), 422, "graph.features", "rows of numbers"),
    ("node-labels", graph_with(ring(), features=[1]), 422, "graph.features[0]", "got 1"),
    ("node-labels", graph_with(ring(), features=[[1]]), 422, "graph.features", "one row per node"),
    (
        "node-labels",
        graph_with(ring(), features=[[1.0]] * 8),
        422,
        "graph.features",
        "must have 12 values per node, got 1",
    ),
    (
        "node-labels",
        graph_with(ring(), features={"size": 12}),
        422,
        "graph.features.indices",
        "is required",
    ),
    (
        "node-labels",
        graph_with(ring(), features={"size": 12, "indices": [[99]] + [[]] * 7}),
        422,
        "graph.features.indices[0]",
        "99",
    ),
    (
        "node-labels",
        graph_with(ring(), features={"size": 12, "indices": [3] * 8}),
        422,
        "graph.features.indices[0]",
        "must be an array, got 3",
    ),
    (
        "node-labels",
        graph_with(ring(), features={"size": 12, "indices": [[1]] * 8, "values": [[]] * 8}),
        422,
        "graph.features.values",
        "as many entries as indices",
    ),
    (
        "node-labels",
        graph_with(ring(), features={"size": 1.5, "indices": []}),
        422,
        "graph.features.size",
        "whole number, got 1.5",
    ),
    (
        "node-labels",
        graph_with(ring(), features={"size": 12, "indices": [[1, [2]]] + [[]] * 7}),
        422,
        "graph.features.indices[0][1]",
        "must be a number, got an array",
    ),
    ("node-labels", graph_with(ring(), pseudo=[[2]] * 8), 422, "graph.pseudo[0][0]", "[0, 1]"),
    ("graph-label", graph_with(ring(8, 1)), 422, "graph.positions", "is required for this task"),
    ("graph-label", graph_with(picture(), positions=[[0, 0, 0]] * 20), 422, "graph.positions", "2"),
    (
        "graph-label",
        graph_with(picture(), features={"size": 2, "indices": [[]] * 20}),
        422,
        "graph.features.size",
        "must be 1, got 2",
    ),
    (
        "graph-label",
        graph_with(picture(), num_nodes=0),
        422,
        "graph.num_nodes",
        "at least 1, got 0",
    ),
    ("graph-label", graph_with(picture(), zoom=1), 422, "graph.zoom", "unknown field 'zoom'"),
]


@pytest.mark.parametrize(("task", "body", "status", "path", "message"), BAD_GRAPHS)
def test_a_bad_graph_is_refused_by_field(
    api: Caller, task: str, body: Any, status: int, path: str, message: str
) -> None:
    assert message in problem(api.post(f"/v1/{task}", json=body), status, path)


BAD_BYTES = [
    (b"", "not valid JSON"),
    (b"{", "not valid JSON"),
    (b"[]", "must be a JSON object"),
    (b"3", "must be a JSON object"),
    (b'{"mesh": NaN}', "expected a JSON value: line 1 column 10"),
    (b'{"mesh": 1e999}', "not valid JSON"),
    (b'{"mesh": ' + b"9" * 40 + b"}", "a number in it does not fit into 64 bits"),
    (b"\xff\xfe", "not UTF-8"),
    (b'{"mesh":' + b"[" * 3000 + b"]" * 3000 + b"}", "not valid JSON"),
]


@pytest.mark.parametrize(("body", "message"), BAD_BYTES)
def test_what_is_not_json_is_400(api: Caller, body: bytes, message: str) -> None:
    response = api.post(
        "/v1/correspondence", content=body, headers={"Content-Type": "application/json"}
    )
    assert message in problem(response, 400)


def test_a_repeated_key_is_refused(api: Caller) -> None:
    body = b'{"mesh": {"vertices": [], "vertices": [], "faces": []}}'
    response = api.post("/v1/correspondence", content=body)
    assert problem(response, 422, "mesh.vertices") == "field 'vertices' appears twice"


def test_a_string_that_looks_like_rows_cannot_hide_ragged_ones(api: Caller) -> None:
    decoy = "[[,,],[,,]]"
    body = {"mesh": {"vertices": [[0, 0], [1, 2, 3, 4]], "faces": [[0, 1, 2]]}, "model": decoy}
    problem(api.post("/v1/correspondence", json=body), 422, "mesh.vertices[0]")


_TASK = "/v1/correspondence"


@pytest.mark.parametrize(
    ("url", "headers", "status", "path", "message"),
    [
        (_TASK, {"Content-Type": "text/csv"}, 415, None, "got 'text/csv'"),
        ("/v1/node-labels", {"Content-Type": "image/png"}, 415, None, "application/json"),
        ("/v1/graph-label?format=png", {"Content-Type": "text/csv"}, 415, None, "got 'text/csv'"),
        (_TASK, {"Content-Encoding": "br"}, 415, None, "got 'br'"),
        (_TASK, {"Content-Encoding": "gzip"}, 400, None, "not valid compressed data"),
        (_TASK, {"Accept": "text/html"}, 406, None, "got 'text/html'"),
        (_TASK, {"X-Timeout-Ms": "soon"}, 422, "X-Timeout-Ms", "got 'soon'"),
        (f"{_TASK}?include=all", {}, 422, "include", "got 'all'"),
        (f"{_TASK}?top_k=x", {}, 422, "top_k", "got 'x'"),
        (f"{_TASK}?refine=1", {}, 422, "refine", "must be true or false, got '1'"),
        (f"{_TASK}?model=nobody", {}, 404, None, "no model 'nobody' is served here"),
        (f"{_TASK}?model=bodies@7", {}, 404, None, "has no version '7'; served: 1"),
        (f"{_TASK}?format=fbx", {}, 422, "format", "got 'fbx'"),
    ],
)
def test_headers_and_queries_are_checked(
    api: Caller, url: str, headers: dict[str, str], status: int, path: str | None, message: str
) -> None:
    body = orjson.dumps({"mesh": ball()})
    response = api.post(url, content=body, headers={"Content-Type": "application/json", **headers})
    assert message in problem(response, status, path)
    assert path is not None or "errors" not in response.json()


def test_an_empty_format_leaves_the_content_type_to_say(api: Caller) -> None:
    assert api.post(f"{_TASK}?format=", json={"mesh": ball()}).status_code == 200
    ply = api.post(f"{_TASK}?format=", content=b"ply", headers={"Content-Type": "model/ply"})
    problem(ply, 422, "mesh")


@pytest.mark.parametrize(("task", "graph"), [("node-labels", ring()), ("graph-label", picture())])
def test_what_does_not_apply_to_a_task_is_refused_in_the_query_as_in_the_body(
    api: Caller, task: str, graph: dict[str, Any]
) -> None:
    for name, value, word in (("top_k", 5, "5"), ("refine", True, "true")):
        problem(api.post(f"/v1/{task}", json={"graph": graph, name: value}), 422, name)
        response = api.post(f"/v1/{task}?{name}={word}", json={"graph": graph})
        assert problem(response, 422, name) == f"does not apply to {task}"
    image = api.post("/v1/graph-label?top_k=2", content=b"", headers={"Content-Type": "image/png"})
    problem(image, 422, "top_k")


def test_too_many_words_to_include_are_413_in_the_query_as_in_the_body(api: Caller) -> None:
    words = ["points"] * 21
    body = api.post(_TASK, json={"mesh": ball(), "include": words})
    query = api.post(f"{_TASK}?include={','.join(words)}", json={"mesh": ball()})
    said = problem(body, 413, "include")
    assert said == problem(query, 413, "include") == "include must have at most 20 rows, got 21"


def test_a_file_that_needs_too_much_memory_is_413(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(trimesh, "load", fail)
    response = api.post(_TASK, content=b"OFF\n", headers={"Content-Type": "model/off"})
    assert problem(response, 413, "mesh") == "the OFF file needs too much memory"


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("model/ply", b"", "readable PLY"),
        ("model/ply", b"ply\nformat ascii 1.0\nelement vertex 2\nend_header\n", "readable PLY"),
        ("model/obj", b"v 0 0 0\nv 1 0 0\n", "holds no faces"),
        ("model/obj", b"\x00\x01", "OBJ"),
        (
            "model/obj",
            b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n",
            "line 4: a face names vertex 9 of 3",
        ),
        (
            "model/obj",
            b"v 0 0 0\nv 1 0 0\nf 1 x 2\n",
            "line 3: a face must name vertices by number",
        ),
        ("model/off", b"OFF\n4 5 6\n", "readable OFF"),
        ("model/stl", b"nothing", "by its header it has 84 bytes, but 7 came"),
        ("model/stl", b"x" * 80 + b"\x02\0\0\0" + b"y" * 60, "it has 184 bytes, but 144 came"),
        ("model/gltf-binary", b"glTF", "readable GLB"),
    ],
)
def test_a_damaged_mesh_file_is_422(api: Caller, kind: str, data: bytes, message: str) -> None:
    response = api.post("/v1/correspondence", content=data, headers={"Content-Type": kind})
    assert message in problem(response, 422)


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_a_damaged_image_is_422(api: Caller, kind: str) -> None:
    response = api.post(
        "/v1/graph-label", content=b"no image", headers={"Content-Type": f"image/{kind}"}
    )
    assert problem(response, 422, "image") == f"the body is not a {kind.upper()} image"
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (28, 28), np.uint8)).save(whole, kind)
    cut = whole.getvalue()[: len(whole.getvalue()) // 2]
    response = api.post("/v1/graph-label", content=cut, headers={"Content-Type": f"image/{kind}"})
    said = problem(response, 422, "image")
    assert said.startswith(f"the {kind.upper()} image cannot be read: ") and "truncated" in said


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def test_a_blank_image_is_422(api: Caller) -> None:
    headers = {"Content-Type": "image/png"}
    response = api.post("/v1/graph-label", content=png(Image.new("RGB", (9, 7))), headers=headers)
    assert problem(response, 422, "image") == "must show something, got 9 x 7 equal pixels"


def test_ink_without_ground_is_what_it_is_on_paper(api: Caller) -> None:
    alpha = Image.fromarray(np.pad(np.full((20, 4), 255, np.uint8), ((4, 4), (12, 12))))
    paper = Image.new("L", alpha.size, 255)
    paper.paste(0, mask=alpha)
    answers = []
    for ink in (0, 255):
        layer = Image.new("LA", alpha.size, (ink, 0))
        layer.putalpha(alpha)
        for image in (layer, paper):
            response = api.post(
                "/v1/graph-label", content=png(image), headers={"Content-Type": "image/png"}
            )
            answers.append(response.json()["probabilities"])
    assert answers == [answers[0]] * 4


def test_features_may_be_sparse_for_a_graph_label_too(api: Caller) -> None:
    graph = picture()
    values = [row for row in graph["features"]]
    sparse = {"size": 1, "indices": [[0]] * len(values), "values": values}
    dense = api.post("/v1/graph-label", json={"graph": graph})
    answer = api.post("/v1/graph-label", json={"graph": {**graph, "features": sparse}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["probabilities"] == dense.json()["probabilities"]


def test_head_is_get_without_the_body(api: Caller) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/v1/models", "/v2/health/live", "/docs"):
        response = api("HEAD", path)
        assert response.status_code == 200 and response.content == b"", path
    assert api("HEAD", "/v1/correspondence").status_code == 405
    assert 'method="HEAD",route="/readyz"' in api.get("/metrics").text


def test_a_model_of_graphs_takes_no_images(
    tmp_path: Path, settings: Callable[..., Settings], start: Callable[[Settings], Caller]
) -> None:
    parameters = {"channels": [4, 8], "hidden": 16}
    entry = ZooEntry("graphs", "superpixels", parameters, "cartesian")
    write_zoo(tmp_path / "zoo", entry, entry.build().state_dict())
    export_bundle(tmp_path / "zoo", tmp_path / "bundles", with_onnx=False)
    app = start(settings(models=tmp_path / "bundles"))
    response = app.post("/v1/graph-label", content=b"x", headers={"Content-Type": "image/png"})
    assert problem(response, 415) == "model 'graphs' takes graphs, not images"
    assert "errors" not in response.json()


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("ply", b"hello", "it does not begin with 'ply'"),
        ("ply", b"ply\nformat ascii 1.0\n", "its header has no end_header"),
        (
            "ply",
            b"ply\nformat binary_little_endian 1.0\nelement vertex 3\nproperty float x\n"
            b"property float y\nproperty float z\nelement face 1\n"
            b"property list uchar int vertex_indices\nend_header\n1234",
            "it is cut short, damaged, or not what its header says",
        ),
        ("off", b"OF", "it does not begin with 'OFF'"),
    ],
)
def test_a_broken_file_is_told_in_plain_words(
    api: Caller, kind: str, content: bytes, message: str
) -> None:
    media = {"Content-Type": f"model/{kind}"}
    said = problem(api.post("/v1/correspondence", content=content, headers=media), 422, "mesh")
    assert said == f"the body is not a readable {kind.upper()} file: {message}"
