"""People's own labelled graphs, in the JSON of a request with its answers beside it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.datasets.cora import NodeData
from model.datasets.files import InvalidData, MissingData
from model.graph import POSITIONS, PSEUDO, Coordinates
from model.tasks import SparseFeatures, node_graph

WHERE = (
    'a JSON file {"graph": as in POST /v1/node-labels, "labels": [int or null per node], '
    '"names"?: [str per class]}'
)


def load_graph_file(path: Path, seed: int = 0) -> NodeData:
    """A graph with some labelled nodes; at random 70 % train, 10 % validate and 20 % test."""
    if not path.is_file():
        raise MissingData(f"{path} is missing: {WHERE}")
    try:
        content = json.loads(path.read_bytes())
        graph, given = content["graph"], content["labels"]
        num_nodes = int(graph["num_nodes"])
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidData(f"{path} cannot be read ({error!r}): expected {WHERE}") from error
    labels = _labels(given, num_nodes, path)
    names = tuple(str(name) for name in content.get("names") or range(int(labels.max()) + 1))
    if labels.max() >= len(names):
        raise InvalidData(f"{path}: label {labels.max()} has no name among {len(names)}")
    features = _features(graph.get("features"))
    positions, pseudo = graph.get("positions"), graph.get("pseudo")
    built = node_graph(
        num_nodes, graph.get("edges"), features, graph.get("undirected", True), positions, pseudo,
        coordinates=_coordinates(positions, pseudo),
    )  # fmt: skip
    known = np.random.default_rng(seed).permutation(np.nonzero(labels >= 0)[0])
    train, validation, test = np.split(known, [int(0.7 * len(known)), int(0.8 * len(known))])
    if min(len(train), len(validation), len(test)) == 0:
        raise InvalidData(f"{path}: at least 10 labelled nodes are needed, got {len(known)}")
    size = features.size if isinstance(features, SparseFeatures) else len(features[0])
    return NodeData(built, size, labels, names, train, validation, test)


def _coordinates(positions: Any, pseudo: Any) -> Coordinates | None:
    """What the network is to see: pseudo-coordinates if there are any, else positions."""
    for name, rows in ((PSEUDO, pseudo), (POSITIONS, positions)):
        if isinstance(rows, list) and rows and isinstance(rows[0], list) and rows[0]:
            return Coordinates(name, len(rows[0]))
    return None


def _features(value: Any) -> Any:
    if isinstance(value, dict):
        return SparseFeatures.from_lists(value["size"], value["indices"], value.get("values"))
    return value


def _labels(given: Any, num_nodes: int, path: Path) -> NDArray[np.int64]:
    if not isinstance(given, list) or len(given) != num_nodes:
        raise InvalidData(f"{path}: labels must be a list with one entry per node ({num_nodes})")
    for node, label in enumerate(given):
        if label is not None and (not isinstance(label, int) or label < 0):
            raise InvalidData(f"{path}: labels[{node}] must be null or an int >= 0, got {label!r}")
    return np.array([-1 if label is None else label for label in given], np.int64)
