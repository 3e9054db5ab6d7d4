"""The JSON of a request, as sample.json and our own HTTP routes write it, to a graph."""

from typing import Any

from model.errors import InvalidGraph, UnsupportedTask
from model.graph import CORRESPONDENCE, GRAPH_LABEL, NODE_LABELS, TASKS, Coordinates, Graph
from model.tasks import SparseFeatures, label_graph, mesh_graph, node_graph


def request_graph(
    task: str,
    body: Any,
    num_features: int | None = None,
    coordinates: Coordinates | None = None,
) -> Graph:
    """The graph in `{"mesh": {...}}` or `{"graph": {...}}`."""
    if task == CORRESPONDENCE:
        given = _part(body, "mesh", "vertices", "faces")
        return mesh_graph(given["vertices"], given["faces"])
    if task == GRAPH_LABEL:
        given = _part(body, "graph", "num_nodes", "edges", "features", "positions")
        return label_graph(
            given["num_nodes"], given["edges"], given["features"], given["positions"],
            given.get("undirected", True), num_features,
        )  # fmt: skip
    if task == NODE_LABELS:
        given = _part(body, "graph", "num_nodes", "edges", "features")
        return node_graph(
            given["num_nodes"], given["edges"], _features(given["features"]),
            given.get("undirected", True), given.get("positions"), given.get("pseudo"),
            num_features, coordinates,
        )  # fmt: skip
    raise UnsupportedTask(f"unknown task {task!r}; known: {', '.join(TASKS)}")


def _part(body: Any, name: str, *wanted: str) -> dict[str, Any]:
    part = body.get(name) if isinstance(body, dict) else None
    if not isinstance(part, dict):
        raise InvalidGraph("must be an object", name)
    for field in wanted:
        if field not in part:
            raise InvalidGraph("is missing", f"{name}.{field}")
    return part


def _features(features: Any) -> Any:
    if not isinstance(features, dict):
        return features
    try:
        return SparseFeatures.from_lists(
            features["size"], features["indices"], features.get("values")
        )
    except (KeyError, TypeError):
        raise InvalidGraph(
            "must be rows of numbers, or an object with size and indices", "graph.features"
        ) from None
