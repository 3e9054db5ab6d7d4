"""Ray Serve: replicas share the load, heal, grow and shrink (real Ray; slow)."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.ray_app import Scale, run_ray
from service.server import REFUSED, StartupError
from service.settings import Settings

ROOT = Path(__file__).parent.parent.parent
NO_RAY = importlib.util.find_spec("ray") is None


@pytest.mark.parametrize(("text", "least", "most"), [("1", 1, 1), ("3", 3, 3), ("1:4", 1, 4)])
def test_replicas_are_a_number_or_a_range(text: str, least: int, most: int) -> None:
    scale = Scale.parse(text, gpus=0.5)
    assert (scale.least, scale.most, scale.gpus) == (least, most, 0.5)


@pytest.mark.parametrize("text", ["", "0", "4:1", "two", "-1", "1:2:3", "0:2"])
def test_other_replicas_are_refused(text: str) -> None:
    with pytest.raises(StartupError, match="replicas must"):
        Scale.parse(text)


@pytest.mark.skipif(not NO_RAY, reason="Ray is installed")
def test_without_ray_one_line_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ray(Settings(), "1") == REFUSED
    assert capsys.readouterr().err == ("splinecnn: --ray needs Ray Serve: pip install '.[ray]'\n")


SERVE = """
import sys
from service.ray_app import run_ray
from service.settings import Settings
sys.exit(run_ray(Settings(models=sys.argv[1], port=int(sys.argv[2])), sys.argv[3]))
"""


class Served:
    """`run_ray` in a process of its own, and callers who try again when they are told to."""

    def __init__(self, bundles: Path, replicas: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(bundles), str(self.port), replicas],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        self.sample: Any = None

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, "run_ray has ended"
            try:
                return self.http.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        wait(ready, 300)
        self.sample = self.http.get("/v1/models/toy-nodes/sample").json()

    def replicas(self) -> list[int]:
        """Processes that serve, by the title Ray gives them."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().startswith(b"ray::ServeReplica:splinecnn"):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def ask(self) -> list[int]:
        for _ in range(60):
            try:
                answer = self.http.post("/v1/node-labels", json=self.sample)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == 200:
                labels: list[int] = answer.json()["labels"]
                return labels
            time.sleep(0.5)
        raise AssertionError("no answer after 60 tries")


def wait(until: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    from tests.toys import make_toy_bundles

    make_toy_bundles(tmp_path / "bundles", "toy-nodes")
    return tmp_path / "bundles"


@pytest.fixture
def start(bundles: Path) -> Iterator[Callable[[str], Served]]:
    running: list[Served] = []

    def begin(replicas: str) -> Served:
        running.append(Served(bundles, replicas))
        running[-1].wait_ready()
        return running[-1]

    yield begin
    for served in running:
        served.http.close()
        if served.process.poll() is None:
            served.process.terminate()
        served.process.wait(90)


@pytest.mark.slow
@pytest.mark.skipif(NO_RAY, reason="Ray is not installed (pip install '.[ray]')")
def test_a_killed_replica_loses_no_answer(start: Callable[[str], Served]) -> None:
    served = start("2")
    wait(lambda: len(served.replicas()) == 2, 60)
    expected = served.ask()
    with ThreadPoolExecutor(4) as callers:
        answers = [callers.submit(served.ask) for _ in range(400)]
        victim = served.replicas()[0]
        os.kill(victim, signal.SIGKILL)
        assert all(answer.result() == expected for answer in answers)
    wait(lambda: len(served.replicas()) == 2 and victim not in served.replicas(), 90)
    metrics = served.http.get("/metrics").text
    assert "splinecnn_predictions_total" in metrics


@pytest.mark.slow
@pytest.mark.skipif(NO_RAY, reason="Ray is not installed (pip install '.[ray]')")
@pytest.mark.timeout(600)
def test_replicas_grow_under_load_and_shrink_after_it(start: Callable[[str], Served]) -> None:
    served = start("1:2")
    assert len(served.replicas()) == 1
    enough = threading.Event()

    def keep_asking() -> None:
        while not enough.is_set():
            served.ask()

    with ThreadPoolExecutor(16) as callers:
        asking = [callers.submit(keep_asking) for _ in range(16)]
        try:
            wait(lambda: len(served.replicas()) == 2, 120)
        finally:
            enough.set()
        for caller in asking:
            caller.result()
    wait(lambda: len(served.replicas()) == 1, 180)


@pytest.mark.slow
@pytest.mark.skipif(NO_RAY, reason="Ray is not installed (pip install '.[ray]')")
def test_stopping_ends_cleanly(start: Callable[[str], Served]) -> None:
    served = start("1")
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(90) == 0
    assert served.replicas() == []
