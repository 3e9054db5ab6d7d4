"""Toy bundles, exported once, and the real app around them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_toys import Caller, make_zoo

from model.export import export_bundle
from service.settings import Settings


@pytest.fixture(scope="session")
def toy_bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only for tests; copy it to change it."""
    root = tmp_path_factory.mktemp("toys")
    make_zoo(root / "zoo")
    for folder in sorted((root / "zoo").iterdir()):
        export_bundle(folder, root / "bundles", with_onnx=False)
    return root / "bundles"


@pytest.fixture
def own_bundles(toy_bundles: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_bundles, tmp_path / "bundles"))


@pytest.fixture
def settings(toy_bundles: Path) -> Callable[..., Settings]:
    def make(**changes: Any) -> Settings:
        fields: dict[str, Any] = {"models": toy_bundles, "threads": 1, "watch_seconds": 0}
        return Settings(**{**fields, **changes})

    return make


@pytest.fixture(scope="session")
def api(toy_bundles: Path) -> Iterator[Caller]:
    """One app for all tests that do not change it."""
    caller = Caller(Settings(models=toy_bundles, threads=1, watch_seconds=0))
    yield caller
    caller.close()


@pytest.fixture
def start() -> Iterator[Callable[[Settings], Caller]]:
    callers: list[Caller] = []

    def make(settings: Settings) -> Caller:
        callers.append(Caller(settings))
        return callers[-1]

    yield make
    for caller in callers:
        caller.close()
