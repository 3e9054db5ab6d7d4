"""Builds the operator's extension, ops/_C.so: CPU always, CUDA where nvcc is.

Environment: SPLINECNN_CUDA=auto|0|1, SPLINECNN_CUDA_ARCHS="75;80;…", SPLINECNN_REQUIRE_NATIVE=1
(a failed build is an error), SPLINECNN_SKIP_NATIVE=1 (build nothing), CXX, CUDA_HOME,
SPLINECNN_SANITIZE=address|undefined|thread (CPU kernels for `make sanitize`).
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "ops" / "csrc"
OBJECTS = HERE / "build" / "objects"
CUDA_ARCHS = "75;80;86;89;90;100;120"
X86 = platform.machine().lower() in ("x86_64", "amd64")
# each SIMD level is one file; which of them runs is chosen at run time
SIMD_FLAGS = {
    "avx2.cpp": ["-march=x86-64-v3"],
    "avx512.cpp": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}
# after -O3, so that reports name the line; a report of undefined behaviour ends the process
SANITIZE_FLAGS = {
    "address": ["-O1", "-g1", "-fsanitize=address"],
    "undefined": ["-O1", "-g1", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=vptr",
                  "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-g1", "-fsanitize=thread"],
}  # fmt: skip


class NotBuilt(Exception):
    """Why there is no extension; plain torch is used instead."""


def find_compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise NotBuilt(f"no C++ compiler found ({wanted or 'g++, c++, clang++'})")


def find_torch_headers() -> Path:
    """Without importing torch; under build isolation they are in the same interpreter's site."""
    spec = importlib.util.find_spec("torch")
    places = [Path(spec.origin).parent] if spec and spec.origin else []
    places += [Path(sysconfig.get_path(key)) / "torch" for key in ("purelib", "platlib")]
    for place in places:
        if (place / "include" / "torch" / "csrc" / "stable").is_dir():
            return place / "include"
    raise NotBuilt("torch is not installed, install it first")


def find_nvcc() -> str | None:
    """The one in CUDA_HOME if that is set, else the first of the usual places."""
    site = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvcc"
    places = [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc", site]
    if home := os.environ.get("CUDA_HOME"):
        places = [f"{home}/bin/nvcc"]
    return next((str(place) for place in places if place and Path(place).exists()), None)


def find_cudart(nvcc: str) -> Path:
    """The folder of the static runtime; nvcc itself knows best, it may be a wrapper script."""
    command = [nvcc, "--dryrun", "-x", "cu", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    tops = [line.split("TOP=", 1)[1].strip() for line in said.splitlines() if "TOP=" in line]
    for top in tops:
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            if (Path(top) / folder / "libcudart_static.a").exists():
                return Path(top, folder).resolve()
    raise NotBuilt(f"no libcudart_static.a beside {nvcc}")


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotBuilt(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")


def compile_source(job: tuple[Path, list[str]]) -> str:
    """The object of a source, made only if it, a header near it or a flag has changed."""
    source, command = job
    key = hashlib.sha256(repr(command).encode())
    for folder in sorted({SOURCES, source.parent, HERE / "ops"}):
        for header in sorted(p for p in folder.iterdir() if p.suffix in (".h", ".inc", ".cuh")):
            key.update(header.read_bytes())
    key.update(source.read_bytes())
    name = "-".join(source.relative_to(SOURCES).parts)  # cpu and cuda share file names
    made = OBJECTS / f"{name}-{key.hexdigest()[:16]}.o"
    if not made.exists():
        for stale in OBJECTS.glob(f"{name}-*.o"):
            stale.unlink(missing_ok=True)
        part = made.with_suffix(f".{os.getpid()}.part")
        run([*command, "-c", str(source), "-o", str(part)])
        part.replace(made)
    return str(made)


def cpu_jobs(cxx: str, include: Path, extra: list[str]) -> list[tuple[Path, list[str]]]:
    common = [cxx, "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast"]
    # only the stable ABI is used, as torch 2.10 has it: one build serves every later torch
    common += ["-DTORCH_TARGET_VERSION=0x020a000000000000", f"-isystem{include}"]
    common += ["-Wall", "-Wextra", "-Wno-attributes", *extra]
    if X86:
        common.append("-DSPLINECNN_X86")
    sources = sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("cpu/*.cpp")])
    if not sources:  # nothing would link into a library that cannot be loaded
        raise NotBuilt(f"no sources in {SOURCES}")
    return [
        (path, [*common, *SIMD_FLAGS.get(path.name, [])])
        for path in sources
        if X86 or path.name not in SIMD_FLAGS
    ]


def cuda_jobs(
    nvcc: str, cxx: str, cpu_command: list[str]
) -> tuple[list[tuple[Path, list[str]]], list[str]]:
    archs = os.environ.get("SPLINECNN_CUDA_ARCHS", CUDA_ARCHS).split(";")
    command = [nvcc, "-std=c++17", "-O3", "-ccbin", cxx, "-Xcompiler", "-fPIC,-fvisibility=hidden"]
    for arch in archs:
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-gencode", f"arch=compute_{archs[-1]},code=compute_{archs[-1]}"]
    command += ["--threads", str(os.cpu_count() or 1)]
    jobs = [(path, command) for path in sorted(SOURCES.glob("cuda/*.cu"))]
    jobs += [(path, cpu_command) for path in sorted(SOURCES.glob("cuda/*.cpp"))]
    link = [f"-L{find_cudart(nvcc)}", "-lcudart_static", "-lrt", "-ldl", "-lpthread"]
    return jobs, link


def build(target: Path) -> None:
    cxx, include = find_compiler(), find_torch_headers()
    OBJECTS.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    link = SANITIZE_FLAGS.get(os.environ.get("SPLINECNN_SANITIZE", ""), [])
    jobs = cpu_jobs(cxx, include, link)
    wish = os.environ.get("SPLINECNN_CUDA", "auto")
    nvcc = None if wish == "0" or not any(SOURCES.glob("cuda/*.cu")) else find_nvcc()
    if wish == "1" and nvcc is None:
        raise NotBuilt("SPLINECNN_CUDA=1, but no nvcc found")
    if nvcc:
        more, libraries = cuda_jobs(nvcc, cxx, jobs[0][1])
        jobs, link = jobs + more, link + libraries
    with (OBJECTS / "lock").open("w") as lock, ThreadPoolExecutor(os.cpu_count()) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once would remove each other's objects
        objects = list(pool.map(compile_source, jobs))
        link_objects(cxx, objects, link, target)


def link_objects(cxx: str, objects: list[str], link: list[str], target: Path) -> None:
    # an empty stand-in with the right soname: nothing of torch is needed to link against it
    stub = OBJECTS / "libtorch_cpu.so"
    run([cxx, "-shared", "-Wl,-soname,libtorch_cpu.so", "-x", "c++", os.devnull, "-o", str(stub)])
    part = target.with_suffix(f".{os.getpid()}.part")
    libraries = ["-Wl,--no-as-needed", f"-L{OBJECTS}", "-ltorch_cpu", "-Wl,--as-needed", *link]
    strip = [] if "-g1" in link else ["-s"]
    run([cxx, "-shared", *objects, "-o", str(part), *libraries, "-Wl,--exclude-libs,ALL", *strip])
    part.replace(target)  # whole or not at all, also while another process has the old one open


class Build(build_ext):
    def _target(self) -> Path:
        return (HERE if self.inplace else Path(self.build_lib)) / "ops" / "_C.so"

    def run(self) -> None:
        if os.environ.get("SPLINECNN_SKIP_NATIVE") == "1":
            return
        try:
            build(self._target())
        except NotBuilt as why:
            if os.environ.get("SPLINECNN_REQUIRE_NATIVE") == "1":
                raise SystemExit(f"splinecnn: the operator could not be built: {why}") from None
            print(f"splinecnn: plain torch will be used, slowly: {why}", file=sys.stderr)

    def get_outputs(self) -> list[str]:
        return [str(self._target())] if self._target().exists() else []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]  # bound to the platform, not to a Python


setup(
    ext_modules=[Extension("ops._C", [])],
    cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
)
