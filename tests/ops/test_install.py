"""Building the operator with a compiler, without one, without nvcc, and from an archive."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USE = """
import sys, warnings, torch
sys.path.insert(0, ".")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import ops
edge_index, pseudo = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0.25], [0.75]])
plan = ops.spline_plan(edge_index, pseudo, [2], [1], 1, 2)
out = ops.spline_conv(torch.eye(2), torch.arange(8.0).view(2, 2, 2), plan)
assert out.tolist() == [[5.0, 6.0], [1.0, 2.0]], out
cuda = torch._C._dispatch_has_kernel_for_dispatch_key("splinecnn::conv", "CUDA")
print(ops.NATIVE, cuda, *[w.message for w in said if "splinecnn" in str(w.message)])
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources alone; objects already compiled from them are used again."""
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "ops", tmp_path / "ops", ignore=shutil.ignore_patterns("*.so", "*.part"))
    if (ROOT / "build" / "objects").exists():
        shutil.copytree(ROOT / "build" / "objects", tmp_path / "build" / "objects",
                        ignore=shutil.ignore_patterns("*.part"))  # fmt: skip
    return tmp_path


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPLINECNN_", "CUDA", "CXX"))}
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )


def use(folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", USE], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_compiler_plain_torch_is_used_with_one_warning(copy):
    done = build(copy, CXX="no-such-compiler")
    assert done.returncode == 0
    assert "plain torch will be used, slowly: no C++ compiler found" in done.stderr
    said = use(copy)
    assert said.startswith("False False ") and said.count("compiled operator is not installed") == 1
    # and every bad argument is refused in the same words
    (copy / "tests").mkdir()
    for name in ("test_op_checks.py", "op_cases.py"):
        shutil.copy(ROOT / "tests" / "ops" / name, copy / "tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests", "-p", "no:cacheprovider", "-n", "0"],
        cwd=copy, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:]
    assert "compiled operator is not installed" in done.stdout


def test_without_a_compiler_a_required_build_fails(copy):
    done = build(copy, CXX="no-such-compiler", SPLINECNN_REQUIRE_NATIVE="1")
    assert done.returncode != 0
    assert "could not be built: no C++ compiler found" in done.stderr


def test_without_nvcc_the_operator_is_built_for_the_cpu(copy):
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler here")
    done = build(copy, SPLINECNN_REQUIRE_NATIVE="1", CUDA_HOME=str(copy / "nowhere"))
    assert done.returncode == 0, done.stderr
    # on CUDA plain torch stands in, so a kernel is registered there either way
    assert use(copy) == "True True\n"
    assert "but no nvcc found" in build(copy, SPLINECNN_CUDA="1", CUDA_HOME="nowhere").stderr


def test_without_sources_plain_torch_is_used(copy):
    shutil.rmtree(copy / "ops" / "csrc")
    done = build(copy)
    assert done.returncode == 0, done.stderr
    assert "plain torch will be used, slowly: no sources in" in done.stderr
    assert not (copy / "ops" / "_C.so").exists()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, made beside the tree so that nothing is written into it."""
    folder = tmp_path_factory.mktemp("archive")
    skip = shutil.ignore_patterns("*.so", "*.part", "__pycache__", "node_modules")
    for name in ("ops", "model", "service"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "setup.py", "--quiet", "sdist"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return next((folder / "dist").glob("*.tar.gz"))


def test_the_source_distribution_holds_all_that_is_built_and_installed(archive):
    with tarfile.open(archive) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
    wanted = ["setup.py", "pyproject.toml", "LICENSE", "ops/schemas.inc"]
    for pattern in ("ops/csrc/**/*", "ops/*.py", "model/**/*.py", "model/datasets/*.npz",
                    "service/**/*.py", "service/viewer/*.*", "service/viewer/src/**/*",
                    "service/viewer/dist/**/*"):  # fmt: skip
        files = [path for path in ROOT.glob(pattern) if path.is_file()]
        wanted += [
            str(path.relative_to(ROOT)) for path in files if "node_modules" not in path.parts
        ]
    assert set(wanted) <= names, set(wanted) - names


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_source_distribution_can_be_installed_and_used(archive, tmp_path):
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler here")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    # torch and the others are lent by this environment
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "beside.pth").write_text(sysconfig.get_path("purelib"))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPLINECNN_", "PYTHONPATH"))}
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
         "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
         "--ignore-installed", str(archive)],
        check=True, env={**kept, "SPLINECNN_REQUIRE_NATIVE": "1", "SPLINECNN_CUDA": "0"},
    )  # fmt: skip
    use = f"{USE}\nimport service.app, model.datasets; print(ops.__file__)"
    done = subprocess.run([python, "-c", use], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"True True\n{site / 'ops' / '__init__.py'}\n"
    assert not (site / "ops" / "csrc").exists()
