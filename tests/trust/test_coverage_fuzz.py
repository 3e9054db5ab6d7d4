"""Coverage-guided fuzzing of the codecs and the bundle loader, by atheris where it is installed."""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import trimesh
from PIL import Image

from tests.service.service_toys import ball, picture, ring
from tests.trust.trust_corpus import tensors
from tests.trust.trust_results import FULL, ROOT, Row, record

RUNS = 100_000 if FULL else 300
SECONDS = 120 if FULL else 20  # the most one target may take
TARGETS = ("codec", "tensors", "compressed", "mesh", "image", "bundle", "signature")
done: dict[str, tuple[int, int]] = {}

if importlib.util.find_spec("atheris") is None:
    pytest.skip("atheris is not installed: pip install '.[fuzz]'", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    yield
    total = sum(runs for runs, _ in done.values())
    what = ", ".join(f"{name} {runs} ({edges} edges)" for name, (runs, edges) in done.items())
    record("coverage fuzz", [Row(f"atheris, {total} inputs: {what}", "0 crashes", "0")])


def seeds(folder: Path, target: str, previous: Path) -> None:
    """Good inputs to start from."""
    mesh = ball(0)
    good: dict[str, list[bytes]] = {
        "codec": [
            b"\0" + orjson.dumps({"mesh": mesh}),
            b"\1" + orjson.dumps({"graph": ring(4, 4)}),
            b"\2" + orjson.dumps({"graph": picture(4)}),
        ],
        "mesh": [
            bytes([at]) + _as_bytes(trimesh.Trimesh(**mesh, process=False).export(file_type=kind))
            for at, kind in enumerate(("ply", "obj", "off", "stl", "glb"))
        ],
        "bundle": [(previous / "toy-nodes" / "1" / "manifest.json").read_bytes()],
        "compressed": [b"\1" + gzip.compress(b"{}" * 99), b"\0" + zlib.compress(b"{}" * 99)],
        "image": [b"\1" + _digit("PNG"), b"\0" + _digit("JPEG")],
        "signature": [b"ed25519 " + b"A" * 43 + b"= " + b"A" * 86 + b"=="],
    }
    import numpy as np

    arrays = {"vertices": np.float32(mesh["vertices"]), "faces": np.int32(mesh["faces"])}
    body, size = tensors(arrays, {"vertices": "FP32", "faces": "INT32"})
    good["tensors"] = [(size | 1).to_bytes(2, "little") + body, b"\0\0" + body[:size]]
    for number, content in enumerate(good[target]):
        (folder / str(number)).write_bytes(content)


def _digit(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("L", (28, 28), 200).save(out, kind)
    return out.getvalue()


def _as_bytes(data: object) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode()


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_makes_a_decoder_fail_in_a_way_of_its_own(target: str, tmp_path: Path) -> None:
    if not FULL and target != "bundle":
        pytest.skip("the short form fuzzes the bundle loader")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    seeds(corpus, target, Path(__file__).parent / "previous" / "models")
    script = Path(__file__).parent / "fuzz_target.py"
    command = [sys.executable, "-W", "ignore", str(script), target, str(corpus)]
    command += [f"-runs={RUNS}", f"-max_total_time={SECONDS}", "-seed=1", "-max_len=4096"]
    command += [
        "-timeout=30",
        "-print_final_stats=1",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={tmp_path}/",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        command, capture_output=True, env=environment, timeout=SECONDS + 200, cwd=tmp_path
    )
    log = run.stderr.decode("utf-8", "replace") + run.stdout.decode("utf-8", "replace")
    assert run.returncode == 0, log[-3000:]
    counts = re.findall(r"number_of_executed_units: (\d+)", log)
    edges = re.findall(r"cov: (\d+)", log)
    done[target] = (int(counts[-1]), int(edges[-1]))
