"""Node networks that know where nodes lie, through every door of the service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from service_toys import Caller

from model.export import export_bundle
from model.zoo import ZooEntry, write_zoo
from service.app import create_app
from service.client import AsyncClient
from service.predict import Ask, answer_file
from service.settings import Settings

PSEUDO = {"placed": "cartesian", "edged": "given"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("places")
    for name, pseudo in PSEUDO.items():
        parameters = {"num_features": 2, "num_classes": 2, "kernel_size": 3, "dimensions": 2}
        entry = ZooEntry(
            name=name, net="node", parameters=parameters, pseudo=pseudo, labels=["left", "right"]
        )
        torch.manual_seed(0)
        write_zoo(root / "zoo" / name, entry, entry.build().state_dict(), half=False)
        export_bundle(root / "zoo" / name, root / "bundles", with_onnx=False)
    return root / "bundles"


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 12, (30, 2)), axis=0)
    return {
        "num_nodes": 12,
        "edges": edges.tolist(),
        "undirected": False,
        "features": rng.random((12, 2)).round(3).tolist(),
        "positions": rng.random((12, 2)).round(3).tolist(),
        "pseudo": rng.random((len(edges), 2)).round(3).tolist(),
    }


@pytest.mark.parametrize("name", PSEUDO)
def test_json_tensors_and_the_client_give_the_same_answer(
    name: str, models: Path, graph: dict[str, Any]
) -> None:
    settings = Settings(models=models, threads=1, watch_seconds=0)
    used = "pseudo" if name == "edged" else "positions"

    async def talk() -> tuple[Any, Any, Any]:
        app = create_app(settings)
        async with (
            app.router.lifespan_context(app),
            AsyncClient("http://test", transport=httpx.ASGITransport(app)) as client,
        ):
            asked = json.dumps({"model": name, "graph": graph}).encode()
            by_json = await client.post("v1/node-labels", asked, "application/json")
            by_arrays = await client.node_labels(
                graph["edges"], graph["features"], undirected=False, model=name,
                **{used: graph[used]},
            )  # fmt: skip
            return by_json, by_arrays, await client.get(f"v2/models/{name}")

    by_json, by_arrays, facts = asyncio.run(talk())
    assert by_json["labels"] == by_arrays.labels.tolist()
    assert by_json["confidence"] == pytest.approx(by_arrays.confidence.tolist(), abs=1e-6)
    wanted = {"name": used, "datatype": "FP32", "shape": [-1, 2]}
    assert wanted in facts["inputs"]


def test_what_is_missing_or_has_the_wrong_size_is_named(
    models: Path, graph: dict[str, Any]
) -> None:
    caller = Caller(Settings(models=models, threads=1, watch_seconds=0))
    try:
        for name, path, change in [
            ("placed", "graph.positions", {"positions": None}),
            ("placed", "graph.positions", {"positions": [[0, 0, 0]] * 12}),
            ("edged", "graph.pseudo", {"pseudo": None}),
            ("edged", "graph.undirected", {"undirected": True}),
        ]:
            body = {"model": name, "graph": {**graph, **change}}
            answer = caller.post("/v1/node-labels", json=body)
            assert answer.status_code == 422, answer.text
            assert answer.json()["errors"][0]["path"] == path
    finally:
        caller.close()


def test_predict_asks_the_task_of_the_model(
    models: Path, graph: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"graph": graph}))
    answer = answer_file(file, Ask("placed"), models, None)
    assert answer.question.route == "v1/node-labels" and len(answer.body["labels"]) == 12
