"""The client against the real app in this process, and its retries against a made-up service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx
import numpy as np
import pytest
import trimesh
from PIL import Image

from service.app import create_app
from service.client import AsyncClient, Client, Points, ServiceError
from service.settings import Settings
from tests.toys import make_nearest_bundle

T = TypeVar("T")


@pytest.fixture
def ask(toy_bundles: Path) -> Callable[[Callable[[AsyncClient], Awaitable[T]]], T]:
    async def converse(talk: Callable[[AsyncClient], Awaitable[T]]) -> T:
        app = create_app(Settings(models=toy_bundles, threads=1, watch_seconds=0))
        async with (
            app.router.lifespan_context(app),
            AsyncClient("http://test", transport=httpx.ASGITransport(app)) as client,
        ):
            return await talk(client)

    return lambda talk: asyncio.run(converse(talk))


def test_a_mesh_is_answered_in_arrays_however_it_is_given(ask) -> None:
    mesh = trimesh.creation.icosphere(1)

    async def talk(client: AsyncClient):
        return (
            await client.correspondence(mesh),
            await client.correspondence(mesh.vertices, mesh.faces, model="bodies", top_k=3),
        )

    one, three = ask(talk)
    assert one.model == "bodies" and one.version == "1"
    assert one.index.shape == (42,) and one.index.dtype == np.int64
    assert three.index.shape == three.confidence.shape == (42, 3)
    assert np.array_equal(three.index[:, 0], one.index)
    assert np.array_equal(three.confidence[:, 0], one.confidence)


def test_nodes_get_the_names_of_their_labels(ask) -> None:
    edges = [[0, 1], [1, 2]]
    features = np.eye(3, 12)
    answer = ask(lambda client: client.node_labels(edges, features))
    names = ["theory", "genetics", "networks"]
    assert answer.names == [names[label] for label in answer.labels]
    assert ((answer.confidence > 0) & (answer.confidence <= 1)).all()


def test_an_undirected_edge_counts_both_ways(ask) -> None:
    features = np.eye(3, 12)

    async def talk(client: AsyncClient):
        both = await client.node_labels([[0, 1], [1, 2]], features)
        each = [[0, 1], [1, 2], [1, 0], [2, 1]]
        return both, await client.node_labels(each, features, undirected=False)

    both, each = ask(talk)
    assert np.array_equal(both.confidence, each.confidence)


def test_an_image_and_its_graph_get_the_same_class(ask, tmp_path: Path) -> None:
    from model.tasks import image_graph

    pixels = np.zeros((28, 28), np.uint8)
    pixels[4:24, 12:16] = 255
    Image.fromarray(pixels).save(tmp_path / "one.png")
    graph = image_graph(pixels, "superpixels").arrays

    async def talk(client: AsyncClient):
        image = await client.image_label((tmp_path / "one.png").read_bytes())
        drawn = await client.graph_label(
            graph["features"], graph["positions"], graph["edge_index"].T, undirected=False
        )
        return image, drawn

    image, drawn = ask(talk)
    assert image.label == drawn.label and image.name == drawn.name
    np.testing.assert_allclose(image.probabilities, drawn.probabilities, atol=1e-6)


def test_a_refusal_names_status_and_field(ask) -> None:
    with pytest.raises(ServiceError, match=r"faces\[0\].*\[0, 2\)") as caught:
        ask(lambda client: client.correspondence(np.zeros((2, 3)), [[0, 1, 5]]))
    assert caught.value.status == 400
    with pytest.raises(ServiceError, match="no model 'nobody'"):
        ask(lambda client: client.node_labels([[0, 1]], np.eye(2, 12), model="nobody"))


def _flaky(*statuses: int) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    """A service that refuses with the given statuses, then answers."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) <= len(statuses):
            headers = {"Retry-After": "0"}
            return httpx.Response(statuses[len(seen) - 1], json={"detail": "busy"}, headers=headers)
        return httpx.Response(200, json={"models": []})

    return httpx.MockTransport(answer), seen


def test_full_and_not_ready_are_tried_again() -> None:
    transport, seen = _flaky(429, 503)
    with Client("http://test", transport=transport, key="secret") as client:
        assert client.models() == []
    assert len(seen) == 3
    assert seen[0].headers["Authorization"] == "Bearer secret"


def test_retries_end() -> None:
    transport, seen = _flaky(*[429] * 9)
    with (
        Client("http://test", transport=transport, retries=2) as client,
        pytest.raises(ServiceError, match="429: busy"),
    ):
        client.models()
    assert len(seen) == 3


def test_other_refusals_are_not_tried_again() -> None:
    transport, seen = _flaky(422)
    with Client("http://test", transport=transport) as client, pytest.raises(ServiceError):
        client.models()
    assert len(seen) == 1


def test_nobody_listening_is_said_plainly() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="cannot reach"):
        client.models()


def test_what_a_correspondence_carries_comes_typed(tmp_path: Path) -> None:
    ball = trimesh.creation.icosphere(3)
    height = ball.vertices[:, 2]
    attributes = {
        "landmarks": {"top": int(height.argmax()), "bottom": int(height.argmin())},
        "segments": {"names": ["south", "north"], "of_vertex": [int(z > 0) for z in height]},
    }
    make_nearest_bundle(tmp_path / "bundles", ball, attributes, doubt=0.5)
    posted = trimesh.creation.uv_sphere(count=[24, 24])
    north = posted.faces[posted.triangles[:, :, 2].min(1) > 0]
    upper = trimesh.Trimesh(posted.vertices, north, process=False)
    upper.remove_unreferenced_vertices()
    everything = ["landmarks", "segments", "points", "reverse"]

    async def talk():
        app = create_app(Settings(models=tmp_path / "bundles", threads=1, watch_seconds=0))
        async with (
            app.router.lifespan_context(app),
            AsyncClient("http://test", transport=httpx.ASGITransport(app)) as client,
        ):
            return (
                await client.correspondence(posted, include=everything),
                await client.correspondence(upper, include=["landmarks"], refine=True),
                await client.correspondence(posted.vertices + 9, posted.faces),
            )

    whole, half, far = asyncio.run(talk())
    assert whole.landmarks["top"].position == pytest.approx([0, 0, 1], abs=0.03)
    assert posted.vertices[whole.landmarks["bottom"].vertex, 2] < -0.95
    assert whole.segments.names == ["south", "north"]
    assert whole.segments.of_vertex[posted.vertices[:, 2] > 0.2].all()
    there = whole.points.interpolate(ball.faces, ball.vertices)
    assert np.abs(there - posted.vertices).max() < 0.12
    back = whole.reverse.interpolate(posted.faces, posted.vertices[:, 2])
    assert np.abs(back - height).max() < 0.1
    assert set(half.landmarks) == {"top"} and half.points is None and half.warning is None
    assert "guess" in far.warning and far.landmarks is None


def test_a_place_that_is_nowhere_has_no_value() -> None:
    points = Points(np.array([0, -1]), np.float32([[0.5, 0.5, 0], [0, 0, 0]]))
    found = points.interpolate([[0, 1, 2]], [2, 4, 9])
    assert found[0] == 3 and np.isnan(found[1])
