import json
from pathlib import Path
from typing import Any

import pytest

from model.datasets.files import InvalidData, MissingData
from model.datasets.graphs import load_graph_file
from model.errors import InvalidGraph


def write(path: Path, **changes: Any) -> Path:
    content = {
        "graph": {
            "num_nodes": 20,
            "edges": [[n, n + 1] for n in range(19)],
            "features": {"size": 3, "indices": [[n % 3] for n in range(20)]},
        },
        "labels": [n % 2 for n in range(20)],
        "names": ["even", "odd"],
    }
    path.write_text(json.dumps(content | changes))
    return path


def test_labelled_nodes_are_split_without_overlap(tmp_path: Path):
    data = load_graph_file(write(tmp_path / "g.json", labels=[0, None] * 10))
    parts = [set(p.tolist()) for p in (data.train, data.validation, data.test)]
    assert [len(p) for p in parts] == [7, 1, 2]
    assert set.union(*parts) == set(range(0, 20, 2))
    assert data.labels[1] == -1 and data.names == ("even", "odd")


def test_dense_features_work_too(tmp_path: Path):
    graph = {"num_nodes": 20, "edges": [[0, 1]], "features": [[1.0, 2.0]] * 20}
    assert load_graph_file(write(tmp_path / "g.json", graph=graph)).num_features == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [0, 1]}, "one entry per node"),
        ({"labels": [-1] * 20}, r"labels\[0\] must be null or an int"),
        ({"labels": [2] * 20}, "label 2 has no name"),
        ({"labels": [0] + [None] * 19}, "at least 10 labelled nodes"),
        ({"graph": []}, "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, changes: Any, message: str):
    with pytest.raises(InvalidData, match=message):
        load_graph_file(write(tmp_path / "g.json", **changes))


def test_an_edge_to_nowhere_is_refused(tmp_path: Path):
    graph = {"num_nodes": 20, "edges": [[0, 20]], "features": [[1.0]] * 20}
    with pytest.raises(InvalidGraph, match=r"graph.edges\[0\]"):
        load_graph_file(write(tmp_path / "g.json", graph=graph))


def test_a_missing_file_says_what_it_should_hold(tmp_path: Path):
    with pytest.raises(MissingData, match="POST /v1/node-labels"):
        load_graph_file(tmp_path / "none.json")
