"""The short way of the busiest routes: over a real socket, the same answers as through the app."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from service_toys import Caller, ball, picture, ring

from service.exchange import Desk
from service.settings import Settings

_JSON = "Content-Type: application/json\r\n"


class Service:
    """The service in a process of its own, spoken to byte by byte."""

    def __init__(self, models: Path, **changes: Any) -> None:
        fields = {"models": str(models), "port": 0, "threads": 1, "watch_seconds": 0, **changes}
        code = (
            "import sys; from service.server import run; from service.settings import Settings; "
            f"sys.exit(run(Settings(**{fields!r})))"
        )
        command = [sys.executable, "-W", "ignore", "-c", code]
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path.cwd())
        assert self.child.stderr is not None
        found = None
        while found is None:
            line = self.child.stderr.readline()
            assert line, "the service did not start"
            found = re.search(r"serving on http://([\d.]+):(\d+)", line)
        self.address = (found[1], int(found[2]))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def metric(self, line: str) -> float:
        text = httpx.get(f"http://{self.address[0]}:{self.address[1]}/metrics").text
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0

    def stop(self) -> None:
        self.child.kill()
        self.child.communicate()


@pytest.fixture(scope="module")
def service(toy_bundles: Path) -> Iterator[Service]:
    running = Service(toy_bundles, body_seconds=1.0, max_body_mb=0.25, max_queue=3)
    yield running
    running.stop()


def request(path: str, body: bytes, headers: str = _JSON, version: str = "1.1") -> bytes:
    head = f"POST {path} HTTP/{version}\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read(caller: socket.socket, rest: bytes = b"") -> tuple[int, dict[str, str], bytes, bytes]:
    """One answer: status, headers, body, and what came behind it."""
    data = rest
    while b"\r\n\r\n" not in data:
        more = caller.recv(65536)
        assert more, data
        data += more
    head, _, data = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    length = int(headers["content-length"])
    while len(data) < length:
        more = caller.recv(65536)
        assert more, data
        data += more
    return int(first.split()[1]), headers, data[:length], data[length:]


def ask(service: Service, data: bytes) -> tuple[int, dict[str, str], bytes]:
    with service.connect() as caller:
        caller.sendall(data)
        return read(caller)[:3]


GRAPH = json.dumps({"graph": picture()}).encode()
MESH = json.dumps({"mesh": ball()}).encode()
NODES = json.dumps({"graph": ring()}).encode()
INFER = json.dumps(
    {
        "id": "7",
        "inputs": [
            {"name": "features", "datatype": "FP32", "shape": [2, 1], "data": [0.5, 0.25]},
            {"name": "positions", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]},
            {"name": "edge_index", "datatype": "INT64", "shape": [2, 2], "data": [0, 1, 1, 0]},
        ],
    }
).encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/graph-label", GRAPH),
        ("/v1/graph-label?model=mnist-superpixels&include=graph", GRAPH),
        ("/v1/correspondence", MESH),
        ("/v1/correspondence?top_k=3", MESH),
        ("/v1/node-labels", NODES),
        ("/v2/models/mnist-superpixels/infer", INFER),
        ("/v2/models/mnist-superpixels/versions/1/infer", INFER),
        ("/v1/graph-label", b"{"),
        ("/v1/graph-label", b'{"graph": {}}'),
        ("/v1/graph-label?model=tea", GRAPH),
        ("/v1/correspondence?top_k=tea", MESH),
        ("/v2/models/tea/infer", INFER),
        ("/v2/models/mnist-superpixels/versions/9/infer", INFER),
        ("/v2/models/mnist-superpixels/infer", b"[]"),
        ("/v2/models/mnist-superpixels/infer?version=1", INFER),
        ("/v2/models/mnist-superpixels/infer?version=9", INFER),
        ("/v2/models/mnist-superpixels/infer?version=", INFER),
        ("/v2/models/mnist-superpixels/versions/1/infer?version=9", INFER),
    ],
)
def test_the_short_way_answers_what_the_app_answers(
    service: Service, api: Caller, path: str, body: bytes
) -> None:
    compare(service, api, path, body)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/tea/infer",
        "/v2/models/tea/versions/9/infer",
        "/v2/models/bodies/infer",
        "/v1/graph-label?model=tea",
    ],
)
def test_the_short_way_asks_for_a_key_before_it_says_a_word(
    locked: tuple[Service, Caller], path: str
) -> None:
    assert compare(*locked, path, INFER)[0] == 401
    status, content = compare(*locked, path, INFER, {"X-API-Key": "guess"})
    assert status == 403 and b"mnist" not in content
    assert compare(*locked, path, INFER, {"X-API-Key": "sesame"})[0] in (400, 404, 422)


@pytest.fixture(scope="module")
def locked(toy_bundles: Path) -> Iterator[tuple[Service, Caller]]:
    """With a key, over a socket and in this process."""
    running = Service(toy_bundles, api_keys="sesame")
    caller = Caller(
        Settings(models=toy_bundles, threads=1, watch_seconds=0, api_keys=SecretStr("sesame"))
    )
    yield running, caller
    caller.close()
    running.stop()


def compare(
    service: Service, api: Caller, path: str, body: bytes, more: dict[str, str] | None = None
) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json", "X-Request-ID": "same", **(more or {})}
    short = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    headers["Accept-Encoding"] = "identity"
    long = api.post(path, content=body, headers=headers)
    status, said, content = ask(service, request(path, body, short))
    assert status == long.status_code
    assert said.keys() - {"date"} == long.headers.keys()
    same = {name: value.lower() for name, value in long.headers.items() if "length" not in name}
    assert same.items() <= said.items()
    ours, theirs = json.loads(content), long.json()
    assert ours.pop("timings_ms", None) is None or theirs.pop("timings_ms")
    assert ours == theirs
    return status, content


def test_a_caller_keeps_the_connection(service: Service) -> None:
    with service.connect() as caller:
        for body in (GRAPH, b"{", GRAPH):
            caller.sendall(request("/v1/graph-label", body))
            status, headers, _, rest = read(caller)
            assert status == (400 if body == b"{" else 200)
            assert "connection" not in headers
            assert rest == b""


def test_requests_sent_at_once_are_answered_in_order(service: Service) -> None:
    with service.connect() as caller:
        ids = [f"number-{n}" for n in range(5)]
        caller.sendall(
            b"".join(
                request("/v1/graph-label", GRAPH, f"{_JSON}X-Request-ID: {name}\r\n")
                for name in ids
            )
        )
        rest = b""
        for name in ids:
            status, headers, _, rest = read(caller, rest)
            assert (status, headers["x-request-id"]) == (200, name)


def test_a_body_in_chunks_is_put_together(service: Service) -> None:
    with service.connect() as caller:
        head = f"POST /v1/graph-label HTTP/1.1\r\nHost: x\r\n{_JSON}Transfer-Encoding: chunked"
        caller.sendall(f"{head}\r\n\r\n".encode())
        for start in range(0, len(GRAPH), 100):
            piece = GRAPH[start : start + 100]
            caller.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        caller.sendall(b"0\r\n\r\n")
        assert read(caller)[0] == 200


def test_an_old_caller_is_answered_and_let_go(service: Service) -> None:
    with service.connect() as caller:
        caller.sendall(request("/v1/graph-label", GRAPH, version="1.0"))
        status, headers, _, _ = read(caller)
        assert (status, headers["connection"]) == (200, "close")
        assert caller.recv(1) == b""


def test_too_large_a_body_is_refused_before_it_is_read(service: Service) -> None:
    with service.connect() as caller:
        head = f"POST /v1/graph-label HTTP/1.1\r\nHost: x\r\n{_JSON}Content-Length: 300000\r\n\r\n"
        caller.sendall(head.encode())
        status, _, body, _ = read(caller)
        assert status == 413 and b"262144" in body
        caller.sendall(b" " * 300000 + request("/v1/graph-label", GRAPH))  # and then goes on
        assert read(caller)[0] == 200


def test_too_large_a_body_that_does_not_say_so_is_refused(service: Service) -> None:
    with service.connect() as caller:
        head = f"POST /v1/graph-label HTTP/1.1\r\nHost: x\r\n{_JSON}Transfer-Encoding: chunked"
        caller.sendall(f"{head}\r\n\r\n".encode() + b"49000\r\n" + b" " * 0x49000 + b"\r\n")
        assert read(caller)[0] == 413


def test_a_body_that_does_not_come_is_waited_for_so_long(service: Service) -> None:
    with service.connect() as caller:
        caller.sendall(request("/v1/graph-label", GRAPH)[:-5])
        status, headers, body, _ = read(caller)
        assert (status, headers["connection"]) == (408, "close")
        assert b"within 1 seconds" in body
        assert caller.recv(1) == b""


def test_full_is_said_before_the_body_is_read_and_leaves_no_trace(service: Service) -> None:
    waiting = [service.connect() for _ in range(3)]
    for caller in waiting:
        caller.sendall(request("/v1/graph-label", GRAPH)[:-5])
    full = 'splinecnn_rejected_total{reason="full"}'
    before = service.metric(full)
    _until(lambda: service.metric("splinecnn_in_flight") == 3)
    with service.connect() as other:
        head, _, body = request("/v1/graph-label", GRAPH).partition(b"\r\n\r\n")
        other.sendall(head + b"\r\n\r\n")
        status, headers, content, _ = read(other)
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(content)["detail"] == "3 requests are being served, no more fit"
        for caller in waiting:
            caller.close()  # with the body still to come
        _until(lambda: service.metric("splinecnn_in_flight") == 0)
        other.sendall(body + request("/v1/graph-label", GRAPH))
        assert read(other)[0] == 200
    assert service.metric(full) == before + 1
    gone = 'splinecnn_requests_total{method="POST",route="/v1/graph-label",status="499"}'
    _until(lambda: service.metric(gone) >= 3)


def _until(true: Any) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("never")


def test_other_paths_go_the_long_way() -> None:
    find = Desk(None).find  # type: ignore[arg-type]
    assert find("/v1/graph-label") is not None
    assert find("/v2/models/a/versions/2/infer") is not None
    for path in ("/v1/graph-label/", "/v2/models/a%20b/infer", "/v2/models/a/ready", "/", ""):
        assert find(path) is None
