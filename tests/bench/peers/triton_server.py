"""Real Triton with its Python backend, out of the nvidia-pytriton wheel."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

_TENSORS = {
    "mnist-superpixels": (
        [("features", "FP32", 2), ("positions", "FP32", 2), ("edge_index", "INT64", 2)],
        [("probabilities", "FP32", 1)],
    ),
    "bodies": (
        [("vertices", "FP32", 2), ("faces", "INT64", 2)],
        [("correspondence", "INT64", 1), ("confidence", "FP32", 1)],
    ),
}


def prepare(environment: Path, repository: Path, model: str, port: int) -> tuple[list[str], dict]:
    """The command, and the variables it needs."""
    shutil.rmtree(repository, ignore_errors=True)
    (repository / model / "1").mkdir(parents=True)
    shutil.copy(HERE / "triton" / "model.py", repository / model / "1")
    (repository / model / "config.pbtxt").write_text(configuration(model))
    packages = environment / "lib" / f"python{VERSION}" / "site-packages"
    home = packages / "pytriton" / "tritonserver"
    backends = repository.with_suffix(".backends") / "python"
    shutil.rmtree(backends.parent, ignore_errors=True)
    shutil.copytree(home / "backends" / "python", backends)
    stub = home / "python_backend_stubs" / VERSION / "triton_python_backend_stub"
    shutil.copy(stub, backends)
    for program in (backends / stub.name, home / "bin" / "tritonserver"):
        program.chmod(0o755)
    command = [
        str(home / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends.parent}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--http-thread-count=8",
    ]
    libraries = [home / "external_libs", packages / "nvidia_pytriton.libs"]
    return command, {
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "PYTHONPATH": f"{HERE}:{packages}",
    }


def configuration(model: str) -> str:
    """Graphs of any size, batched by Triton: every request is one row of a ragged batch."""
    inputs, outputs = _TENSORS[model]
    lines = [f'name: "{model}"', 'backend: "python"', "max_batch_size: 16", "dynamic_batching {}"]
    for name, kind, rank in inputs:
        dims = ", ".join(["-1"] * rank)
        facts = f'name: "{name}" data_type: TYPE_{kind} dims: [{dims}] allow_ragged_batch: true'
        lines.append(f"input {{ {facts} }}")
    for name, kind, _ in outputs:
        lines.append(f'output {{ name: "{name}" data_type: TYPE_{kind} dims: [-1] }}')
    lines.append("instance_group [{ kind: KIND_CPU count: 1 }]")
    return "\n".join(lines) + "\n"
