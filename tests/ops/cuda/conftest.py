"""Where the CUDA kernels run: emulated, in several orders of threads, and on a GPU if present."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import emulated
import pytest
import torch
from torch import Tensor

ORDERS = ["forward", "reverse", "random:1", "random:2"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a variant compiles it, too, which takes a busy machine minutes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@dataclass
class Backend:
    """The operators of one backend, and how to bring tensors to it and back."""

    ops: Any
    device: str

    def __call__(self, name: str, *arguments: Any) -> Any:
        def there(value: Any) -> Any:
            if isinstance(value, list):
                return [there(v) for v in value]
            return value.to(self.device) if isinstance(value, Tensor) else value

        result = getattr(self.ops, name)(*[there(a) for a in arguments])
        return result.cpu() if isinstance(result, Tensor) else tuple(t.cpu() for t in result)


def _emulated(name: str, tensor_cores: bool) -> Backend:
    if emulated.compiler() is None:
        pytest.skip("no C++ compiler for the emulated kernels")
    torch.ops.load_library(emulated.link_library(name, tensor_cores))
    return Backend(getattr(torch.ops, name), "cpu")


@pytest.fixture(scope="session")
def kernels() -> Backend:
    """The kernels as a GPU from sm_80 on runs them."""
    return _emulated("splinecnn_emulated", tensor_cores=True)


@pytest.fixture(scope="session")
def portable_kernels() -> Backend:
    """The kernels as older GPUs run them, without tensor cores for half types."""
    return _emulated("splinecnn_portable", tensor_cores=False)


@pytest.fixture(params=[*ORDERS, pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        return Backend(torch.ops.splinecnn, "cuda")
    monkeypatch.setenv("EMULATOR_ORDER", request.param)
    backend: Backend = request.getfixturevalue("kernels")
    return backend
