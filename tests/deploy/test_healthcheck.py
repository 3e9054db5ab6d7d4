"""The container's health check says what /readyz says."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from deploy_files import DOCKER


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def check(port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-IS", str(DOCKER / "healthcheck.py")],
        env={**os.environ, "SPLINECNN_HOST": "0.0.0.0", "SPLINECNN_PORT": str(port)},
        capture_output=True,
        text=True,
    )


def test_ready_is_healthy() -> None:
    with answering(200) as port:
        assert check(port).returncode == 0


def test_not_ready_is_unhealthy_and_says_so() -> None:
    with answering(503) as port:
        done = check(port)
    assert done.returncode == 1
    assert done.stderr.strip() == "not ready: /readyz answered 503"


def test_nobody_listening_is_unhealthy_and_says_so() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = check(unused.getsockname()[1])
    assert done.returncode == 1
    assert done.stderr.startswith("not reachable: ")
