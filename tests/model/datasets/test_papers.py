import json
from pathlib import Path

import numpy as np

from model.datasets.papers import PAPERS, invent
from model.request import request_graph

SAMPLE = Path(__file__).parents[3] / "zoo" / "cora" / "sample.json"


def test_papers_have_words_of_their_topic_and_cite_mostly_their_own():
    rng = np.random.default_rng(1)
    topic_of_word = rng.random((300, 3))
    topic_of_word[np.arange(300), np.arange(300) % 3] += 1  # word w speaks for topic w % 3
    sample, topics = invent(topic_of_word)
    words = sample["graph"]["features"]["indices"]
    assert topics == [0] * PAPERS + [1] * PAPERS + [2] * PAPERS
    for topic, own in zip(topics, words, strict=True):
        assert sum(word % 3 == topic for word in own) > len(own) / 2
    edges = np.array(sample["graph"]["edges"])
    assert (np.array(topics)[edges[:, 0]] == np.array(topics)[edges[:, 1]]).mean() > 0.6
    assert invent(topic_of_word)[0] == sample


def test_the_shipped_sample_is_a_valid_request():
    graph = request_graph("node-labels", json.loads(SAMPLE.read_text()), 1433)
    assert graph.num_nodes == 7 * PAPERS
