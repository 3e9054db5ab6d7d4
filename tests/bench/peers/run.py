"""The same TorchScript models behind other servers: outputs compared, then the same load on all.

    python tests/bench/peers/run.py --models bundles --environments DIR [--only litserve,triton]

Every peer lives in its own environment below DIR, made here if it is missing: torch first, then
the peer. Each is written as its own pages would have it, its batching on where graphs of mixed
size allow. One process serves, one thread runs the network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from load import Request, body_of, load  # noqa: E402
from serve import MESH, SMALL, digits, globe  # noqa: E402

PACKAGES = {
    "litserve": ["litserve"],
    "bentoml": ["bentoml"],
    "mlserver": ["mlserver"],
    "ray": ["ray[serve]==2.60.0"],
    "triton": ["nvidia-pytriton==0.7.0"],
}
OTHERS = [name for name in PACKAGES if name != "triton"]
JSON = {"Content-Type": "application/json"}
Arrays = dict[str, np.ndarray]


def graphs() -> list[Arrays]:
    """Graphs of 51 to 75 nodes, every edge in both directions, as networks take them."""
    made = []
    for graph in digits():
        pairs = np.asarray(graph["edges"])
        pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]])[:, ::-1], axis=0)[:, ::-1]
        made.append(
            {
                "features": np.asarray(graph["features"], np.float32),
                "positions": np.asarray(graph["positions"], np.float32),
                "edge_index": np.ascontiguousarray(pairs.T),
            }
        )
    return made


def meshes() -> list[Arrays]:
    vertices, faces = globe()
    return [{"vertices": vertices.round(5).astype(np.float32), "faces": faces}]


def plain(model: str, arrays: Arrays) -> dict[str, Any]:
    """The request as our own JSON has it."""
    if model == MESH:
        vertices = [[float(f"{x:.5f}") for x in row] for row in arrays["vertices"].tolist()]
        return {"mesh": {"vertices": vertices, "faces": arrays["faces"].tolist()}}
    rows = {
        name: [[float(f"{x:.4f}") for x in row] for row in arrays[name].tolist()]
        for name in ("features", "positions")
    }
    edges = arrays["edge_index"].T.tolist()
    count = len(rows["features"])
    return {"graph": {"num_nodes": count, "edges": edges, "undirected": False, **rows}}


def tensors(arrays: Arrays, *, binary: bool, batch: bool) -> tuple[bytes, dict[str, str]]:
    """The request in the Open Inference Protocol."""
    inputs, tail = [], b""
    for name, array in arrays.items():
        shape = [1, *array.shape] if batch else list(array.shape)
        kind = "INT64" if array.dtype == np.int64 else "FP32"
        spec: dict[str, Any] = {"name": name, "shape": shape, "datatype": kind}
        if binary:
            spec["parameters"] = {"binary_data_size": array.nbytes}
            tail += array.tobytes()
        else:
            spec["data"] = array.ravel().tolist()
        inputs.append(spec)
    asked: dict[str, Any] = {"inputs": inputs}
    if not binary:
        return orjson.dumps(asked), JSON
    asked["parameters"] = {"binary_data_output": True}
    head = orjson.dumps(asked)
    return head + tail, {"Inference-Header-Content-Length": str(len(head))}


def read_answer(answer: bytes) -> Arrays:
    """The arrays of an answer in any of the shapes the servers use."""
    body = body_of(answer)
    length = None
    for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        if line.lower().startswith(b"inference-header-content-length:"):
            length = int(line.split(b":")[1])
    said = json.loads(body if length is None else body[:length])
    if isinstance(said, list):
        said = said[0]
    if "outputs" not in said:
        return {n: np.asarray(v) for n, v in said.items() if isinstance(v, list)}
    found, at = {}, length or 0
    for output in said["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[output["name"]] = np.asarray(output["data"]).ravel()
        else:
            kind = {"INT64": np.int64, "FP32": np.float32}[output["datatype"]]
            found[output["name"]] = np.frombuffer(body[at : at + size], kind)
            at += size
    return found


@dataclass
class Server:
    """A server in processes of its own, found again by a mark in their environment."""

    name: str
    model: str
    path: str
    binary: bool = False
    batch: bool = False
    v2: bool = False

    def start(self, command: list[str], port: int, variables: dict[str, str], log: Path) -> None:
        self.port = port
        self._mark = uuid.uuid4().hex
        environment = {**os.environ, **variables, "PEER_MARK": self._mark}
        with log.open("w") as file:
            self._child = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        until = time.monotonic() + 240
        probe = self.requests()[:1]
        while time.monotonic() < until:
            if self._child.poll() is not None:
                self.stop()
                raise RuntimeError(f"{self.name} ended: {log.read_text()[-600:]}")
            try:
                load(port, probe, 1, 0)
                return
            except (OSError, RuntimeError):
                time.sleep(0.5)
        self.stop()
        raise RuntimeError(f"{self.name} never answered: {log.read_text()[-600:]}")

    def requests(self) -> list[Request]:
        made = []
        for arrays in graphs() if self.model == SMALL else meshes():
            if self.v2:
                body, headers = tensors(arrays, binary=self.binary, batch=self.batch)
            else:
                said: Any = plain(self.model, arrays)
                if self.name == "bentoml":
                    said = {"requests": [said]}
                body, headers = orjson.dumps(said), JSON
            made.append(Request.post(self.path, body, headers))
        return made

    def cpu_seconds(self) -> float:
        """Of all processes that carry the mark, ended children included."""
        total = 0
        for pid in self._pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += sum(int(fields[at]) for at in (11, 12, 13, 14))
        return total / os.sysconf("SC_CLK_TCK")

    def _pids(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"PEER_MARK={self._mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def stop(self) -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._pids():
                try:
                    os.kill(pid, how)
                except ProcessLookupError:
                    continue
            until = time.monotonic() + 8
            while self._pids() and time.monotonic() < until:
                time.sleep(0.2)
        self._child.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_environment(name: str, root: Path) -> Path:
    """The python of a peer's own environment."""
    python = root / name / "bin" / "python"
    if not (root / name / ".done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(root / name)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "torch==2.13.0", "numpy"], check=True)
        subprocess.run([*pip, *PACKAGES[name]], check=True)
        (root / name / ".done").touch()
    return python


def launch(name: str, model: str, models: Path, root: Path) -> Server:
    port = free_port()
    variables = {
        "PEER_MODEL": model,
        "PEER_BUNDLES": str(models.resolve()),
        "PEER_LIBRARY": str((HERE.parents[2] / "ops" / "_C.so").resolve()),
        "PEER_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE),
    }
    log = root / f"{name.replace(' /', '-').replace(' ', '-')}-{model}.log"
    if name.startswith("ours"):
        fields = {"models": str(models), "port": port, "threads": 1, "watch_seconds": 0}
        code = (
            "import sys; from service.server import run; from service.settings import Settings; "
            f"sys.exit(run(Settings(**{fields!r})))"
        )
        variables["PYTHONPATH"] = str(HERE.parents[2])
        v2 = name == "ours /v2"
        path = "/v1/graph-label" if model == SMALL else "/v1/correspondence"
        path = f"/v2/models/{model}/infer" if v2 else path
        path = path if v2 else f"{path}?model={model}"
        server = Server(name, model, path, binary=True, v2=v2)
        server.start([sys.executable, "-W", "ignore", "-c", code], port, variables, log)
        return server
    if name.startswith("triton"):
        import triton_server

        make_environment("triton", root)
        repository = root / f"triton-{model}"
        command, more = triton_server.prepare(root / "triton", repository, model, port)
        binary = name == "triton"
        path = f"/v2/models/{model}/infer"
        server = Server(name, model, path, binary=binary, batch=True, v2=True)
        server.start(command, port, {**variables, **more}, log)
        return server
    python = str(make_environment(name, root))
    if name == "mlserver":
        folder = root / f"mlserver-{model}"
        folder.mkdir(exist_ok=True)
        implementation = {"name": model, "implementation": "peer_runtime.Peer"}
        (folder / "model-settings.json").write_text(json.dumps(implementation))
        ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
        ports |= {"host": "127.0.0.1", "parallel_workers": 0}
        (folder / "settings.json").write_text(json.dumps(ports))
        variables["PYTHONPATH"] += f":{HERE / 'mlserver_model'}"
        server = Server(name, model, f"/v2/models/{model}/infer", v2=True)
        command = [str(Path(python).with_name("mlserver")), "start", str(folder)]
    elif name == "bentoml":
        server = Server(name, model, "/predict")
        bento = str(Path(python).with_name("bentoml"))
        command = [bento, "serve", "bentoml_app:Peer", "--host", "127.0.0.1", "-p", str(port)]
        command += ["--working-dir", str(HERE)]
    else:
        server = Server(name, model, "/predict")
        command = [python, str(HERE / f"{name}_app.py"), str(port)]
    server.start(command, port, variables, log)
    return server


def same(ours: list[Arrays], theirs: list[Arrays]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for name, array in other.items():
            if name in one and array.dtype.kind == "f":
                np.testing.assert_allclose(array.ravel(), one[name].ravel(), atol=1e-5)
            elif name in one:
                assert np.mean(array.ravel() == one[name].ravel()) > 0.999
        assert set(one) & set(other), (list(one), list(other))


def answers_of(server: Server) -> list[Arrays]:
    """One answer per request, in order, asked one by one and then all at once."""
    requests = server.requests()
    alone = [read_answer(load(server.port, [each], 1, 0).answers[0]) for each in requests[:8]]
    if server.model == SMALL:
        for _ in range(3):  # in company, where a server may mix them up
            crowd = load(server.port, requests[:8], 8, 0.3).answers
            for answer in crowd:
                row = read_answer(answer)["probabilities"].ravel()
                near = [
                    np.allclose(row, each["probabilities"].ravel(), atol=1e-4) for each in alone
                ]
                assert any(near), f"{server.name} mixed up answers"
    return alone


def measure(
    name: str, models: Path, root: Path, seconds: float, truth: dict[str, Any]
) -> list[str]:
    row = []
    server = launch(name, SMALL, models, root)
    try:
        answers = answers_of(server)
        same(truth.setdefault(SMALL, answers), answers)
        requests = server.requests()
        load(server.port, requests, 16, 1)
        used = server.cpu_seconds()
        crowd = load(server.port, requests, 16, seconds)
        spent = (server.cpu_seconds() - used) / len(crowd.seconds)
        alone = load(server.port, requests, 1, seconds)
    finally:
        server.stop()
    row += [f"{crowd.rate:.0f}", f"{spent * 1e6:.0f}"]
    row += [f"{alone.quantile_ms(0.5):.2f}", f"{alone.quantile_ms(0.99):.2f}"]
    row.append(f"{around_a_mesh(name, models, root, seconds):.2f}")
    server = launch(name, MESH, models, root)
    try:
        answers = answers_of(server)
        same(truth.setdefault(MESH, answers), answers)
        load(server.port, server.requests(), 1, 0)
        outcome = load(server.port, server.requests(), 1, 6 * seconds)
    finally:
        server.stop()
    row += [f"{outcome.quantile_ms(0.5):.0f}", f"{outcome.quantile_ms(0.99):.0f}"]
    return row


class Still(torch.nn.Module):
    """In place of the mesh's network: the same tensors in and out, and no work."""

    def forward(
        self, vertices: torch.Tensor, faces: torch.Tensor, ptr: torch.Tensor, top_k: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.arange(vertices.size(0))[:, None].expand(-1, top_k).contiguous()
        return index, torch.ones(vertices.size(0), top_k)


def still_bundle(models: Path, folder: Path) -> Path:
    """The mesh's bundle with a network that costs nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(models / MESH, folder / MESH)
    bundle = folder / MESH / "1"
    torch.jit.script(Still()).save(str(bundle / "model.ts"))
    manifest = json.loads((bundle / "manifest.json").read_text())
    digest = hashlib.sha256((bundle / "model.ts").read_bytes()).hexdigest()
    manifest["files"]["model.ts"] = digest
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return folder


def around_a_mesh(name: str, models: Path, root: Path, seconds: float) -> float:
    """Milliseconds of CPU per mesh beyond its network: measured with one that costs nothing."""
    server = launch(name, MESH, still_bundle(models, root / "still"), root)
    try:
        load(server.port, server.requests(), 1, 1)
        began, used = time.monotonic(), server.cpu_seconds()
        time.sleep(2)
        idle = (server.cpu_seconds() - used) / (time.monotonic() - began)
        used = server.cpu_seconds()
        outcome = load(server.port, server.requests(), 1, seconds)
        busy = server.cpu_seconds() - used
    finally:
        server.stop()
    return 1000 * (busy - idle * outcome.wall) / len(outcome.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("bundles"))
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument(
        "--only", default=",".join(["ours", "ours /v2", "triton", "triton JSON", *OTHERS])
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    arguments.environments = arguments.environments.resolve()
    arguments.environments.mkdir(parents=True, exist_ok=True)
    truth: dict[str, Any] = {}
    print(f"load {os.getloadavg()[0]:.1f}\n")
    columns = ["server", "graphs/s, 16 callers", "CPU µs per graph", "graph p50 ms", "p99"]
    columns += ["CPU ms per mesh beyond", "mesh p50 ms", "p99"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for name in arguments.only.split(","):
        try:
            row = measure(name, arguments.models, arguments.environments, arguments.seconds, truth)
        except (RuntimeError, AssertionError, subprocess.CalledProcessError) as error:
            row = [f"did not run: {str(error).strip().splitlines()[-1][:120]}"]
        print(f"| {' | '.join([name, *row])} |", flush=True)


if __name__ == "__main__":
    main()
