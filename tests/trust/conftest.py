"""What the trust tests serve: toys in the short form, the shipped models in the long one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from model.bundle import open_bundle
from model.export import export_bundle
from tests.service.service_toys import make_zoo
from tests.trust.trust_results import FULL, ROOT


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tiny networks under the names of the shipped ones; read-only."""
    root = tmp_path_factory.mktemp("trust")
    make_zoo(root / "zoo")
    for folder in sorted((root / "zoo").iterdir()):
        export_bundle(folder, root / "bundles")
    return root / "bundles"


@pytest.fixture(scope="session")
def models(toys: Path) -> Path:
    return ROOT / "bundles" if FULL else toys


@pytest.fixture(scope="session")
def features(models: Path) -> int:
    return open_bundle(models / "cora" / "1").manifest.num_features or 0


@pytest.fixture
def own_models(models: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(models, tmp_path / "models"))
