"""An answer never depends on who shared the batch, on the route, or on the form of the request."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_toys import ball, picture, ring, running

from ops.express import Lane
from service.settings import Settings

Make = Callable[..., Settings]


def requests() -> list[tuple[str, dict[str, Any]]]:
    mixed: list[tuple[str, dict[str, Any]]] = []
    for seed in range(12):
        mixed.append(
            ("/v1/correspondence", {"mesh": ball(1 + seed % 3, seed), "top_k": 1 + seed % 2})
        )
        mixed.append(("/v1/node-labels", {"graph": ring(3 + 5 * seed, seed=seed)}))
        mixed.append(("/v1/graph-label", {"graph": picture(5 + 7 * seed, seed)}))
    return mixed


def substance(response: httpx.Response) -> dict[str, Any]:
    """The answer without what must differ."""
    assert response.status_code == 200, response.text
    return {k: v for k, v in response.json().items() if k not in ("request_id", "timings_ms")}


def test_mixed_sizes_in_company_give_the_bits_of_each_alone(
    settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with running(settings(batching=False)) as (client, _):
            alone = [substance(await client.post(url, json=body)) for url, body in requests()]
        async with running(settings()) as (client, app):
            engine = app.state.service.engine
            serve = engine.serve

            def serve_slowly(*batch: Any) -> None:
                time.sleep(0.02)  # so that others gather meanwhile
                serve(*batch)

            engine.serve = serve_slowly
            gathered, serve_lane = threading.Event(), Lane.serve

            def serve_gathered(*lane: Any) -> None:
                assert gathered.wait(30)
                serve_lane(*lane)

            monkeypatch.setattr(Lane, "serve", serve_gathered)
            asyncio.get_running_loop().call_later(0.5, gathered.set)
            for _ in range(3):
                asked = [client.post(url, json=body) for url, body in requests()]
                together = [substance(r) for r in await asyncio.gather(*asked)]
                assert together == alone
            samples = {
                (s.name, s.labels.get("model")): s.value
                for s in app.state.service.metrics.samples()
            }
            for model in ("bodies", "cora", "mnist-superpixels"):
                runs = samples["splinecnn_batch_graphs_count", model]
                assert runs < 36, f"no {model} were batched, so nothing was shown"

    asyncio.run(work())


def test_a_swap_of_versions_under_load_drops_nothing(own_bundles: Path, settings: Make) -> None:
    from test_repository import add_version

    async def work() -> None:
        async with running(settings(models=own_bundles)) as (client, app):
            answers: list[httpx.Response] = []
            stop = asyncio.Event()

            async def caller(seed: int) -> None:
                while not stop.is_set():
                    body = {"graph": ring(8 + seed, seed=seed)}
                    answers.append(await client.post("/v1/node-labels", json=body))

            callers = [asyncio.create_task(caller(seed)) for seed in range(4)]
            for version in ("2", "3"):
                add_version(own_bundles, "cora", version)
                await asyncio.to_thread(app.state.service.repository.refresh)
            shutil.rmtree(own_bundles / "cora" / "1")
            await client.post("/v1/node-labels", json={"graph": ring()})
            stop.set()
            await asyncio.gather(*callers)
            assert {response.status_code for response in answers} == {200}
            last = await client.post("/v1/node-labels", json={"graph": ring()})
            assert last.json()["model"]["version"] == "3"

    asyncio.run(work())
