"""The words are true: every command of README and docs runs, every setting and metric is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import typer

from service.app import create_app
from service.cli import app as command_line
from service.metrics import Metrics
from service.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(sh|sh refused|python|console)\n(.*?)^```", re.M | re.S)
_URL = "http://127.0.0.1:8000"

# `head` that reads to the end, so that what feeds it is not cut off; errors of curl count
_PRELUDE = """set -euo pipefail
head() { cat > .head; command head "$@" .head; }
curl() { command curl %s "$@"; }
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The shipped models behind a real server."""
    if not (ROOT / "bundles").is_dir():
        pytest.skip("the shipped models are not exported: run make bundles")
    log = tmp_path_factory.mktemp("service") / "log"
    arguments = ["serve", "--port", "0", "--models", "bundles", "--log-format", "text"]
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "service", *arguments], cwd=ROOT, stderr=out, stdout=out
        )
        try:
            yield _address(server, log)
        finally:
            server.terminate()
            server.wait(60)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(1200):
        found = re.search(r"serving on (http://[\d.]+:\d+)", log.read_text())
        if found and httpx.get(found[1] + "/readyz").is_success:
            return found[1]
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_runs(page: Path, service: str, tmp_path: Path) -> None:
    for name in ("docs", "bundles", "zoo"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    for kind, text in blocks(page):
        if kind == "console":
            continue
        text = text.replace(_URL, service)
        shell = _PRELUDE % ("" if kind == "sh refused" else "--fail-with-body") + text
        command = [sys.executable, "-c", text] if kind == "python" else ["bash", "-c", shell]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert ('"status":4' in done.stdout) == (kind == "sh refused"), done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_only_shown_exists(page: Path) -> None:
    """Commands too long for a test: their make targets, subcommands and flags are real."""
    makefile = (ROOT / "Makefile").read_text()
    commands = typer.main.get_command(command_line).commands
    for kind, text in blocks(page):
        if kind != "console":
            continue
        for target in re.findall(r"^make ([\w-]+)", text, re.M):
            assert re.search(rf"^([\w-]+ )*{target}[ :]", makefile, re.M), f"no target {target}"
        for command, rest in re.findall(
            r"^splinecnn ([\w-]+)(.*)", text.replace("\\\n", " "), re.M
        ):
            assert command in commands, f"no command {command}"
            known = {name for p in commands[command].params for name in p.opts + p.secondary_opts}
            for flag in re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", rest):
                assert flag in known, f"{command} has no {flag}"


def test_every_setting_is_told_as_it_is() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    for name, field in Settings.model_fields.items():
        flag, variable = "--" + name.replace("_", "-"), f"SPLINECNN_{name.upper()}"
        assert re.search(
            rf"\| `{flag}` \| `{variable}` \|.*{re.escape(field.description)}", page
        ), name


def test_every_metric_is_told() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    for family in Metrics().registry.collect():
        if family.name.startswith("splinecnn_"):
            assert family.name in page, family.name


def test_every_route_is_told() -> None:
    page = (ROOT / "docs" / "api.md").read_text() + (ROOT / "docs" / "operate.md").read_text()
    for path in create_app(Settings(models=ROOT)).openapi()["paths"]:
        if not path.startswith("/v2"):
            assert path in page, path


def test_every_command_is_told() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in command_line.registered_commands:
        assert f"`splinecnn {command.callback.__name__}" in readme, command.callback.__name__


def test_nothing_is_installed_by_a_name_that_is_not_published() -> None:
    for file in [*PAGES, *(ROOT / "model").rglob("*.py"), *(ROOT / "ops").rglob("*.py")]:
        assert "install 'splinecnn-service" not in file.read_text(), file
