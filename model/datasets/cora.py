"""Cora: 2,708 papers, their words, and who cites whom."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.datasets.files import InvalidData, read_npz
from model.graph import Graph
from model.tasks import SparseFeatures, node_graph

FILE = "cora.npz"
WHERE = (
    "it holds x_indptr, x_indices, x_shape (binary features as compressed rows), y and "
    "edges_undirected [E, 2], nodes in the order of the Planetoid files "
    "(github.com/kimiyoung/planetoid)"
)
LABELS = (
    "Theory",
    "Reinforcement learning",
    "Genetic algorithms",
    "Neural networks",
    "Probabilistic methods",
    "Case based",
    "Rule learning",
)
TEST = VALIDATION = 500


@dataclass(frozen=True)
class NodeData:
    """One graph whose nodes have labels, and which nodes are for what."""

    graph: Graph
    num_features: int
    labels: NDArray[np.int64]  # [N], -1 where unknown
    names: tuple[str, ...]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def load_cora(data: Path) -> NodeData:
    """The paper's split: the last 500 nodes for test, all but the last 1,000 for training.

    The 500 in between are where settings are compared, and are never trained on.
    """
    path = data / FILE
    arrays = read_npz(
        path, {"x_indptr": 1, "x_indices": 1, "x_shape": 1, "y": 1, "edges_undirected": 2}, WHERE
    )
    labels = arrays["y"].astype(np.int64)
    N, F = (int(size) for size in arrays["x_shape"])
    if len(labels) != N or N <= TEST + VALIDATION:
        raise InvalidData(f"{path}: x has {N} rows and y {len(labels)}; {WHERE}")
    if labels.min() < 0 or labels.max() >= len(LABELS):
        raise InvalidData(f"{path}: labels must lie in [0, {len(LABELS)})")
    features = SparseFeatures(F, arrays["x_indptr"], arrays["x_indices"])
    nodes = np.arange(N)
    return NodeData(
        graph=node_graph(N, arrays["edges_undirected"], features, num_features=F),
        num_features=F,
        labels=labels,
        names=LABELS,
        train=nodes[: N - TEST - VALIDATION],
        validation=nodes[N - TEST - VALIDATION : N - TEST],
        test=nodes[N - TEST :],
    )
