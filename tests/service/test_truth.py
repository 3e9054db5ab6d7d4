"""An answer never depends on who shared the batch, on the route, or on the form of the request."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from service_toys import ball, picture, ring, running

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


def test_mixed_sizes_in_company_give_the_bits_of_each_alone(settings: Make) -> None:
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
            for _ in range(3):
                asked = [client.post(url, json=body) for url, body in requests()]
                together = [substance(r) for r in await asyncio.gather(*asked)]
                assert together == alone
            metrics = app.state.service.metrics.registry
            for model in ("bodies", "cora", "mnist-superpixels"):
                runs = metrics.get_sample_value("splinecnn_batch_graphs_count", {"model": model})
                assert runs is not None
                assert runs < 36, "nothing was batched, so nothing was shown"

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
