"""Imports point one way, service → model → ops, and what a package lists is what it has."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ABOVE = {"ops": {"model", "service"}, "model": {"service"}, "service": set()}


@pytest.mark.parametrize("room", ABOVE)
def test_imports_point_down(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        if "node_modules" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in ABOVE[room], f"{file} imports {name}"


@pytest.mark.parametrize("room", ["ops", "model"])
def test_what_a_package_lists_exists(room: str) -> None:
    package = importlib.import_module(room)
    for name in getattr(package, "__all__", []):
        assert hasattr(package, name)


def test_every_module_says_what_it_is_for() -> None:
    for room in ABOVE:
        for file in (ROOT / room).rglob("*.py"):
            if "node_modules" not in file.parts:
                assert ast.get_docstring(ast.parse(file.read_text())), f"{file} has no docstring"
