"""`include`: landmarks, segments, points and the way back, in JSON, binary and tensors."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import trimesh
from service_toys import Caller, ball, ring
from test_predict import problem

from model.places import Places, Shape
from service.carry import smooth_segments
from service.errors import Invalid
from service.meshfiles import _read_triangles, read_exported, read_mesh
from service.settings import Settings
from tests.toys import make_nearest_bundle, make_toy_bundles

ALL = "landmarks,points,reverse,segments"


def reference() -> trimesh.Trimesh:
    return trimesh.creation.icosphere(3)


def other() -> trimesh.Trimesh:
    """The same ball, triangulated otherwise."""
    return trimesh.creation.uv_sphere(count=[24, 24])


@pytest.fixture(scope="module")
def nearest(toy_bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    bundles = tmp_path_factory.mktemp("carry") / "bundles"
    height = reference().vertices[:, 2]
    attributes = {
        "landmarks": {"top": int(height.argmax()), "bottom": int(height.argmin())},
        "segments": {"names": ["south", "north"], "of_vertex": [int(z > 0) for z in height]},
    }
    make_nearest_bundle(bundles, reference(), attributes, default=True)
    make_toy_bundles(bundles, "toy-body", "toy-nodes", "toy-superpixels", with_onnx=False)
    caller = Caller(Settings(models=bundles, threads=1, watch_seconds=0))
    yield caller
    caller.close()


def body(mesh: trimesh.Trimesh, **options: Any) -> dict[str, Any]:
    return {"mesh": {"vertices": mesh.vertices.tolist(), "faces": mesh.faces.tolist()}, **options}


def answer(caller: Caller, mesh: trimesh.Trimesh, include: str) -> dict[str, Any]:
    response = caller.post("/v1/correspondence", json=body(mesh, include=include.split(",")))
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def test_nothing_is_carried_unless_asked_for(nearest: Caller) -> None:
    plain = nearest.post("/v1/correspondence", json=body(other())).json()
    assert not {"landmarks", "segments", "points", "reverse"} & plain.keys()
    assert set(plain["timings_ms"]) == {"decode", "queue", "run", "encode"}
    asked = answer(nearest, other(), ALL)
    assert asked["correspondence"] == plain["correspondence"]
    assert asked["confidence"] == plain["confidence"]
    assert "candidates" not in asked and "carry" in asked["timings_ms"]


def test_landmarks_lie_where_they_should(nearest: Caller) -> None:
    mesh = other()
    found = answer(nearest, mesh, "landmarks")["landmarks"]
    assert list(found) == ["top", "bottom"]
    assert found["top"]["position"] == pytest.approx([0, 0, 1], abs=0.03)
    assert found["bottom"]["position"] == pytest.approx([0, 0, -1], abs=0.03)
    assert mesh.vertices[found["top"]["vertex"], 2] > 0.95
    assert 0.5 < found["top"]["confidence"] <= 1


def test_a_landmark_that_is_not_on_the_mesh_is_null(nearest: Caller) -> None:
    mesh = other()
    upper = trimesh.Trimesh(
        mesh.vertices, mesh.faces[mesh.triangles[:, :, 2].min(1) > 0], process=False
    )
    upper.remove_unreferenced_vertices()
    found = answer(nearest, upper, "landmarks")["landmarks"]
    assert found["top"] is not None and found["bottom"] is None


def test_segments_are_those_of_the_corresponding_vertices(nearest: Caller) -> None:
    mesh = other()
    segments = answer(nearest, mesh, "segments")["segments"]
    assert segments["names"] == ["south", "north"]
    of_vertex = np.array(segments["of_vertex"])
    assert (of_vertex[mesh.vertices[:, 2] > 0.15] == 1).all()
    assert (of_vertex[mesh.vertices[:, 2] < -0.15] == 0).all()


def test_a_stray_vertex_joins_its_neighbours_and_a_straight_border_stays() -> None:
    mesh = other()
    straight = (mesh.vertices[:, 2] > 0.05).astype(np.int32)
    assert (smooth_segments(straight, mesh.faces, 2) == straight).all()
    ragged = straight.copy()
    ragged[[np.argmax(mesh.vertices @ [1, 0, 1]), np.argmax(mesh.vertices @ [0, 1, -1])]] ^= 1
    assert (smooth_segments(ragged, mesh.faces, 2) == straight).all()


def test_a_vertex_without_a_face_keeps_its_segment() -> None:
    faces = np.array([[0, 1, 2]])
    assert smooth_segments(np.array([1, 1, 1, 0]), faces, 2).tolist() == [1, 1, 1, 0]


def test_points_are_nearer_than_the_nearest_vertices(nearest: Caller) -> None:
    mesh, target = other(), reference()
    found = answer(nearest, mesh, "points")
    places = Places(np.array(found["points"]["face"]), np.array(found["points"]["barycentric"]))
    assert places.barycentric.sum(1) == pytest.approx(1) and places.barycentric.min() >= 0
    exact = Shape(target.vertices, target.faces).at(places)
    by_point = np.linalg.norm(exact - mesh.vertices, axis=1).mean()
    by_vertex = np.linalg.norm(
        target.vertices[found["correspondence"]] - mesh.vertices, axis=1
    ).mean()
    assert by_point < 0.6 * by_vertex


def test_the_way_back_carries_values_of_the_posted_mesh(nearest: Caller) -> None:
    mesh, target = other(), reference()
    back = answer(nearest, mesh, "reverse")["reverse"]
    assert len(back["face"]) == len(back["vertex"]) == len(target.vertices)
    corners = mesh.vertices[mesh.faces[back["face"]]]
    carried = (corners * np.array(back["barycentric"])[:, :, None]).sum(1)
    assert np.abs(carried - target.vertices).max() < 0.12
    assert np.abs(mesh.vertices[back["vertex"]] - target.vertices).max() < 0.3


def test_a_query_or_a_file_asks_like_a_body(nearest: Caller) -> None:
    mesh = trimesh.Trimesh(np.float32(other().vertices), other().faces, process=False)
    want = answer(nearest, mesh, ALL)
    query = nearest.post(f"/v1/correspondence?include={ALL}", json=body(mesh)).json()
    file = nearest.post(
        f"/v1/correspondence?include={ALL}",
        content=mesh.export(file_type="ply"),
        headers={"Content-Type": "model/ply"},
    ).json()
    for name in ALL.split(","):
        assert query[name] == want[name]
        assert file[name] == want[name]


def test_binary_holds_the_numbers_of_the_json(nearest: Caller) -> None:
    want = answer(nearest, other(), ALL)
    raw = nearest.post(
        f"/v1/correspondence?include={ALL}",
        json=body(other()),
        headers={"Accept": "application/octet-stream"},
    )
    arrays, names, offset = {}, {}, 0
    for entry in orjson.loads(raw.headers["x-arrays"]):
        kind, count = np.dtype(entry["dtype"]), int(np.prod(entry["shape"]))
        array = np.frombuffer(raw.content, kind, count, offset).reshape(entry["shape"])
        offset += array.nbytes
        arrays[entry["name"]], names[entry["name"]] = array, entry.get("names")
    assert offset == len(raw.content)
    assert arrays["segments"].tolist() == want["segments"]["of_vertex"]
    assert names["segments"] == want["segments"]["names"]
    for name in ("points", "reverse"):
        for part, values in want[name].items():
            assert arrays[f"{name}.{part}"] == pytest.approx(np.array(values))
    top = names["landmarks.position"].index("top")
    assert arrays["landmarks.position"][top] == pytest.approx(want["landmarks"]["top"]["position"])


def test_protocol_clients_get_them_as_outputs(nearest: Caller) -> None:
    want, mesh = answer(nearest, other(), ALL), other()
    inputs = [
        {"name": "vertices", "datatype": "FP32", "shape": [len(mesh.vertices), 3],
         "data": mesh.vertices.ravel().tolist()},
        {"name": "faces", "datatype": "INT64", "shape": [len(mesh.faces), 3],
         "data": mesh.faces.ravel().tolist()},
    ]  # fmt: skip
    asked = {"inputs": inputs, "parameters": {"include": "segments, reverse"}}
    outputs = nearest.post("/v2/models/nearest/infer", json=asked).json()["outputs"]
    found = {output["name"]: output["data"] for output in outputs}
    assert found["segments"] == want["segments"]["of_vertex"]
    assert found["reverse.vertex"] == want["reverse"]["vertex"]
    asked["outputs"] = [{"name": "reverse.face"}]
    outputs = nearest.post("/v2/models/nearest/infer", json=asked).json()["outputs"]
    assert [output["name"] for output in outputs] == ["reverse.face"]
    for include, message in (("rhythm", "can include landmarks, points"), (3, "must be a string")):
        asked["parameters"] = {"include": include}
        assert message in nearest.post("/v2/models/nearest/infer", json=asked).text


def test_what_a_model_cannot_include_is_refused_with_what_it_can(nearest: Caller) -> None:
    cases = [
        ("correspondence", body(other(), include=["rhythm"]), "'nearest' can include landmarks, "
         "points, reverse, segments; got 'rhythm'"),
        ("correspondence", body(other(), model="toy-body", include=["landmarks"]),
         "'toy-body' can include points, reverse; got 'landmarks'"),
        ("node-labels", {"graph": ring(features=20), "include": ["graph"]},
         "can include probabilities; got 'graph'"),
    ]  # fmt: skip
    for route, asked, message in cases:
        assert message in problem(nearest.post(f"/v1/{route}", json=asked), 422, "include")
    for wrong in ("landmarks", 3, {"a": 1}):
        asked = body(other(), include=wrong)
        assert "must be an array" in problem(nearest.post("/v1/correspondence", json=asked), 422)
    asked = body(other(), include=["points", 3])
    said = problem(nearest.post("/v1/correspondence", json=asked), 422, "include[1]")
    assert said == "must be a string, got 3"


def test_includes_do_not_hide_a_ragged_mesh(nearest: Caller) -> None:
    """The proof of shapes counts brackets; those of `include` must not confuse it."""
    mesh = ball()
    mesh["faces"][0], mesh["faces"][1] = mesh["faces"][0][:2], [*mesh["faces"][1], 3]
    for include in ([], ["points"], ["points", "segments"]):
        response = nearest.post("/v1/correspondence", json={"include": include, "mesh": mesh})
        assert problem(response, 422, "mesh.faces[0]") == "must have 3 numbers, got 2"


def test_the_attributes_of_the_reference_can_be_read(nearest: Caller) -> None:
    first = nearest.get("/v1/models/nearest/attributes")
    known = {"If-None-Match": first.headers["etag"]}
    assert nearest.get("/v1/models/nearest/attributes", headers=known).status_code == 304
    given = first.json()
    height = reference().vertices[:, 2]
    assert given["landmarks"]["top"] == int(height.argmax())
    assert given["segments"]["of_vertex"] == [int(z > 0) for z in height]
    response = nearest.get("/v1/models/toy-body/attributes")
    assert "has no landmarks or segments" in problem(response, 404)


def test_candidates_come_in_binary_too(nearest: Caller) -> None:
    accept = {"Accept": "application/octet-stream"}
    raw = nearest.post("/v1/correspondence", json=body(other(), top_k=2), headers=accept)
    entries = {entry["name"]: entry["shape"] for entry in orjson.loads(raw.headers["x-arrays"])}
    assert entries["candidates.index"] == [len(other().vertices), 2]


def test_the_list_of_models_says_what_can_be_included(nearest: Caller) -> None:
    models = {model["name"]: model for model in nearest.get("/v1/models").json()["models"]}
    assert models["nearest"]["include"] == ["landmarks", "points", "reverse", "segments"]
    assert models["nearest"]["landmarks"] == ["top", "bottom"]
    assert models["nearest"]["segments"] == ["south", "north"]
    assert models["toy-body"]["include"] == ["points", "reverse"]
    assert models["toy-body"]["landmarks"] is None
    assert models["toy-nodes"]["include"] == ["probabilities"]


def test_a_plain_ply_is_read_as_trimesh_reads_it(nearest: Caller) -> None:
    content = nearest.get("/v1/models/nearest/reference").content
    quick = _read_triangles(content)
    assert quick is not None
    slow: Any = trimesh.load(io.BytesIO(content), file_type="ply", process=False)
    assert np.array_equal(quick[0], slow.vertices) and np.array_equal(quick[1], slow.faces)
    assert np.array_equal(read_exported(content)[1], slow.faces)
    text = reference().export(file_type="ply", encoding="ascii")
    assert _read_triangles(text) is None
    assert np.allclose(read_exported(text)[0], slow.vertices)


def test_a_ply_that_is_not_what_its_header_says_is_not_read_quickly(nearest: Caller) -> None:
    content = nearest.get("/v1/models/nearest/reference").content
    last_row = len(content) - 13
    quad = content[:last_row] + b"\x04" + content[last_row + 1 :]
    for wrong in (content[:-1], content + b"\0", quad):
        assert _read_triangles(wrong) is None
    with pytest.raises(Invalid, match="cut short"):
        read_mesh(content[:-1], "ply", 1 << 20, 1 << 20)


def test_landmarks_are_the_same_with_and_without_the_way_back(nearest: Caller) -> None:
    alone = answer(nearest, other(), "landmarks")["landmarks"]
    assert answer(nearest, other(), "landmarks,reverse")["landmarks"] == alone
