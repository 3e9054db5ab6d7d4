from pathlib import Path

import pytest
import torch

from tests.toys import make_toy_bundles


@pytest.fixture(scope="session")
def toy_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the bundle of each toy network lies."""
    return make_toy_bundles(tmp_path_factory.mktemp("toys") / "bundles")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
