"""nvcc compiles every kernel for every architecture without spilling a register."""

import re
import shutil

import emulated
import pytest

ARCHS = ["75", "80", "86", "89", "90", "100", "120"]
NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="no nvcc: kernels were not compiled for GPUs")


def check(source: emulated.Path, arch: str) -> None:
    report = emulated.ptxas_report(str(NVCC), source, arch)
    assert not re.search(r"\bwarning\b", report), report
    kernels = re.findall(r"Compiling entry function '(\w+)'", report)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", report)]
    assert kernels and len(kernels) == len(spills) == len(registers)
    print(f"{source.name} sm_{arch}: {len(kernels)} kernels, at most {max(registers)} registers")
    assert set(spills) == {("0", "0")}, dict(zip(kernels, spills, strict=True))


@pytest.mark.parametrize("source", emulated.KERNELS, ids=lambda path: path.name)
def test_kernels_compile_without_spills(source):
    check(source, "80")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", emulated.KERNELS, ids=lambda path: path.name)
def test_kernels_compile_without_spills_everywhere(source, arch):
    check(source, arch)
