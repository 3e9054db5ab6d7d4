"""The CUDA image on a machine without a GPU: what its operator holds, and how it refuses (slow).

`TARGET=cuda make test-image` builds and runs this.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from deploy_files import ROOT, find, run, succeed
from test_image import docker, run_once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

IMAGE = os.environ.get("IMAGE", "")
# as much of a driver as the CUDA runtime asks for its version
OLD_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 12020; return 0; }
"""


@pytest.fixture(scope="module", autouse=True)
def image() -> Any:
    if "cuda" not in IMAGE:
        pytest.skip("IMAGE is not the CUDA image (TARGET=cuda make test-image)")
    docker("image", "inspect", IMAGE)


def refusal(*arguments: str) -> str:
    """The one line with which the service refuses to start."""
    done = run_once(*arguments, IMAGE)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_without_a_device_it_refuses_in_one_line() -> None:
    line = refusal()
    assert line.startswith("splinecnn: device cuda was asked for, but no usable NVIDIA driver")
    assert "--gpus all" in line


def test_an_old_driver_is_named_with_what_is_needed(tmp_path: Path) -> None:
    source = tmp_path / "driver.c"
    source.write_text(OLD_DRIVER)
    compiler = find("cc", "a C compiler")
    succeed(compiler, "-shared", "-fPIC", str(source), "-o", str(tmp_path / "libcuda.so.1"))
    tmp_path.chmod(0o755)
    line = refusal("--volume", f"{tmp_path}:/driver:ro", "--env", "LD_LIBRARY_PATH=/driver")
    assert "the NVIDIA driver is too old: it has CUDA 12.2, this PyTorch needs 13.0" in line


def test_its_operator_runs_on_the_cpu_when_asked() -> None:
    code = "import ops, torch; assert ops.NATIVE; print(torch.version.cuda)"
    assert run_once(IMAGE, "python", "-c", code).stdout.startswith("13.")


def test_its_operator_holds_every_architecture(tmp_path: Path) -> None:
    dump = find("cuobjdump", "pip install nvidia-cuda-cuobjdump")
    held = docker("create", "--network", "none", IMAGE)
    try:
        docker("cp", "--quiet", f"{held}:/app/ops/_C.so", str(tmp_path / "_C.so"))
    finally:
        run("docker", "rm", held)
    wanted = re.search(r'^CUDA_ARCHS = "(.*)"$', (ROOT / "setup.py").read_text(), flags=re.M)
    assert wanted
    archs = wanted[1].split(";")
    binaries = succeed(dump, "--list-elf", str(tmp_path / "_C.so"))
    assert set(re.findall(r"sm_(\d+)", binaries)) == set(archs)
    text = succeed(dump, "--list-ptx", str(tmp_path / "_C.so"))
    assert set(re.findall(r"sm_(\d+)", text)) == {archs[-1]}, "newer devices compile this"
