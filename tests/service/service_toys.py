"""Small networks, meshes and graphs, and a hand on the app, for the tests of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import trimesh
from fastapi import FastAPI

from model.zoo import ZooEntry, write_zoo
from service.app import create_app
from service.settings import Settings

CORA_FEATURES = 12


def make_zoo(zoo: Path) -> None:
    """One tiny network per task, with random weights."""
    torch.manual_seed(0)
    sphere = trimesh.creation.icosphere(1)
    entries = [
        ZooEntry(
            "bodies",
            "correspondence",
            {"num_classes": len(sphere.vertices), "channels": [4, 8], "hidden": 16},
            "cartesian",
            reference="reference.ply",
            scores={"exact": 0.5},
        ),
        ZooEntry(
            "cora",
            "node",
            {"num_features": CORA_FEATURES, "num_classes": 3, "hidden": 4},
            "degree",
            labels=["theory", "genetics", "networks"],
        ),
        ZooEntry(
            "mnist-superpixels",
            "superpixels",
            {"channels": [4, 8], "hidden": 16},
            "cartesian",
            labels=[str(digit) for digit in range(10)],
            image="superpixels",
        ),
    ]
    for entry in entries:
        folder = zoo / entry.name
        write_zoo(folder, entry, entry.build().state_dict())
        if entry.reference:
            sphere.export(folder / entry.reference)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[httpx.AsyncClient, FastAPI]]:
    """The app with its lifespan, and a client that talks to it in this process."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client, app


class Caller:
    """A synchronous hand on the app, for tests that send one request at a time."""

    def __init__(self, settings: Settings) -> None:
        self._runner = asyncio.Runner()
        self._context = running(settings)
        self.client, self.app = self._runner.run(self._context.__aenter__())

    def __call__(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        return self._runner.run(self.client.request(method, url, **arguments))

    def get(self, url: str, **arguments: Any) -> httpx.Response:
        return self("GET", url, **arguments)

    def post(self, url: str, **arguments: Any) -> httpx.Response:
        return self("POST", url, **arguments)

    def close(self) -> None:
        self._runner.run(self._context.__aexit__(None, None, None))
        self._runner.close()


def ball(subdivisions: int = 1, seed: int = 0) -> dict[str, Any]:
    """A lumpy sphere, as a request writes it."""
    mesh = trimesh.creation.icosphere(subdivisions)
    noise = np.random.default_rng(seed).normal(0, 0.05, mesh.vertices.shape)
    return {"vertices": (mesh.vertices + noise).tolist(), "faces": mesh.faces.tolist()}


def ring(nodes: int = 8, features: int = CORA_FEATURES, seed: int = 0) -> dict[str, Any]:
    """A ring of nodes with dense features and positions."""
    rng = np.random.default_rng(seed)
    return {
        "num_nodes": nodes,
        "edges": [[n, (n + 1) % nodes] for n in range(nodes)],
        "features": rng.random((nodes, features)).round(4).tolist(),
    }


def picture(nodes: int = 20, seed: int = 0) -> dict[str, Any]:
    """A graph with positions for graph-label."""
    rng = np.random.default_rng(seed)
    graph = ring(nodes, 1, seed)
    return {**graph, "positions": (28 * rng.random((nodes, 2))).round(3).tolist()}
