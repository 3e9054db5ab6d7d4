"""The page's sources: types hold, and the lock file names no host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from service.app import VIEWER

SOURCES = VIEWER.parent


def test_types_hold() -> None:
    compiler = SOURCES / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("the page was built elsewhere: its TypeScript compiler is not here")
    done = subprocess.run([compiler, "--noEmit"], cwd=SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_lock_file_pins_every_package_by_hash_and_names_no_host() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages["node_modules/three"]["version"] == "0.187.0"
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not any("resolved" in entry for entry in packages.values())


def test_every_source_says_in_one_line_what_it_is_for() -> None:
    for path in (SOURCES / "src").rglob("*.ts"):
        first = Path(path).read_text().splitlines()[0]
        assert first.startswith("// ") and first.endswith("."), path.name
