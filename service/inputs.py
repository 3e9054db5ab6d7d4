"""Bodies to graphs: what was sent, in whichever form, as one validated Graph and its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from model.graph import CORRESPONDENCE, GRAPH_LABEL, NODE_LABELS, Graph
from model.places import CANDIDATES
from model.tasks import SparseFeatures, image_graph, label_graph, mesh_graph, node_graph
from ops.smallgraph import SmallGraph, read_graph
from service import images, meshfiles
from service.body import Body
from service.codec import Document, Skimmed
from service.errors import Invalid, TooLarge, WrongType
from service.models import Model, Options
from service.schemas import Ask
from service.settings import Settings

AnyDocument = Document | Skimmed
Lookup = Callable[[str, str | None], Model]

_ASK = {CORRESPONDENCE: ("model", "top_k", "refine", "include", "mesh")}
_OPTIONS = ("model", "top_k", "refine")
_MOST_INCLUDED = 20
_DEFAULTS = Ask()
_PLAIN = Options()
_GRAPH = ("num_nodes", "edges", "undirected", "features", "positions", "pseudo")


@dataclass(frozen=True)
class Question:
    """A graph, the model to ask, and what is wanted of it."""

    model: Model
    graph: Graph
    top_k: int = 1
    refine: bool = False
    include: frozenset[str] = frozenset()

    @property
    def options(self) -> Options:
        """How the model is to run; places between vertices need a few candidates."""
        if self.top_k == 1 and not self.refine and not self.include:
            return _PLAIN
        least = CANDIDATES if self.include & {"landmarks", "points", "reverse"} else 1
        return Options(max(self.top_k, min(least, self.model.num_classes)), self.refine)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_file(task: str, content_type: str, query: Mapping[str, str]) -> bool:
    """Whether the body is a mesh or image file, to be parsed away from the event loop."""
    known = meshfiles.MEDIA_TYPES if task == CORRESPONDENCE else images.MEDIA_TYPES
    return content_type in known or bool(query.get("format"))


def read_question(
    task: str,
    body: Body,
    content_type: str,
    query: Mapping[str, str],
    settings: Settings,
    lookup: Lookup,
) -> Question:
    """One body of any accepted form."""
    if is_file(task, content_type, query):
        if task == CORRESPONDENCE:
            return _mesh_file(body, content_type, query, settings, lookup)
        if task == GRAPH_LABEL:
            return _image_file(body, content_type, query, settings, lookup)
    if content_type not in ("application/json", ""):
        raise WrongType(_wrong_type(task, content_type))
    if task == GRAPH_LABEL and (found := read_graph(body, settings.max_nodes, settings.max_edges)):
        question = _small_graph(found, query, settings, lookup)
        if question is not None:
            return question
    skimmed: Skimmed | None = None
    try:
        skimmed = Skimmed(body)
        return _read_json(task, skimmed, query, settings, lookup)
    except Exception:
        if skimmed is not None and skimmed.proven:
            raise
    return _read_json(task, Document(body), query, settings, lookup)


def _read_json(
    task: str,
    document: AnyDocument,
    query: Mapping[str, str],
    settings: Settings,
    lookup: Lookup,
) -> Question:
    root = document.root
    names = document.check_keys(root, "", _ASK.get(task, ("model", "include", "graph")))
    # The query string may say what the body leaves out.
    said = {name: _scalar(document, root[name], name) for name in names if name in _OPTIONS}
    if "include" in names:
        said["include"] = document.strings(root["include"], "include", _MOST_INCLUDED)
    ask = _ask({**_from_query(query, task), **said}, settings)
    if task == CORRESPONDENCE:
        return _mesh_json(document, ask, settings, lookup)
    model = lookup(task, ask.model)
    include = check_include(ask.include, model)
    return Question(model, _graph_json(document, task, model, settings), include=include)


def _small_graph(
    found: SmallGraph, query: Mapping[str, str], settings: Settings, lookup: Lookup
) -> Question | None:
    """The same for a graph that was read in one go; None if it does not fit the model."""
    said = _from_query(query, GRAPH_LABEL)
    if found.model is not None:
        said["model"] = found.model
    ask = _ask(said, settings)
    model = lookup(GRAPH_LABEL, ask.model)
    include = check_include(ask.include, model)
    arrays = found.arrays
    if arrays.width != (model.manifest.num_features or arrays.width):
        return None
    graph = Graph(GRAPH_LABEL, arrays, arrays.num_nodes, arrays.num_edges)
    return Question(model, graph, include=include)


def _ask(said: Mapping[str, Any], settings: Settings) -> Ask:
    if not said:
        return _DEFAULTS
    if len(said) == 1 and isinstance(said.get("model"), str):
        return _ask_model(said["model"])
    ask = Ask.model_validate(said, strict=True)
    if ask.top_k > settings.max_top_k:
        raise Invalid(f"must be at most {settings.max_top_k}, got {ask.top_k}", path="top_k")
    return ask


@lru_cache(64)
def _ask_model(name: str) -> Ask:
    """What most requests ask: a model, and nothing else."""
    return Ask.model_validate({"model": name}, strict=True)


def _from_query(query: Mapping[str, str], task: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if not query:
        return said
    for name in ("top_k", "refine"):
        if name in query and task != CORRESPONDENCE:
            raise Invalid(f"does not apply to {task}", path=name)
    if query.get("model"):
        said["model"] = query["model"]
    if "top_k" in query:
        text = query["top_k"]
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise Invalid(f"must be a whole number of at least 1, got {text[:40]!r}", path="top_k")
        said["top_k"] = int(text)
    if "include" in query:
        parts = [part.strip() for part in query["include"].split(",")]
        said["include"] = [part for part in parts if part]
        if len(said["include"]) > _MOST_INCLUDED:
            count = len(said["include"])
            raise TooLarge(
                f"include must have at most {_MOST_INCLUDED} rows, got {count}", path="include"
            )
    if "refine" in query:
        text = query["refine"]
        if text not in ("true", "false"):
            raise Invalid(f"must be true or false, got {text[:40]!r}", path="refine")
        said["refine"] = text == "true"
    return said


def _mesh_json(document: AnyDocument, ask: Ask, settings: Settings, lookup: Lookup) -> Question:
    mesh = document.object(_required(document.root, "mesh", ""), "mesh")
    document.check_keys(mesh, "mesh", ("vertices", "faces"))
    vertices = _required(mesh, "vertices", "mesh")
    faces = _required(mesh, "faces", "mesh")
    # Both lengths first: nothing is copied for a mesh that is refused anyway.
    document.check_rows(faces, "mesh.faces", settings.max_faces)
    points = document.matrix(vertices, "mesh.vertices", 3, settings.max_nodes, kind="f")
    triangles = document.matrix(faces, "mesh.faces", 3, settings.max_faces, kind="i")
    document.check_shapes()
    model = lookup(CORRESPONDENCE, ask.model)
    return _mesh_question(model, mesh_graph(points, triangles), ask)


def _graph_json(document: AnyDocument, task: str, model: Model, settings: Settings) -> Graph:
    graph = document.object(_required(document.root, "graph", ""), "graph")
    document.check_keys(graph, "graph", _GRAPH)
    num_nodes = _node_count(document, graph, settings)
    undirected = _scalar(document, graph.get("undirected", True), "graph.undirected")
    if not isinstance(undirected, bool):
        raise Invalid(f"must be true or false, got {undirected!r}", path="graph.undirected")
    limit = settings.max_edges // (2 if undirected else 1)
    edges = document.matrix(_required(graph, "edges", "graph"), "graph.edges", 2, limit, kind="i")
    # sparse rows are made of what is not zero, which rounding must not change
    kind = "d" if task == NODE_LABELS else "f"
    features = _features(document, _required(graph, "features", "graph"), kind, settings)
    positions = _optional_rows(document, graph, "positions", "f", settings.max_nodes)
    pseudo = _optional_rows(document, graph, "pseudo", "d", settings.max_edges)
    document.check_shapes()
    width = model.manifest.num_features
    if task == NODE_LABELS:
        return node_graph(
            num_nodes, edges, features, undirected, positions, pseudo, width,
            model.manifest.coordinates,
        )  # fmt: skip
    if positions is None:
        raise Invalid("is required for this task", path="graph.positions")
    return label_graph(num_nodes, edges, features, positions, undirected, num_features=width)


def _node_count(document: AnyDocument, graph: Any, settings: Settings) -> int:
    value = _scalar(document, _required(graph, "num_nodes", "graph"), "graph.num_nodes")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"must be a whole number, got {value!r}", path="graph.num_nodes")
    if value < 1:
        raise Invalid(f"must be at least 1, got {value}", path="graph.num_nodes")
    if value > settings.max_nodes:
        raise TooLarge(
            f"graph.num_nodes must be at most {settings.max_nodes}, got {value}",
            path="graph.num_nodes",
        )
    return value


def _features(document: AnyDocument, value: Any, kind: str, settings: Settings) -> Any:
    path = "graph.features"
    if document.is_array(value):
        document.check_rows(value, path, settings.max_nodes)
        width = document.width(value, path)
        return document.matrix(value, path, width, settings.max_nodes, kind=kind)
    if not document.is_object(value):
        raise Invalid("must be rows of numbers, or an object with size and indices", path=path)
    document.check_keys(value, path, ("size", "indices", "values"))
    size = _scalar(document, _required(value, "size", path), f"{path}.size")
    if isinstance(size, bool) or not isinstance(size, int):
        raise Invalid(f"must be a whole number, got {size!r}", path=f"{path}.size")
    rows = settings.max_nodes
    index, ptr = document.ragged(
        _required(value, "indices", path), f"{path}.indices", rows, whole=True
    )
    values = value.get("values")
    if values is None:
        return SparseFeatures(size, ptr, index)
    flat, value_ptr = document.ragged(values, f"{path}.values", rows, whole=False)
    if ptr.shape != value_ptr.shape or (ptr != value_ptr).any():
        raise Invalid("must have as many entries as indices, row by row", path=f"{path}.values")
    return SparseFeatures(size, ptr, index, flat)


def _optional_rows(document: AnyDocument, graph: Any, name: str, kind: str, limit: int) -> Any:
    value = graph.get(name)
    if value is None:
        return None
    path = f"graph.{name}"
    document.check_rows(value, path, limit)
    width = document.width(value, path)
    return document.matrix(value, path, width, limit, kind=kind)


def _mesh_file(
    body: Body, content_type: str, query: Mapping[str, str], settings: Settings, lookup: Lookup
) -> Question:
    ask = _ask(_from_query(query, CORRESPONDENCE), settings)
    kind = query.get("format", "").lower() or meshfiles.MEDIA_TYPES[content_type]
    if kind not in meshfiles.FORMATS:
        raise Invalid(f"must be one of {', '.join(meshfiles.FORMATS)}, got {kind!r}", path="format")
    model = lookup(CORRESPONDENCE, ask.model)
    vertices, faces = meshfiles.read_mesh(bytes(body), kind, settings.max_nodes, settings.max_faces)
    return _mesh_question(model, mesh_graph(vertices, faces), ask)


def _image_file(
    body: Body, content_type: str, query: Mapping[str, str], settings: Settings, lookup: Lookup
) -> Question:
    ask = _ask(_from_query(query, GRAPH_LABEL), settings)
    model = lookup(GRAPH_LABEL, ask.model)
    include = check_include(ask.include, model)
    how = model.manifest.image
    if how is None:
        raise WrongType(f"model {model.name!r} takes graphs, not images")
    kind = images.MEDIA_TYPES.get(content_type)
    if kind is None:
        raise WrongType(_wrong_type(GRAPH_LABEL, content_type))
    pixels = images.read_image(bytes(body), kind, settings.max_pixels)
    if (pixels == pixels[0, 0]).all():
        raise Invalid(
            f"must show something, got {pixels.shape[1]} x {pixels.shape[0]} equal pixels",
            path="image",
        )
    graph = image_graph(pixels, how)
    return Question(model, graph, include=include)


def _mesh_question(model: Model, graph: Graph, ask: Ask) -> Question:
    if ask.top_k > model.num_classes:
        raise Invalid(
            f"must be at most {model.num_classes}, the size of the reference, got {ask.top_k}",
            path="top_k",
        )
    refine, include = check_refine(ask.refine, model), check_include(ask.include, model)
    return Question(model, graph, ask.top_k, refine, include)


def check_include(wanted: Sequence[str], model: Model) -> frozenset[str]:
    """What is asked for beside the answer, if this model has it."""
    for name in wanted:
        if name not in model.includes:
            known = ", ".join(model.includes) or "nothing"
            raise Invalid(
                f"model {model.name!r} can include {known}; got {name[:40]!r}", path="include"
            )
    return frozenset(wanted)


def check_refine(refine: bool, model: Model) -> bool:
    if refine and not model.manifest.refines:
        raise Invalid(f"model {model.name!r} cannot refine its answers", path="refine")
    return refine


def _required(value: Any, name: str, path: str) -> Any:
    where = f"{path}.{name}" if path else name
    if name not in value:
        raise Invalid("is required", path=where)
    found = value[name]
    if found is None:
        raise Invalid("is required, got null", path=where)
    return found


def _scalar(document: AnyDocument, value: Any, path: str) -> Any:
    if document.is_array(value) or document.is_object(value):
        kind = "an array" if document.is_array(value) else "an object"
        raise Invalid(f"must be a single value, got {kind}", path=path)
    return value


def _wrong_type(task: str, content_type: str) -> str:
    wanted = ["application/json"]
    if task == CORRESPONDENCE:
        wanted += ["model/ply", "model/obj", "model/off", "model/stl", "model/gltf-binary"]
    if task == GRAPH_LABEL:
        wanted += list(images.MEDIA_TYPES)
    return f"Content-Type must be one of {', '.join(wanted)}; got {content_type[:80]!r}"
