"""What serving costs: decoding, batching, HTTP, start; ratios taken in one run on one machine.

    python tests/bench/serve.py [--models bundles] [--seconds 5]

Without --models, networks of the paper's sizes with random weights are exported first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
import trimesh
import uvloop

from model.export import export_bundle
from model.graph import pack
from model.tasks import label_graph, mesh_graph
from model.zoo import ZooEntry, write_zoo
from service import answers, oip
from service.codec import Skimmed
from service.engine import Engine
from service.inputs import read_question
from service.metrics import Metrics
from service.models import Model
from service.repository import Repository
from service.settings import Settings

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.load.caller import closed_loop  # noqa: E402

warnings.simplefilter("ignore")

# of several models of a task the ones that are measured
SMALL, MESH = "mnist-superpixels", "bodies"
LABEL, MATCH = f"/v1/graph-label?model={SMALL}", f"/v1/correspondence?model={MESH}"


def globe(rings: int = 82, segments: int = 84) -> tuple[np.ndarray, np.ndarray]:
    """A sphere with the 6,890 vertices and 13,776 faces of a body."""
    theta = np.pi * np.arange(1, rings + 1) / (rings + 1)
    phi = 2 * np.pi * np.arange(segments) / segments
    side = [np.outer(np.sin(theta), f(phi)).ravel() for f in (np.cos, np.sin)]
    middle = np.stack([*side, np.repeat(np.cos(theta), segments)], 1)
    vertices = np.concatenate([[[0, 0, 1]], middle, [[0, 0, -1]]])
    at = 1 + np.arange(rings * segments).reshape(rings, segments)
    a, b = at[:-1].ravel(), np.roll(at[:-1], -1, 1).ravel()
    c, d = at[1:].ravel(), np.roll(at[1:], -1, 1).ravel()
    last = len(vertices) - 1
    top = np.stack([np.zeros(segments), at[0], np.roll(at[0], -1)], 1)
    bottom = np.stack([np.full(segments, last), np.roll(at[-1], -1), at[-1]], 1)
    faces = np.concatenate([top, np.stack([a, c, b], 1), np.stack([b, c, d], 1), bottom])
    return vertices, faces.astype(np.int64)


def superpixels(nodes: int, seed: int) -> dict[str, Any]:
    """A planar graph, each node joined to its six nearest."""
    rng = np.random.default_rng(seed)
    positions = rng.random((nodes, 2)) * 28
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    near = np.argsort(distance, 1)[:, 1:7]
    edges = np.stack([np.repeat(np.arange(nodes), 6), near.ravel()], 1)
    return {
        "num_nodes": nodes,
        "edges": edges.tolist(),
        "features": rng.random((nodes, 1)).round(4).tolist(),
        "positions": positions.round(3).tolist(),
    }


def digits(count: int = 64) -> list[dict[str, Any]]:
    """Graphs of 51 to 75 nodes, as 75 superpixels leave them."""
    return [superpixels(51 + seed % 25, seed) for seed in range(count)]


def make_bundles(root: Path) -> Path:
    torch.manual_seed(0)
    vertices, faces = globe()
    body = ZooEntry(MESH, "correspondence", {}, "cartesian", reference="reference.ply")
    cora = ZooEntry("cora", "node", {}, "degree")
    small = ZooEntry(SMALL, "superpixels", {}, "cartesian", image="superpixels")
    for entry in (body, cora, small):
        write_zoo(root / "zoo" / entry.name, entry, entry.build().state_dict())
    trimesh.Trimesh(vertices, faces, process=False).export(root / "zoo/bodies/reference.ply")
    for entry in (body, cora, small):
        export_bundle(root / "zoo" / entry.name, root / "bundles", with_onnx=False)
    return root / "bundles"


def best_ms(work: Callable[[], Any], repeats: int = 40) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def show(what: str, value: str, target: str = "") -> None:
    print(f"{what:<66} {value:>14}  {target}", flush=True)


def codecs(model: Model) -> None:
    vertices, faces = globe()
    mesh = {"vertices": vertices.round(6).tolist(), "faces": faces.tolist()}
    body = orjson.dumps({"mesh": mesh})
    settings = Settings()
    lookup: Any = lambda task, name: model  # noqa: E731
    ours = best_ms(
        lambda: read_question("correspondence", body, "application/json", {}, settings, lookup)
    )
    theirs = best_ms(lambda: orjson.loads(body))
    show(f"decode a mesh of {len(body) // 1000} kB to a checked graph", f"{ours:.2f} ms")
    show("orjson.loads of the same bytes", f"{theirs:.2f} ms")
    show("decode / orjson.loads", f"{ours / theirs:.2f}", "<= 1")
    index = np.random.default_rng(0).integers(0, 6890, 6890).astype(np.int32)
    sure = np.random.default_rng(1).random(6890, np.float32)
    facts = {"model": {"name": "bodies", "version": "1"}}
    answer = answers.Answer(facts, {"correspondence": index, "confidence": sure})
    encode = best_ms(lambda: answers.encode(answer, answers.JSON, {"run": 1.0}, "id"))
    plain = best_ms(lambda: orjson.dumps(answer.arrays, option=orjson.OPT_SERIALIZE_NUMPY))
    show("encode the answer / orjson.dumps of its arrays", f"{encode / plain:.2f}", "<= 2")
    tail = vertices.astype("<f4").tobytes() + faces.astype("<i4").tobytes()
    head = orjson.dumps(
        {
            "inputs": [
                _spec("vertices", vertices, "FP32", 4),
                _spec("faces", faces, "INT32", 4),
            ]
        }
    )
    binary = best_ms(lambda: oip.read_infer(head + tail, str(len(head)), 1 << 26))
    raw = best_ms(lambda: _json_tensors(body))
    show("OIP binary tensors / JSON arrays, bytes to arrays", f"{binary / raw:.3f}", "<= 0.15")


def _spec(name: str, array: np.ndarray, kind: str, size: int) -> dict[str, Any]:
    parameters = {"binary_data_size": array.size * size}
    return {"name": name, "shape": list(array.shape), "datatype": kind, "parameters": parameters}


def _json_tensors(body: bytes) -> None:
    document = Skimmed(body)
    mesh = document.root["mesh"]
    document.matrix(mesh["vertices"], "vertices", 3, 10**6, kind="f")
    document.matrix(mesh["faces"], "faces", 3, 10**6, kind="i")
    document.check_shapes()


async def engine_rate(settings: Settings, model: Model, seconds: float) -> float:
    """Graphs per second of the engine alone, with 64 callers."""
    engine = Engine(settings, Metrics())
    engine.start()
    graphs = [
        label_graph(g["num_nodes"], g["edges"], g["features"], g["positions"]) for g in digits()
    ]
    done = 0
    end = time.monotonic() + seconds

    async def caller(number: int) -> None:
        nonlocal done
        while time.monotonic() < end:
            await engine.predict(model, graphs[number], 1, deadline=end + 60)
            done += 1

    await asyncio.gather(*(caller(number) for number in range(64)))
    await engine.stop()
    return done / seconds


def engines(model: Model, settings: Settings, seconds: float) -> None:
    off = settings.model_copy(update={"batching": False, "only": [SMALL]})
    alone = Repository(off, Metrics())
    alone.load_all()
    rates = {
        "batching off": (off, alone.get(SMALL)),
        "express threads, but each graph alone": (off, model),
        "batching on": (settings, model),
    }
    found = [uvloop.run(engine_rate(*each, seconds)) for each in rates.values()]
    for name, rate in zip(rates, found, strict=True):
        show(f"engine, 75-node graphs, {name}", f"{rate:.0f} /s")
    show("on / off", f"{found[-1] / found[0]:.2f}", ">= 5")
    show("on / each alone on the same threads", f"{found[-1] / found[1]:.2f}")


class Server:
    """The service in its own process."""

    def __init__(self, models: Path, **changes: Any) -> None:
        fields = {"models": str(models), "port": 0, "log_level": "info", **changes}
        code = (
            "import sys; from service.server import run; from service.settings import Settings; "
            f"sys.exit(run(Settings(**{fields!r})))"
        )
        started = time.perf_counter()
        self.child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        assert self.child.stderr is not None
        for line in self.child.stderr:
            found = re.search(r"serving on http://([\d.]+):(\d+)", line)
            if found:
                break
        else:
            raise SystemExit("the service did not start")
        self.host, self.port = found[1], int(found[2])
        self.ready_seconds = time.perf_counter() - started
        threading.Thread(target=self.child.stderr.read, daemon=True).start()

    def resident_mb(self) -> float:
        return self._status("VmRSS")

    def _status(self, name: str) -> float:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def peak_mb(self, route: str, body: bytes, headers: str, status: int) -> float:
        """How far one request raises the memory of the process, its bytes included."""
        Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")  # the peak starts from here
        before = self.resident_mb()
        with socket.create_connection((self.host, self.port)) as caller:
            head = f"POST {route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}"
            caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = caller.makefile("rb").read()
        assert answer.startswith(f"HTTP/1.1 {status}".encode()), answer[:500]
        return self._status("VmHWM") - before

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait(60)

    async def load(
        self, route: str, bodies: list[bytes], callers: int, seconds: float
    ) -> tuple[list[float], list[bytes]]:
        """Seconds of every answered request, and the answers."""
        head = f"POST {route} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        run = await closed_loop(self.port, requests, callers, seconds, answers=True)
        run.insist()
        answered = [answer.partition(b"\r\n\r\n")[2] for answer in run.answers]
        return run.replies["seconds"].tolist(), answered


def quantile(times: list[float], q: float) -> float:
    return sorted(times)[min(len(times) - 1, int(q * len(times)))] * 1000


def service(models: Path, seconds: float) -> None:
    small = [orjson.dumps({"graph": graph}) for graph in digits()]
    vertices, faces = globe()
    mesh = orjson.dumps({"mesh": {"vertices": vertices.round(5).tolist(), "faces": faces.tolist()}})
    rates, alone = {}, {}
    for batching in (False, True):
        server = Server(models, batching=batching)
        asyncio.run(server.load(LABEL, small, 4, 1))
        times, _ = asyncio.run(server.load(LABEL, small, 16, seconds))
        rates[batching] = len(times) / seconds
        times, _ = asyncio.run(server.load(LABEL, small, 1, seconds))
        alone[batching] = quantile(times, 0.5)
        if batching:
            show("ready after", f"{server.ready_seconds:.1f} s", "<= 5")
            measured(server, small, mesh, seconds)
            show("resident memory after all that", f"{server.resident_mb():.0f} MB", "<= 1000")
        server.stop()
    show("16 callers, 75-node graphs, batching off", f"{rates[False]:.0f} /s")
    show("16 callers, 75-node graphs, batching on", f"{rates[True]:.0f} /s")
    show("on / off", f"{rates[True] / rates[False]:.2f}", ">= 2.5")
    show("1 caller p50, on / off", f"{alone[True] / alone[False]:.2f}", "<= 1.10")


def memory(models: Path) -> None:
    """A mesh of 100,000 vertices, read whole and refused for its last face: all but the network."""
    vertices, faces = globe(316, 316)
    faces[-1, -1] = len(vertices)
    mesh = {"vertices": vertices.round(6).tolist(), "faces": faces.tolist()}
    tail = vertices.astype("<f4").tobytes() + faces.astype("<i8").tobytes()
    specs = [_spec("vertices", vertices, "FP32", 4), _spec("faces", faces, "INT64", 8)]
    head = orjson.dumps({"inputs": specs})
    binary = f"Inference-Header-Content-Length: {len(head)}\r\n"
    for what, route, body, headers, status in (
        ("JSON", MATCH, orjson.dumps({"mesh": mesh}), "", 422),
        ("binary tensors", f"/v2/models/{MESH}/infer", head + tail, binary, 400),
    ):
        server = Server(models)
        peak = server.peak_mb(route, body, headers, status)
        size = len(body) / 2**20
        show(
            f"peak memory of {size:.1f} MB of {what}, times its size", f"{peak / size:.1f}", "<= 6"
        )
        server.stop()


def measured(server: Server, small: list[bytes], mesh: bytes, seconds: float) -> None:
    times, answered = asyncio.run(server.load(MATCH, [mesh], 1, 2 * seconds))
    runs = [orjson.loads(answer)["timings_ms"]["run"] / 1000 for answer in answered]
    around = statistics.median(t - r for t, r in zip(times, runs, strict=True))
    show("one mesh over HTTP and JSON, p50", f"{statistics.median(times) * 1000:.1f} ms")
    share = around / statistics.median(runs)
    show("of which around the model run", f"{around * 1000:.2f} ms")
    show("around / model run", f"{share:.1%}", "<= 5%")
    quiet, _ = asyncio.run(server.load(LABEL, small, 4, seconds))

    async def beside() -> list[float]:
        stream = asyncio.create_task(server.load(MATCH, [mesh], 2, seconds))
        times, _ = await server.load(LABEL, small, 4, seconds)
        await stream
        return times

    loud = asyncio.run(beside())
    for name, q, target in (("p50", 0.5, "<= 3"), ("p99", 0.99, "<= 10")):
        ratio = quantile(loud, q) / quantile(quiet, q)
        show(f"small graphs beside a stream of meshes, {name}, times quiet", f"{ratio:.2f}", target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load}")
    print(f"Python {platform.python_version()}, torch {torch.__version__}\n")
    with tempfile.TemporaryDirectory() as folder:
        models = arguments.models or make_bundles(Path(folder))
        settings = Settings(models=models, watch_seconds=0)
        repository = Repository(settings, Metrics())
        repository.load_all()
        codecs(repository.get(MESH))
        engines(repository.get(SMALL), settings, arguments.seconds)
        vertices, faces = globe()
        graph = mesh_graph(vertices, faces)
        bare = repository.get(MESH)
        run = best_ms(lambda: bare.run([graph], 1, "cpu"), 5)
        show("bare model run of one mesh", f"{run:.1f} ms")
        show("of which packing", f"{best_ms(lambda: pack([graph])):.2f} ms")
        memory(models)
        service(models, arguments.seconds)


if __name__ == "__main__":
    main()
