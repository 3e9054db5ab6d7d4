"""What a network's arrays mean to a caller, task by task."""

from __future__ import annotations

from typing import Any

import numpy as np

from model.graph import CORRESPONDENCE, NODE_LABELS, Graph
from service.answers import Answer
from service.carry import carry
from service.inputs import Question

Arrays = dict[str, np.ndarray]


def interpret(question: Question, arrays: Arrays) -> Answer:
    """The answer in the words of the task."""
    model = question.model
    facts: dict[str, Any] = {"model": {"name": model.name, "version": model.version}}
    if warning := doubts(question, arrays):
        facts["warning"] = warning
    if model.task == CORRESPONDENCE:
        return _correspondence(question, arrays, facts)
    if model.task == NODE_LABELS:
        return _node_labels(question, arrays, facts)
    return _graph_label(question, arrays, facts)


def doubts(question: Question, arrays: Arrays) -> str | None:
    """What to tell the caller if the model does not seem to know what was posted."""
    doubt = question.model.manifest.doubt
    if doubt is None:
        return None
    correspondence = question.model.task == CORRESPONDENCE
    sure = arrays["confidence"][:, 0] if correspondence else arrays["probabilities"].max(axis=1)
    mean = float(sure.mean()) if len(sure) else 0.0
    if mean >= doubt:
        return None
    return (
        f"this does not look like what the model {question.model.name!r} knows (mean confidence "
        f"{mean:.2f}, usually above {doubt:.2f}): take the answer as a guess"
    )


def best(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest class of each row and how likely it is."""
    labels = probabilities.argmax(axis=1)
    return labels, probabilities[np.arange(len(labels)), labels]


def _correspondence(question: Question, arrays: Arrays, facts: dict[str, Any]) -> Answer:
    model = question.model
    facts["reference"] = {
        "vertices": model.num_classes,
        "href": f"/v1/models/{model.name}/reference",
    }
    index, confidence = arrays["index"], arrays["confidence"]
    bulk: dict[str, Any] = {
        "correspondence": np.ascontiguousarray(index[:, 0], dtype=np.int32),
        "confidence": np.ascontiguousarray(confidence[:, 0]),
    }
    if question.top_k > 1:
        bulk["candidates"] = {
            "index": np.ascontiguousarray(index[:, : question.top_k], dtype=np.int32),
            "confidence": np.ascontiguousarray(confidence[:, : question.top_k]),
        }
    several = {f"candidates.{part}": array for part, array in bulk.get("candidates", {}).items()}
    carried = carry(question, arrays)
    return Answer(facts, bulk | carried.json, several | carried.arrays, carried.names)


def _node_labels(question: Question, arrays: Arrays, facts: dict[str, Any]) -> Answer:
    labels, confidence = best(arrays["probabilities"])
    bulk: dict[str, Any] = {"labels": labels.astype(np.int32), "confidence": confidence}
    names = question.model.manifest.labels
    if names:
        bulk["names"] = [names[label] for label in labels.tolist()]
    if "probabilities" in question.include:
        bulk["probabilities"] = np.ascontiguousarray(arrays["probabilities"])
    return Answer(facts, bulk)


def _graph_label(question: Question, arrays: Arrays, facts: dict[str, Any]) -> Answer:
    probabilities = arrays["probabilities"][0]
    label = int(probabilities.argmax())
    facts["label"] = label
    names = question.model.manifest.labels
    if names:
        facts["name"] = names[label]
    facts["confidence"] = round(float(probabilities[label]), 7)
    bulk: dict[str, Any] = {"probabilities": np.ascontiguousarray(probabilities)}
    if "graph" in question.include:
        bulk["graph"] = _drawn(question.graph)
    return Answer(facts, bulk)


def _drawn(graph: Graph) -> dict[str, Any]:
    """The graph that was classified, in the form a request takes it."""
    source, target = graph.arrays["edge_index"]
    once = source < target
    return {
        "num_nodes": graph.num_nodes,
        "edges": np.ascontiguousarray(np.stack([source[once], target[once]], axis=1)),
        "undirected": True,
        "features": np.ascontiguousarray(graph.arrays["features"]),
        "positions": np.ascontiguousarray(graph.arrays["positions"]),
    }
