"""Traces: what a collector gets of a request, by the real SDK over a real socket."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_toys import picture

from service.server import REFUSED, run
from service.settings import Settings

trace = "0af7651916cd43dd8448eb211c80319c"
parent = "b7ad6b7169203331"


class Collector:
    """Keeps the spans that are posted to it."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        self.services: set[str] = set()
        self.spans: list[Any] = []
        keep = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    facts = {a.key: a.value.string_value for a in group.resource.attributes}
                    keep.services.add(facts["service.name"])
                    for scope in group.scope_spans:
                        keep.spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.sdk")
    collecting = Collector()
    yield collecting
    collecting.close()


def facts_of(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


@pytest.mark.parametrize("way", [{}, {"cors_origins": "https://a.example"}], ids=["short", "long"])
def test_a_request_is_a_span_of_its_caller_and_its_stages_are_inside(
    toy_bundles: Path, collector: Collector, way: dict[str, Any]
) -> None:
    fields = {"models": str(toy_bundles), "port": 0, "threads": 1, "traces": True, **way}
    code = (
        "import sys; from service.server import run; from service.settings import Settings; "
        f"sys.exit(run(Settings(**{fields!r}, drain_notice_seconds=0)))"
    )
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "tea"}
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    assert child.stderr is not None
    found = None
    while found is None:
        line = child.stderr.readline()
        assert line, "the service did not start"
        found = re.search(r"serving on (http\S+)", line)
    headers = {"traceparent": f"00-{trace}-{parent}-01"}
    answer = httpx.post(
        f"{found[1]}/v1/graph-label", json={"graph": picture()}, headers=headers, timeout=60
    )
    assert answer.status_code == 200
    refused = httpx.post(f"{found[1]}/v1/graph-label", json={"graph": {}}, timeout=60)
    assert refused.status_code == 422
    child.send_signal(signal.SIGTERM)  # and with it comes what has not been sent yet
    child.communicate(timeout=60)

    assert collector.services == {"tea"}
    good = next(s for s in collector.spans if s.trace_id.hex() == trace and s.kind == 2)
    assert good.name == "POST /v1/graph-label"
    assert good.parent_span_id.hex() == parent
    facts = facts_of(good)
    assert facts["http.response.status_code"] == 200
    assert facts["splinecnn.request_id"] == trace
    assert facts["splinecnn.model"] == "mnist-superpixels/1"
    stages = [s for s in collector.spans if s.parent_span_id == good.span_id]
    assert [stage.name for stage in stages] == ["decode", "queue", "run", "encode"]
    for stage in stages:
        assert good.start_time_unix_nano <= stage.start_time_unix_nano <= stage.end_time_unix_nano
    slack = 5_000_000  # stages follow each other but for the turns of the loop between them
    assert stages[-1].end_time_unix_nano <= good.end_time_unix_nano + slack
    bad = next(s for s in collector.spans if facts_of(s).get("http.response.status_code") == 422)
    assert bad.trace_id.hex() != trace and not bad.parent_span_id


def test_without_the_package_it_is_said_in_one_line(
    settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert run(settings(traces=True)) == REFUSED
    assert capsys.readouterr().err == (
        "splinecnn: traces need OpenTelemetry: pip install '.[otel]'\n"
    )
