"""Tens of thousands of requests that nobody sane would send: no 5xx, no hang, nothing grows."""

from __future__ import annotations

import io
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import requests
import schemathesis
import trimesh
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from PIL import Image
from schemathesis import GenerationMode

from tests.service.service_toys import ball, picture, ring
from tests.service.test_fuzz import dump, leaves, mutate, numbers, rows
from tests.trust.trust_corpus import HEAD, tensors
from tests.trust.trust_results import FULL, Row, record
from tests.trust.trust_server import Server

EXAMPLES = 1900 if FULL else 15
OPERATIONS_EACH = 150 if FULL else 2
PATIENCE = 60.0  # seconds without an answer are a hang
KINDS = ("ply", "ply_ascii", "obj", "off", "stl", "stl_ascii", "glb")
PICTURES = ("PNG", "JPEG")
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
pytestmark = pytest.mark.timeout(3600)


class Target:
    """The service, with every answer counted."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = httpx.Client(base_url=server.url, timeout=PATIENCE)
        self.session = requests.Session()
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0
        self.resident: list[int] = []

    def post(self, path: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        begun = time.monotonic()
        self.count(self.client.post(path, content=content, headers=headers).status_code, begun)

    def post_mesh(self, kind: str, content: bytes) -> None:
        self.post(f"/v1/correspondence?format={kind.split('_')[0]}", content)

    def post_picture(self, kind: str, content: bytes) -> None:
        self.post("/v1/graph-label", content, {"Content-Type": f"image/{kind.lower()}"})

    def count(self, status: int, begun: float, *, hurried: bool = False) -> None:
        self.statuses[status] += 1
        self.slowest = max(self.slowest, time.monotonic() - begun)
        if self.statuses.total() % 250 == 0:
            self.resident.append(self.server.vitals().resident)
        late = hurried and status == 504  # as the caller asked by X-Timeout-Ms
        assert status < 500 or late, f"{status} after {self.statuses.total()} requests"

    @property
    def growth(self) -> float:
        """Of the memory, from the second tenth of the run to its last."""
        tenth = max(1, len(self.resident) // 10)
        early, late = self.resident[tenth : 2 * tenth], self.resident[-tenth:]
        return float(np.mean(late) / np.mean(early) - 1) if early else 0.0


def mesh_file(kind: str) -> bytes:
    mesh = trimesh.Trimesh(**ball(0), process=False)
    extra = {"encoding": "ascii"} if kind == "ply_ascii" else {}
    data = mesh.export(file_type=kind if kind == "stl_ascii" else kind.split("_")[0], **extra)
    return data if isinstance(data, bytes) else data.encode()


def picture_file(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (28, 28), 128).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def target(toys: Path) -> Iterator[Target]:
    """Toys: what is tried here is what stands before the network."""
    with Server(models=toys, max_body_mb=4, log_level="info") as server:
        target = Target(server)
        # parsers are imported and the heap takes its size when files first come: that is no growth
        rng = random.Random(0)
        for _ in range(EXAMPLES // 3):
            for kind in KINDS:
                target.post_mesh(kind, mutate(mesh_file(kind), rng))
            for kind in PICTURES:
                target.post_picture(kind, mutate(picture_file(kind), rng))
        target.resident.clear()
        yield target
        target.client.close()
        target.session.close()
        server.settle()
        assert server.get("/readyz").status_code == 200
        assert server.stop() == 0
    total = target.statuses.total()
    failed = sum(n for status, n in target.statuses.items() if status >= 500 and status != 504)
    said = ", ".join(f"{status}: {n}" for status, n in sorted(target.statuses.items()))
    record(
        "fuzz",
        [
            Row(
                f"{total} requests: OpenAPI, meshes, graphs, damaged files and tensors",
                f"{failed} × 5xx (504 only to callers in a hurry), slowest "
                f"{target.slowest:.1f} s ({said})",
                "≥ 20,000; no 5xx, no hang",
                total >= 20_000,
            ),
            Row(
                "… resident memory, second tenth to last",
                f"{100 * target.growth:+.1f} %",
                "no growth",
                target.growth <= 0.02,
            ),
        ],
    )
    assert target.growth < 0.2


def _operations() -> list[tuple[str, str]]:
    tree = json.loads((Path(__file__).parent / "previous" / "openapi.json").read_text())
    return [(path, method) for path, item in tree["paths"].items() for method in item]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("path", "method"), _operations())
def test_anything_the_openapi_document_can_be_read_to_say(
    target: Target, path: str, method: str, mode: GenerationMode
) -> None:
    if not FULL and not path.startswith("/v1/"):
        pytest.skip("the short form asks our own routes only")
    tree = target.client.get("/openapi.json").json()
    operation = schemathesis.openapi.from_dict(tree)[path][method]

    @seed(1)
    @settings(many, max_examples=OPERATIONS_EACH)
    @given(operation.as_strategy(generation_mode=mode))
    def attack(case: Any) -> None:
        begun = time.monotonic()
        try:
            answer = case.call(base_url=target.server.url, session=target.session, timeout=PATIENCE)
        except (requests.exceptions.InvalidHeader, UnicodeError):
            return  # what the client itself will not send
        target.count(answer.status_code, begun, hurried="X-Timeout-Ms" in (case.headers or {}))

    try:
        attack()
    except Unsatisfiable:
        pytest.skip("this route leaves nothing to get wrong")


@seed(2)
@many
@given(vertices=rows, faces=rows, top_k=numbers, model=st.none() | st.text() | st.just("bodies"))
def test_any_mesh_over_the_wire(
    target: Target, vertices: Any, faces: Any, top_k: Any, model: Any
) -> None:
    body = {"mesh": {"vertices": vertices, "faces": faces}, "top_k": top_k, "model": model}
    target.post("/v1/correspondence", dump(body))


@seed(3)
@many
@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=3, max_size=9))
def test_any_coordinates_over_the_wire(target: Target, vertices: Any) -> None:
    mesh = {"vertices": vertices, "faces": [[0, 1, 2]]}
    target.post("/v1/correspondence", dump({"mesh": mesh}))


@seed(4)
@many
@given(
    route=st.sampled_from(["node-labels", "graph-label"]),
    field=st.sampled_from(["num_nodes", "edges", "undirected", "features", "positions", "pseudo"]),
    value=rows | leaves,
)
def test_any_graph_over_the_wire(target: Target, route: str, field: str, value: Any) -> None:
    graph = ring() if route == "node-labels" else picture()
    target.post(f"/v1/{route}", dump({"graph": {**graph, field: value}}))


@seed(5)
@many
@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate", "identity", "br"]))
def test_any_bytes_over_the_wire(target: Target, body: bytes, encoding: str) -> None:
    target.post("/v1/correspondence", body, {"Content-Encoding": encoding})


@pytest.mark.parametrize("kind", KINDS)
def test_any_damaged_mesh_file_over_the_wire(target: Target, kind: str) -> None:
    whole = mesh_file(kind)
    rng = random.Random(f"{kind} over the wire")
    for _ in range(EXAMPLES // 2):
        target.post_mesh(kind, mutate(whole, rng))


@pytest.mark.parametrize("kind", PICTURES)
def test_any_damaged_picture_over_the_wire(target: Target, kind: str) -> None:
    whole = picture_file(kind)
    rng = random.Random(kind)
    for _ in range(EXAMPLES // 4):
        target.post_picture(kind, mutate(whole, rng))


def test_any_damaged_infer_request_over_the_wire(target: Target) -> None:
    mesh = ball(0)
    arrays = {"vertices": np.float32(mesh["vertices"]), "faces": np.int32(mesh["faces"])}
    body, size = tensors(arrays, {"vertices": "FP32", "faces": "INT32"})
    head, tail = body[:size], body[size:]
    rng = random.Random(8)
    for turn in range(EXAMPLES):
        changed = mutate(head, rng) if turn % 2 else head
        behind = tail if turn % 2 else mutate(tail, rng)
        length = len(changed) if turn % 3 else rng.randint(0, 400)
        target.post("/v2/models/bodies/infer", changed + behind, {HEAD: str(length)})
