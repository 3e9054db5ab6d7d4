"""The tasks in the tensors of the Open Inference Protocol: named arrays in, named arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.graph import (
    CORRESPONDENCE,
    GRAPH_LABEL,
    NODE_LABELS,
    POSITIONS,
    PSEUDO,
    Coordinates,
    Graph,
)
from model.tasks import label_graph, mesh_graph, node_graph
from ops.smallgraph import take_graph
from service.carry import carry
from service.errors import BadRequest, Invalid, TooLarge
from service.inputs import Question, check_include, check_refine
from service.interpret import best
from service.models import Model
from service.oip import datatype, flag_of
from service.settings import Settings

Arrays = dict[str, NDArray[Any]]

_CANDIDATES = ("candidates", "candidate_confidence")
_INCLUDED = {
    "landmarks": ("landmarks.vertex", "landmarks.position", "landmarks.confidence"),
    "segments": ("segments",),
    "points": ("points.face", "points.barycentric"),
    "reverse": ("reverse.face", "reverse.barycentric", "reverse.vertex", "reverse.confidence"),
}
_MESH_PARAMETERS = ("top_k", "refine", "include")
_GRAPH_PARAMETERS = ("undirected",)


@dataclass(frozen=True)
class TensorFacts:
    name: str
    datatype: str
    shape: list[int]  # -1 where the size is free


def inputs_of(model: Model) -> tuple[TensorFacts, ...]:
    manifest = model.manifest
    return _inputs(model.task, manifest.num_features or -1, manifest.coordinates)


def outputs_of(model: Model) -> tuple[TensorFacts, ...]:
    return _outputs(model.task, model.num_classes)


@lru_cache
def _inputs(task: str, width: int, taken: Coordinates | None) -> tuple[TensorFacts, ...]:
    if task == CORRESPONDENCE:
        return TensorFacts("vertices", "FP32", [-1, 3]), TensorFacts("faces", "INT64", [-1, 3])
    features = TensorFacts("features", "FP32", [-1, width])
    edges = TensorFacts("edge_index", "INT64", [2, -1])
    if task == NODE_LABELS:
        extra = [] if taken is None else [TensorFacts(taken.name, "FP32", [-1, taken.size])]
        return features, edges, *extra
    return features, TensorFacts("positions", "FP32", [-1, 2]), edges


@lru_cache
def _outputs(task: str, classes: int) -> tuple[TensorFacts, ...]:
    confidence = TensorFacts("confidence", "FP32", [-1])
    if task == CORRESPONDENCE:
        return TensorFacts("correspondence", "INT64", [-1]), confidence
    if task == NODE_LABELS:
        return TensorFacts("labels", "INT64", [-1]), confidence
    return TensorFacts("label", "INT64", [1]), TensorFacts("probabilities", "FP32", [classes])


def question_of(
    model: Model, tensors: Arrays, parameters: dict[str, Any], settings: Settings
) -> Question:
    """The graph in the tensors; edges are taken as directed unless `undirected` is true."""
    _check_names(model, tensors)
    _check_parameters(parameters, model)
    if model.task == CORRESPONDENCE:
        top_k = parameters.get("top_k", 1)
        most = min(settings.max_top_k, model.num_classes)
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= most:
            raise BadRequest(
                f"parameters.top_k must be a whole number from 1 to {most}, got {str(top_k)[:40]!r}"
            )
        _check_rows(tensors["vertices"], "vertices", settings.max_nodes)
        _check_rows(tensors["faces"], "faces", settings.max_faces)
        graph = mesh_graph(tensors["vertices"], tensors["faces"])
        refine = check_refine(flag_of(parameters, "refine"), model)
        return Question(model, graph, top_k, refine, _include(parameters, model))
    return Question(model, _graph(model, tensors, flag_of(parameters, "undirected"), settings))


def _graph(model: Model, tensors: Arrays, undirected: bool, settings: Settings) -> Graph:
    features, edge_index = tensors["features"], tensors["edge_index"]
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise BadRequest(f"edge_index must have shape [2, E], got {list(edge_index.shape)}")
    _check_rows(features, "features", settings.max_nodes)
    limit = settings.max_edges // (2 if undirected else 1)
    _check_rows(edge_index.T, "edge_index", limit)
    width = model.manifest.num_features
    if model.task == NODE_LABELS:
        return node_graph(
            len(features), edge_index.T, features, undirected, tensors.get(POSITIONS),
            tensors.get(PSEUDO), width, model.manifest.coordinates,
        )  # fmt: skip
    positions = tensors[POSITIONS]
    limits = settings.max_nodes, settings.max_edges
    block = take_graph(features, positions, edge_index, undirected, *limits)
    if block is not None and width in (None, block.width):
        return Graph(GRAPH_LABEL, block, block.num_nodes, block.num_edges)
    return label_graph(
        len(features), edge_index.T, features, positions, undirected, num_features=width
    )


def results_of(question: Question, arrays: Arrays) -> Arrays:
    """What the caller may ask for by name; the default outputs come first."""
    task = question.model.task
    if task == CORRESPONDENCE:
        index, confidence = arrays["index"], arrays["confidence"]
        results = {"correspondence": index[:, 0], "confidence": confidence[:, 0]}
        if question.top_k > 1:
            several = index[:, : question.top_k], confidence[:, : question.top_k]
            results |= dict(zip(_CANDIDATES, several, strict=True))
        results |= carry(question, arrays).arrays
    elif task == NODE_LABELS:
        labels, confidence = best(arrays["probabilities"])
        results = {"labels": labels, "confidence": confidence}
    else:
        probabilities = arrays["probabilities"][0]
        results = {"label": probabilities.argmax(keepdims=True), "probabilities": probabilities}
    return {
        name: np.ascontiguousarray(array, "<i8" if array.dtype.kind in "iu" else "<f4")
        for name, array in results.items()
    }


def known_outputs(question: Question) -> set[str]:
    """What may be asked for by name, before anything has run."""
    extra = set(_CANDIDATES) if question.top_k > 1 else set()
    for name in question.include:
        extra |= set(_INCLUDED[name])
    return {facts.name for facts in outputs_of(question.model)} | extra


def _check_parameters(parameters: dict[str, Any], model: Model) -> None:
    """Refuse what means something to another task; what we do not know is for other servers."""
    others = _GRAPH_PARAMETERS if model.task == CORRESPONDENCE else _MESH_PARAMETERS
    for name in others:
        if name in parameters:
            raise BadRequest(f"parameters.{name} does not apply to {model.task}")


def _include(parameters: dict[str, Any], model: Model) -> frozenset[str]:
    """The parameter `include`, words with commas between them, as parameters are scalars."""
    wanted = parameters.get("include", "")
    if not isinstance(wanted, str):
        raise BadRequest("parameters.include must be a string, such as 'landmarks,segments'")
    return check_include([part.strip() for part in wanted.split(",") if part.strip()], model)


def _check_names(model: Model, tensors: Arrays) -> None:
    wanted = {facts.name: facts for facts in inputs_of(model)}
    for name in tensors:
        if name not in wanted:
            raise BadRequest(f"unknown input {name[:80]!r}; wanted: {', '.join(wanted)}")
    for name, facts in wanted.items():
        if name not in tensors:
            raise BadRequest(f"input {name!r} is missing")
        whole = facts.datatype.startswith("INT")
        if (tensors[name].dtype.kind == "f") == whole:
            kind = "INT32 or INT64" if whole else "FP32"
            raise BadRequest(f"input {name!r} must be {kind}, got {datatype(tensors[name])}")
        if tensors[name].ndim != 2:
            shape = list(tensors[name].shape)
            raise Invalid(f"input {name!r} must have two dimensions, got {shape}")


def _check_rows(array: NDArray[Any], name: str, limit: int) -> None:
    if len(array) > limit:
        raise TooLarge(f"{name} must have at most {limit} rows, got {len(array)}")
