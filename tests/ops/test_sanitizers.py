"""The CPU kernels under Address-, UndefinedBehavior- and ThreadSanitizer, and planted bugs."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CXX = shutil.which(os.environ.get("CXX", "g++"))
REPORT = {
    "address": "AddressSanitizer: heap-buffer-overflow",
    "undefined": "runtime error: left shift",
    "thread": "ThreadSanitizer: data race",
}
# not of the CPU kernels: builds of its own, and kernels that have their own sanitized tests
NOT_HERE = ["cuda", "test_install.py", "test_sanitizers.py"]
pytestmark = pytest.mark.skipif(CXX is None, reason="no C++ compiler")


def library(name: str) -> str:
    return subprocess.run(
        [str(CXX), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def run(kind: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with a sanitizer loaded before all else; torch itself is not built for one."""
    runtime = {"address": ["libasan.so"], "undefined": [], "thread": ["libtsan.so"]}[kind]
    preload = [library(name) for name in [*runtime, "libstdc++.so"]]  # its exceptions are watched
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(preload),
        "OMP_NUM_THREADS": "3",
        "OMP_WAIT_POLICY": "passive",  # slow enough without threads that wait at full speed
        "PYTHONPATH": str(folder),
        # the interpreter keeps what it has allocated, and says so to nobody
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # torch's threads are not instrumented: what they copy and wait for is not seen
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 exitcode=66",
    }
    # ThreadSanitizer wants its address space where it expects it
    command = ["setarch", "-R"] if kind == "thread" and shutil.which("setarch") else []
    return subprocess.run(
        [*command, sys.executable, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip


def flags(kind: str) -> list[str]:
    """Those of setup.py, which must not be run to be read."""
    source = (ROOT / "setup.py").read_text().split("SANITIZE_FLAGS = ")[1].split("\n}")[0] + "}"
    found: list[str] = eval(source)[kind]
    return found


CALL = """
import ctypes, sys, torch
planted = ctypes.CDLL(sys.argv[1])
print(getattr(planted, "planted_" + sys.argv[2])(1000))
"""


# one of them in every run: it is seconds, and shows that the others would see something
SLOW = (pytest.param(kind, marks=pytest.mark.slow) for kind in ("undefined", "thread"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["address", *SLOW])
def test_planted_bugs_are_caught(kind, tmp_path):
    if kind == "address" and not Path(library("libasan.so")).exists():
        pytest.skip("no AddressSanitizer here")
    torch = Path(str(importlib.util.find_spec("torch").origin)).parent
    made = tmp_path / "planted.so"
    subprocess.run(
        [str(CXX), "-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", *flags(kind),
         "-DTORCH_TARGET_VERSION=0x020a000000000000", f"-isystem{torch / 'include'}",
         str(HERE / "planted.cpp"), "-o", str(made), f"-L{torch / 'lib'}", "-ltorch_cpu"],
        check=True,
    )  # fmt: skip
    right = run(kind, tmp_path, "-c", CALL, str(made), "none")
    assert right.returncode == 0 and right.stdout == "332833500\n", right.stderr[-4000:]
    assert "Sanitizer" not in right.stderr and "runtime error" not in right.stderr
    wrong = run(kind, tmp_path, "-c", CALL, str(made), kind)
    assert wrong.returncode != 0, wrong.stdout
    assert REPORT[kind] in wrong.stderr and "planted.cpp" in wrong.stderr, wrong.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", REPORT)
def test_every_test_of_the_kernels_is_clean(kind):
    folder = ROOT / "build" / "sanitize" / kind
    for name in ("ops", "tests/ops"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "*.part", *NOT_HERE)
        )
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=folder, check=True,
        env={**os.environ, "SPLINECNN_SANITIZE": kind, "SPLINECNN_CUDA": "0",
             "SPLINECNN_REQUIRE_NATIVE": "1"},
    )  # fmt: skip
    done = run(kind, folder, "-m", "pytest", "tests/ops", "-x", "-p", "no:cacheprovider", "-s")
    said = done.stdout[-2000:] + done.stderr[-6000:]
    assert done.returncode == 0 and " passed" in done.stdout, said
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, said
    print(kind, done.stdout.splitlines()[-1])
