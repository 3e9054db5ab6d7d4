"""Where the files of the deployment lie, and how their checkers are called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parent.parent.parent
DOCKER = ROOT / "docker"
SETTINGS = {f"SPLINECNN_{name.upper()}" for name in Settings.model_fields}
DRAIN_SECONDS = Settings.model_fields["drain_seconds"].default


def find(program: str, package: str) -> str:
    """A checker on PATH or beside this Python; the test is skipped where it is missing."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(program, path=beside)
    if found is None:
        pytest.skip(f"{program} is not installed ({package})")
    return found


def run(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def succeed(*command: str, **more: Any) -> str:
    done = run(*command, **more)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def compose(*arguments: str, **more: Any) -> str:
    docker = find("docker", "Docker Engine")
    if run(docker, "compose", "version").returncode:
        pytest.skip("docker compose is not installed (Docker's compose plugin)")
    return succeed(docker, "compose", "--file", str(DOCKER / "compose.yaml"), *arguments, **more)
