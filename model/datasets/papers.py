"""Invented papers that cite each other: a sample request for a network that labels nodes.

    python -m model.datasets.papers zoo/cora

writes sample.json there. No data is needed: a topic's words are those that the network itself,
shown one word at a time, takes for that topic.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.export import arguments, run
from model.serving import serve
from model.tasks import SparseFeatures, node_graph
from model.zoo import read_zoo

PAPERS = 8  # of each topic
WORDS = 60  # that speak most for a topic; a paper has some of them
OWN, OTHER = 9, 6  # words of a paper, from its topic and from anywhere
CROSSED = 10  # citations from one topic to another


def invent(topic_of_word: NDArray[Any], seed: int = 0) -> tuple[dict[str, Any], list[int]]:
    """A request, and the topic each paper was written on; `topic_of_word` is [words, topics]."""
    rng = np.random.default_rng(seed)
    words, topics = topic_of_word.shape
    typical = np.argsort(-topic_of_word, axis=0, kind="stable")[:WORDS]
    indices: list[list[int]] = []
    edges: set[tuple[int, int]] = set()
    for topic in range(topics):
        first = len(indices)
        for paper in range(PAPERS):
            own = rng.choice(typical[:, topic], min(OWN, len(typical)), replace=False)
            chosen = {*own.tolist(), *rng.integers(0, words, OTHER).tolist()}
            for _ in range(min(paper, 2)):  # each cites up to two older ones
                edges.add((first + paper, first + int(rng.integers(0, paper))))
            indices.append(sorted(chosen))
    for _ in range(CROSSED):
        a, b = rng.choice(len(indices), 2, replace=False).tolist()
        edges.add((a, b))
    graph = {
        "num_nodes": len(indices),
        "edges": sorted([list(edge) for edge in edges]),
        "features": {"size": words, "indices": indices},
    }
    return {"graph": graph}, [topic for topic in range(topics) for _ in range(PAPERS)]


def main(folder: Path) -> None:
    _, net = read_zoo(folder)
    served = serve(net)
    words = int(net.first.weight.size(1))  # type: ignore[union-attr, operator]
    one_each = SparseFeatures(words, np.arange(words + 1), np.arange(words))
    (topic_of_word,) = run(served, arguments([node_graph(words, [], one_each)]))
    sample, topics = invent(topic_of_word)
    graph = sample["graph"]
    features = SparseFeatures.from_lists(words, graph["features"]["indices"])
    (found,) = run(served, arguments([node_graph(graph["num_nodes"], graph["edges"], features)]))
    (folder / "sample.json").write_text(json.dumps(sample, separators=(",", ":")) + "\n")
    right = int((found.argmax(1) == topics).sum())
    print(f"wrote {folder / 'sample.json'}: {right} of {len(topics)} papers get their topic")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
