"""Files answered from the command line, by a running service or by the same one in-process."""

from __future__ import annotations

import asyncio
import colorsys
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from model.errors import BundleError, InvalidGraph
from model.graph import GRAPH_LABEL, NODE_LABELS
from service.client import AsyncClient
from service.settings import Settings

_MESHES = {
    ".ply": "model/ply",
    ".obj": "model/obj",
    ".off": "model/off",
    ".stl": "model/stl",
    ".glb": "model/gltf-binary",
}
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}


@dataclass(frozen=True)
class Question:
    """A file, and the route and content type it is posted with."""

    route: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Ask:
    """What is wanted of the model; what is not said is left to the service."""

    model: str | None = None
    top_k: int = 1
    include: str | None = None  # words with commas between them
    refine: bool = False

    def said(self, body: bool) -> dict[str, Any]:
        """As a JSON body or as a query string says it."""
        include: Any = self.include
        if include and body:
            include = [part.strip() for part in include.split(",") if part.strip()]
        refine: Any = self.refine and (True if body else "true")
        return {
            name: value
            for name, value in (
                ("model", self.model),
                ("top_k", self.top_k if self.top_k > 1 else None),
                ("include", include or None),
                ("refine", refine or None),
            )
            if value is not None
        }


@dataclass(frozen=True)
class Answer:
    """The service's JSON, with the posted file and the reference where a mesh was asked about."""

    question: Question
    body: dict[str, Any]
    reference: dict[str, Any] | None


def answer_file(file: Path, ask: Ask, models: Path, against: str | None) -> Answer:
    """Post a file to the service at `against`, or to one started here for this file only."""
    return asyncio.run(_answer(_question(file), ask, models, against))


def _question(file: Path) -> Question:
    content, suffix = file.read_bytes(), file.suffix.lower()
    if suffix in _MESHES:
        return Question("v1/correspondence", _MESHES[suffix], content)
    if suffix in _IMAGES:
        return Question("v1/graph-label", _IMAGES[suffix], content)
    if suffix != ".json":
        known = " ".join([*_MESHES, *_IMAGES, ".json"])
        raise InvalidGraph(f"{file}: cannot tell what {suffix or 'this'} is; known: {known}")
    try:
        asked = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidGraph(f"{file} is not valid JSON: {error}") from None
    if not isinstance(asked, dict) or not ({"mesh", "graph"} & asked.keys()):
        raise InvalidGraph(
            f"{file} must be an object with a mesh or a graph, as the routes take it"
        )
    if "mesh" in asked:
        return Question("v1/correspondence", "application/json", content)
    return Question("v1/node-labels", "application/json", content)  # until a model is chosen


async def _answer(question: Question, ask: Ask, models: Path, against: str | None) -> Answer:
    if against:
        async with AsyncClient(against, key=os.environ.get("SPLINECNN_API_KEY")) as client:
            return await _converse(client, question, ask)
    from service.app import create_app

    only = [ask.model] if ask.model else []
    app = create_app(Settings(models=models, only=only, watch_seconds=0, log_level="error"))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with AsyncClient("http://in-process", transport=transport) as client:
            return await _converse(client, question, ask)


async def _converse(client: AsyncClient, question: Question, ask: Ask) -> Answer:
    if question.kind == "application/json":  # its options are in the body
        asked = orjson.loads(question.content)
        asked |= ask.said(body=True)
        if "mesh" not in asked:
            question = replace(question, route=f"v1/{await _graph_task(client, asked)}")
        body = await client.post(question.route, orjson.dumps(asked), question.kind)
    else:
        body = await client.post(
            question.route, question.content, question.kind, **ask.said(body=False)
        )
    reference = None
    if question.route == "v1/correspondence":
        reference = await client.get(body["reference"]["href"].lstrip("/"))
    return Answer(question, body, reference)


async def _graph_task(client: AsyncClient, asked: dict[str, Any]) -> str:
    """What the named model is for; else a graph with positions is classified as a whole."""
    known = (await client.get("v1/models"))["models"]
    name = str(asked.get("model") or "").partition("@")[0]
    tasks = {model["task"] for model in known if not name or model["name"] == name}
    placed = isinstance(asked["graph"], dict) and "positions" in asked["graph"]
    first, second = (GRAPH_LABEL, NODE_LABELS) if placed else (NODE_LABELS, GRAPH_LABEL)
    return second if second in tasks and first not in tasks else first


def write_answer(answer: Answer, out: Path | None, console: Console) -> None:
    """JSON to the terminal, or a file of the kind its name says."""
    text = orjson.dumps(answer.body, option=orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0)
    if out is None:
        sys.stdout.write(text.decode() + "\n")
        return
    if out.suffix == ".json":
        out.write_bytes(text)
    elif out.suffix == ".npy":
        body = answer.body
        array = body.get("correspondence", body.get("labels", body.get("probabilities")))
        np.save(out, np.asarray(array))
    elif out.suffix == ".ply":
        out.write_bytes(_coloured(answer))
    else:
        raise InvalidGraph(f"--out must end in .json, .npy or .ply, got {out.name}")
    console.print(f"wrote {out}")


def _coloured(answer: Answer) -> bytes:
    """The posted mesh as PLY, each vertex in the colour of its segment, if these were asked for,
    or of its place on the reference."""
    import trimesh

    if answer.reference is None:
        raise InvalidGraph("--out .ply needs a mesh; write .json or .npy instead")
    vertices, faces = _posted_mesh(answer.question)
    segments = answer.body.get("segments")
    if segments is not None:
        painted = segment_colours(len(segments["names"]))[np.asarray(segments["of_vertex"])]
    else:
        colours = place_colours(np.asarray(answer.reference["mesh"]["vertices"]))
        painted = colours[np.asarray(answer.body["correspondence"])]
    mesh = trimesh.Trimesh(vertices, faces, vertex_colors=painted, process=False)
    return bytes(mesh.export(file_type="ply"))  # type: ignore[arg-type]


def _posted_mesh(question: Question) -> tuple[NDArray[Any], NDArray[Any]]:
    from service.meshfiles import MEDIA_TYPES, read_mesh

    if question.kind == "application/json":
        mesh = orjson.loads(question.content)["mesh"]
        return np.asarray(mesh["vertices"]), np.asarray(mesh["faces"])
    limits = Settings()
    kind = MEDIA_TYPES[question.kind]
    return read_mesh(question.content, kind, limits.max_nodes, limits.max_faces)


def place_colours(vertices: NDArray[Any]) -> NDArray[np.uint8]:
    """A colour per reference vertex that varies smoothly over the body: its place in the box."""
    low, high = vertices.min(0), vertices.max(0)
    share = (vertices - low) / np.maximum(high - low, 1e-9)
    return np.round(40 + 200 * share).astype(np.uint8)


def segment_colours(count: int) -> NDArray[np.uint8]:
    """Colours for that many parts; neighbours in the list are far apart in hue."""
    hue = (np.arange(count) * 0.618034) % 1
    bright = np.where(np.arange(count) % 2, 0.95, 0.7)
    rows = [colorsys.hsv_to_rgb(h, 0.65, v) for h, v in zip(hue, bright, strict=True)]
    return np.round(255 * np.array(rows)).astype(np.uint8)


def list_models(models: Path, against: str | None) -> Table:
    """One row per model: name, version, task and measured scores."""
    if against:
        served = asyncio.run(_served(against))
    else:
        from model.bundle import open_bundle

        paths = sorted(models.glob("*/*/manifest.json"))
        if not paths:
            raise BundleError(f"there are no bundles in {models}/: make them with splinecnn export")
        served = [vars(open_bundle(path.parent).manifest) for path in paths]
    table = Table("name", "version", "task", "scores", box=None, pad_edge=False)
    for model in served:
        scores = _headline(model["scores"] or {})
        table.add_row(model["name"], str(model["version"]), model["task"], scores)
    return table


def _headline(scores: dict[str, Any]) -> str:
    """One number per score; of a group of them its first, which is the one it is about."""
    shown = []
    for name, value in scores.items():
        part, number = name, value
        while isinstance(number, dict) and number:
            inner, number = next(iter(number.items()))
            part = f"{part} {inner}"
        if isinstance(number, int | float):
            shown.append(f"{part} {number}")
    return ", ".join(shown)


async def _served(url: str) -> list[dict[str, Any]]:
    async with AsyncClient(url, key=os.environ.get("SPLINECNN_API_KEY")) as client:
        return await client.models()
