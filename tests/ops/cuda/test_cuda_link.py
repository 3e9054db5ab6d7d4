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
