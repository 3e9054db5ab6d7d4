"""What the trust tests serve: toys in the short form, the shipped models in the long one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trimesh

from model.bundle import open_bundle
from model.export import export_bundle
from tests.service.service_toys import make_zoo
from tests.toys import make_nearest_bundle
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


@pytest.fixture(scope="session")
def default_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In place of `bodies-any`: the model of meshes when none is named, which refines."""
    ball = trimesh.creation.icosphere(1)
    north = [int(z > 0) for z in ball.vertices[:, 2]]
    segments = {"names": ["south", "north"], "of_vertex": north}
    facts = {"landmarks": {"first": 0, "last": len(north) - 1}, "segments": segments}
    bundles = tmp_path_factory.mktemp("default") / "bundles"
    make_nearest_bundle(bundles, ball, facts, default=True)
    return bundles


@pytest.fixture
def all_models(own_models: Path, default_toy: Path) -> Path:
    """Those, and the one that answers meshes when none is named."""
    if not FULL:
        shutil.copytree(default_toy, own_models, dirs_exist_ok=True)
    return own_models
