"""The whole extension linked for every architecture, as users of a GPU get it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ARCHS = ["75", "80", "86", "89", "90", "100", "120"]


LOAD = """
import ast, pathlib, torch
torch.ops.load_library(pathlib.Path("ops/_C.so").resolve())
schemas = ast.literal_eval("[" + pathlib.Path("ops/schemas.inc").read_text() + "]")
has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
names = [schema.split("(")[0] for schema in schemas]
print(*[name for name in names if has_kernel(f"splinecnn::{name}", "CUDA")])
import ops
assert ops.NATIVE and ops.CUDA_NATIVE
assert ops.spline_basis(torch.tensor([[0.25]]), [2], [1])[0].tolist() == [[0.75, 0.25]]
"""


def cuobjdump() -> str | None:
    """The toolkit's, or that of the package nvidia-cuda-cuobjdump."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) / "cu13/bin/cuobjdump" for place in spec.submodule_search_locations or []
              ] if spec else []  # fmt: skip
    found = shutil.which("cuobjdump")
    return found or next((str(place) for place in places if place.exists()), None)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc: nothing to link")
@pytest.mark.skipif(cuobjdump() is None, reason="no cuobjdump: pip install nvidia-cuda-cuobjdump")
def test_one_library_has_every_architecture_and_no_spills(tmp_path):
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "ops", tmp_path / "ops", ignore=shutil.ignore_patterns("*.so", "*.part"))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPLINECNN_")}
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tmp_path, check=True,
        env={**kept, "SPLINECNN_CUDA": "1", "SPLINECNN_REQUIRE_NATIVE": "1"},
    )  # fmt: skip

    def say(what: str) -> str:
        command = [str(cuobjdump()), what, str(tmp_path / "ops" / "_C.so")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    files = len(list((ROOT / "ops/csrc/cuda").glob("*.cu")))
    for arch in ARCHS:
        assert len(re.findall(rf"\.sm_{arch}\.cubin", say("--list-elf"))) == files
    assert len(re.findall(rf"\.sm_{ARCHS[-1]}\.ptx", say("--list-ptx"))) == files
    usage = re.findall(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", say("-res-usage"))
    assert len(usage) % len(ARCHS) == 0 and usage
    assert {(stack, local) for _, stack, local in usage} == {("0", "0")}  # nothing was spilled
    print(f"{len(usage)} kernels, at most {max(int(r) for r, _, _ in usage)} registers")
    # a machine without a GPU can load it: the kernels are there, and the CPU's answer
    done = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=tmp_path, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sources = [path.read_text() for path in (ROOT / "ops/csrc/cuda").glob("*.cpp")]
    written = re.findall(r'impl\("(\w+)"', "".join(sources))
    assert written and sorted(done.stdout.split()) == sorted(written)
