"""How much two Ray replicas answer against one, when each has one core and one thread.

    python tests/bench/ray.py [--models bundles] [--model bodies] [--seconds 20] [--rounds 2]

Needs the [ray] extra; `make bench-ray` makes an environment for it. Callers post one prepared mesh
and read binary answers, two for each replica, so that none of them ever waits for work.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import trimesh

from model.bundle import open_bundle

SERVE = """
import sys
from service.ray_app import run_ray
from service.settings import Settings
models, model, port, replicas = sys.argv[1:]
settings = Settings(models=models, only=model, port=int(port), threads=1, log_level="warning")
sys.exit(run_ray(settings, replicas, cpus=1))
"""
# Ray's own processes share the cores with the replicas, as they do on a real node
REPLICA = b"ray::ServeReplica:splinecnn"


def sample_ply(models: Path, model: str) -> bytes:
    """The mesh of the newest bundle's sample as a binary PLY file."""
    newest = max((models / model).glob("*/manifest.json"), key=lambda path: int(path.parent.name))
    mesh = open_bundle(newest.parent).sample["mesh"]
    made = trimesh.Trimesh(mesh["vertices"], mesh["faces"], process=False).export(file_type="ply")
    assert isinstance(made, bytes)
    return made


def find_replicas() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(REPLICA):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return sorted(found)


def pin(pid: int, core: int) -> None:
    """Every thread of a process; later ones inherit it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Caller(threading.Thread):
    """Posts one body again and again on one connection until told to stop."""

    def __init__(self, port: int, path: str, body: bytes, stop: threading.Event) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._path, self._body, self._stop_asking = path, body, stop
        self.answered: list[float] = []
        self.answers: set[bytes] = set()

    def ask(self) -> None:
        headers = {"Content-Type": "model/ply", "Accept": "application/octet-stream"}
        self._connection.request("POST", self._path, self._body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {content[:500].decode()}")
        self.answers.add(content)
        self.answered.append(time.monotonic())

    def run(self) -> None:
        while not self._stop_asking.is_set():
            self.ask()


def wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"Ray ended with code {process.returncode}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("Ray was not ready after 240 s")


def measure(options: argparse.Namespace, body: bytes, replicas: int) -> float:
    """Answers per second, over `seconds` after everyone has had a first one."""
    port = free_port()
    arguments = [str(options.models.resolve()), options.model, str(port), str(replicas)]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVE, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Ray tells of every request
        stdout=None if options.verbose else subprocess.DEVNULL,
        stderr=None if options.verbose else subprocess.DEVNULL,
    )
    try:
        wait_ready(process, port)
        serving = find_replicas()
        if len(serving) != replicas:
            raise SystemExit(f"{len(serving)} replicas are here instead of {replicas}")
        for core, pid in zip(sorted(os.sched_getaffinity(0)), serving, strict=False):
            pin(pid, core)
        stop = threading.Event()
        path = f"/v1/correspondence?model={options.model}"
        callers = [Caller(port, path, body, stop) for _ in range(2 * replicas)]
        for caller in callers:
            caller.start()
        while not all(len(caller.answered) > 1 for caller in callers):
            if not any(caller.is_alive() for caller in callers):
                raise SystemExit("every caller has failed")
            time.sleep(0.05)
        begun = time.monotonic()
        time.sleep(options.seconds)
        ended = time.monotonic()
        stop.set()
        for caller in callers:
            caller.join()
        if len(set().union(*(caller.answers for caller in callers))) != 1:
            raise SystemExit("the answers differ")
        times = [at for caller in callers for at in caller.answered]
        return sum(begun < at <= ended for at in times) / (ended - begun)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=Path, default=Path("bundles"))
    parser.add_argument("--model", default="bodies")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="show what Ray says")
    options = parser.parse_args()
    body = sample_ply(options.models, options.model)
    cores = len(os.sched_getaffinity(0))
    print(f"{options.model}, a mesh of {len(body) / 1e3:.0f} kB, {cores} cores")
    best = {1: 0.0, 2: 0.0}
    for _ in range(options.rounds):
        for replicas in best:
            rate = measure(options, body, replicas)
            best[replicas] = max(best[replicas], rate)  # others on the machine only ever slow it
            print(f"{replicas} replica{'s' * (replicas > 1)}: {rate:.2f} answers/s", flush=True)
    print(f"2 replicas answer {best[2] / best[1]:.2f} times as much as one, best of each")


if __name__ == "__main__":
    main()
