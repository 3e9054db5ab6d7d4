"""Compiles the CUDA kernels with g++ for the emulator, and with nvcc; everything once."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
EMULATOR = Path(__file__).parent / "emulator"
KERNELS = sorted((ROOT / "ops/csrc/cuda").glob("*.cu"))
BINDING = [*sorted((ROOT / "ops/csrc/cuda").glob("*.cpp")), EMULATOR / "library.cpp"]
CACHE = ROOT / "build" / "emulator"
TORCH = Path(torch.__file__).parent

FLAGS = [
    "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-DSPLINECNN_EMULATE",
    "-DTORCH_TARGET_VERSION=0x020a000000000000", f"-I{EMULATOR}", f"-I{ROOT / 'ops'}",
    f"-I{ROOT / 'ops/csrc/cuda'}", f"-isystem{TORCH / 'include'}",
    "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-attributes",
]  # fmt: skip
THREAD = ["-g1", "-fsanitize=thread"]
ADDRESS = [
    "-g1",
    "-fsanitize=address,alignment,bounds,shift,signed-integer-overflow,float-cast-overflow",
    "-fno-sanitize-recover=all",
]


def compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


def _headers(source: Path) -> bytes:
    """What a source may include, so that an edit elsewhere compiles nothing again."""
    if source.name == "library.cpp":
        return (ROOT / "ops/schemas.inc").read_bytes()
    csrc = ROOT / "ops/csrc"
    files = [*EMULATOR.glob("*.h"), *(csrc / "cuda").glob("*.h"), csrc / "basis.h"]
    if source in BINDING:
        files.append(csrc / "checks.h")
    return b"".join(path.read_bytes() for path in sorted(files))


def _make(key: bytes, name: str, command: list[str]) -> Path:
    """Runs a command that ends in `-o <file>`, unless its result is there already."""
    made = CACHE / f"{hashlib.sha256(key).hexdigest()[:20]}-{name}"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = made.with_name(f"{os.getpid()}-{made.name}")
        done = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        part.replace(made)  # whole or not at all, also with several workers
    return made


def _compile(source: Path, flags: Iterable[str]) -> Path:
    command = [str(compiler()), *FLAGS, *flags, "-x", "c++", "-c", str(source)]
    key = _headers(source) + source.read_bytes() + repr(command).encode()
    return _make(key, f"{source.name}.o", command)


def link(jobs: Iterable[tuple[Path, list[str]]], name: str, *flags: str) -> Path:
    """An executable or library of sources, each with its flags, compiled side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [str(made) for made in pool.map(lambda job: _compile(*job), jobs)]
    command = [str(compiler()), *objects, *flags]
    return _make(repr(command).encode(), name, command)


def link_program(source: str, flags: list[str], kernels: bool = False) -> Path:
    """One of the emulator's own programs, with the kernels or without."""
    sources = [EMULATOR / source, *(KERNELS if kernels else [])]
    return link([(path, flags) for path in sources], Path(source).stem, *flags)


def link_library(name: str, tensor_cores: bool) -> Path:
    """The emulated operators as a torch library that calls itself `name`."""
    off = [] if tensor_cores else ["-DSPLINECNN_NO_TENSOR_CORES"]
    jobs = [(path, off if "product.h" in path.read_text() else []) for path in KERNELS]
    jobs += [(path, [f"-DSPLINECNN_EMULATE_AS={name}"]) for path in BINDING]
    return link(jobs, f"{name}.so", "-shared", f"-L{TORCH / 'lib'}", "-ltorch_cpu")


def ptxas_report(nvcc: str, source: Path, arch: str) -> str:
    """What the assembler says of each kernel of a file: registers, shared memory, spills."""
    command = [nvcc, "-std=c++17", "-O3", "-cubin", f"-arch=sm_{arch}", "-Xptxas", "-v"]
    key = _headers(source) + source.read_bytes() + repr(command).encode()
    report = CACHE / f"{hashlib.sha256(key).hexdigest()[:20]}-{source.name}-{arch}.txt"
    if not report.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [*command, str(source), "-o", os.devnull], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        report.write_text(done.stderr)
    return report.read_text()


def run(program: Path, *arguments: str, order: str = "forward") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "EMULATOR_ORDER": order,
        "TSAN_OPTIONS": "halt_on_error=0 exitcode=66",
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    # ThreadSanitizer wants its address space where it expects it
    command = ["setarch", "-R"] if shutil.which("setarch") else []
    return subprocess.run(
        [*command, str(program), *arguments], capture_output=True, text=True, env=environment
    )
