"""Whatever is sent, the answer is never 5xx: a short run; the count grows with FUZZ_EXAMPLES."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import orjson
import pytest
import trimesh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.service_toys import Caller, ball, picture, ring

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

numbers = st.one_of(
    st.integers(-3, 60),
    st.floats(width=32),
    st.integers(),
    st.just(1e308),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
)
rows = st.lists(st.lists(numbers, max_size=4), max_size=8) | st.lists(numbers, max_size=5) | numbers
leaves = st.recursive(
    numbers, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner)
)


def check(response: Any) -> None:
    assert response.status_code < 500, response.text
    if response.status_code != 200:
        body = response.json()
        assert body.get("error") or (body["status"] == response.status_code and body["detail"])


def dump(value: Any) -> bytes:
    """JSON as orjson writes it, or as Python does for what orjson refuses."""
    import json

    return json.dumps(value).encode("utf-8", "surrogatepass")


@quick
@given(vertices=rows, faces=rows, top_k=numbers, model=st.none() | st.text() | st.just("bodies"))
def test_any_mesh(api: Caller, vertices: Any, faces: Any, top_k: Any, model: Any) -> None:
    body = {"mesh": {"vertices": vertices, "faces": faces}, "top_k": top_k, "model": model}
    check(api.post("/v1/correspondence", content=dump(body)))


@quick
@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=3, max_size=9))
def test_any_finite_or_huge_coordinates(api: Caller, vertices: Any) -> None:
    mesh = {"vertices": vertices, "faces": [[0, 1, 2]]}
    check(api.post("/v1/correspondence", content=dump({"mesh": mesh})))


@quick
@given(
    route=st.sampled_from(["node-labels", "graph-label"]),
    field=st.sampled_from(["num_nodes", "edges", "undirected", "features", "positions", "pseudo"]),
    value=rows | leaves,
)
def test_any_graph(api: Caller, route: str, field: str, value: Any) -> None:
    graph = ring() if route == "node-labels" else picture()
    check(api.post(f"/v1/{route}", content=dump({"graph": {**graph, field: value}})))


@quick
@given(st.integers(1, 6), st.data())
def test_any_valid_graph_is_answered(api: Caller, nodes: int, data: st.DataObject) -> None:
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=12))
    graph = {
        "num_nodes": nodes,
        "edges": [list(edge) for edge in edges],
        "features": [[0.5]] * nodes,
        "positions": [[float(n % 2), 0.0] for n in range(nodes)],
    }
    response = api.post("/v1/graph-label", json={"graph": graph})
    assert response.status_code == 200, response.text


@quick
@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "identity", "br"]))
def test_any_bytes(api: Caller, body: bytes, encoding: str) -> None:
    headers = {"Content-Encoding": encoding}
    check(api.post("/v1/correspondence", content=body, headers=headers))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or insert a few bytes."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(result) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(result):
            result[at] = rng.randrange(256)
        elif kind == 1:
            del result[at : at + rng.randint(1, 20)]
        elif kind == 2:
            result[at:at] = result[at : at + rng.randint(1, 20)]
        elif kind == 3:
            result[at:at] = rng.choice([b"-1", b"999999999", b"nan", b"\x00", b"1e40", b"\n"])
        elif rng.random() < 0.2:
            del result[at:]
    return bytes(result)


@pytest.mark.parametrize("kind", ["ply", "ply_ascii", "obj", "off", "stl", "stl_ascii", "glb"])
def test_any_damaged_mesh_file(api: Caller, kind: str) -> None:
    mesh = trimesh.Trimesh(**ball(0), process=False)
    extra = {"encoding": "ascii"} if kind == "ply_ascii" else {}
    data = mesh.export(file_type=kind if kind == "stl_ascii" else kind.split("_")[0], **extra)
    whole = data if isinstance(data, bytes) else data.encode()
    rng = random.Random(kind)
    for _ in range(EXAMPLES // 2):
        url = f"/v1/correspondence?format={kind.split('_')[0]}"
        check(api.post(url, content=mutate(whole, rng)))


def test_any_damaged_infer_request(api: Caller) -> None:
    mesh = ball(0)
    vertices, faces = np.float32(mesh["vertices"]), np.int32(mesh["faces"])
    specs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": kind,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array, kind in (("vertices", vertices, "FP32"), ("faces", faces, "INT32"))
    ]
    head = orjson.dumps({"inputs": specs, "parameters": {"binary_data_output": True}})
    tail = vertices.tobytes() + faces.tobytes()
    rng = random.Random(4)
    for turn in range(EXAMPLES * 2):
        changed = mutate(head, rng) if turn % 2 else head
        behind = tail if turn % 2 else mutate(tail, rng)
        length = len(changed) if turn % 3 else rng.randint(0, 400)
        headers = {"Inference-Header-Content-Length": str(length)}
        check(api.post("/v2/models/bodies/infer", content=changed + behind, headers=headers))
