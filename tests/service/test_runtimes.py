"""TorchScript and ONNX Runtime give the same answers; a wish that cannot be met is refused."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import orjson
import pytest
from service_toys import ball, make_zoo, picture, ring, running

from model.bundle import open_bundle
from model.errors import BundleError
from model.export import export_bundle
from service import runner
from service.metrics import Metrics
from service.repository import Repository
from service.runner import DeviceError
from service.settings import Settings

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def onnx_bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("onnx")
    make_zoo(root / "zoo")
    for folder in sorted((root / "zoo").iterdir()):
        export_bundle(folder, root / "bundles", with_onnx=True)
    return root / "bundles"


def test_both_runtimes_give_the_same_answers(onnx_bundles: Path) -> None:
    asked = [
        ("/v1/correspondence", {"mesh": ball(2), "top_k": 2}, "confidence"),
        ("/v1/node-labels", {"graph": ring(30)}, "confidence"),
        ("/v1/graph-label", {"graph": picture(40)}, "probabilities"),
    ]

    async def answers(runtime: str) -> list[np.ndarray]:
        settings = Settings(models=onnx_bundles, threads=2, watch_seconds=0, runtime=runtime)
        async with running(settings) as (client, _):
            found = [await client.post(url, json=body) for url, body, _ in asked]
            assert [response.status_code for response in found] == [200] * 3, found[0].text
            together = await asyncio.gather(
                *(client.post(url, json=body) for url, body, _ in asked * 3)
            )
            for turn, response in enumerate(together):
                name = asked[turn % 3][2]
                assert np.allclose(response.json()[name], found[turn % 3].json()[name], atol=1e-6)
            return [np.array(r.json()[name]) for r, (_, _, name) in zip(found, asked, strict=True)]

    one = asyncio.run(answers("torchscript"))
    other = asyncio.run(answers("onnx"))
    for a, b in zip(one, other, strict=True):
        assert np.allclose(a, b, atol=1e-5)
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_a_bundle_without_onnx_says_so(own_bundles: Path) -> None:
    for path in own_bundles.glob("*/1/manifest.json"):
        manifest = orjson.loads(path.read_bytes())
        manifest["files"].pop("model.onnx", None)
        path.write_bytes(orjson.dumps(manifest))
    repository = Repository(Settings(models=own_bundles, runtime="onnx"), Metrics())
    with pytest.raises(BundleError, match="no ONNX form; serve it with --runtime torchscript"):
        repository.load_all()


def test_a_provider_that_quietly_falls_back_is_refused(onnx_bundles: Path) -> None:
    bundle = open_bundle(onnx_bundles / "cora" / "1")
    with pytest.warns(UserWarning), pytest.raises(DeviceError, match="would not use CUDA"):
        runner.OnnxRuntime(bundle, "cuda:0", 1)
