"""What `make` would run."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def recipe(target: str) -> str:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = ["make", "--dry-run", "--always-make", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["fuzz", "trust"])
def test_the_coverage_fuzz_brings_what_it_needs(target: str) -> None:
    said = recipe(target)
    assert said.index("'.[fuzz]'") < said.index("tests/trust/test_coverage_fuzz.py")


def test_the_audit_looks_at_the_pages_packages_too() -> None:
    said = recipe("audit")
    assert "bandit" in said and "npm audit" in said and "pip-audit" in said


def test_the_sanitizers_long_form_includes_the_short_one() -> None:
    assert "-m 'slow or not slow' tests/ops/test_sanitizers.py" in recipe("sanitize")
