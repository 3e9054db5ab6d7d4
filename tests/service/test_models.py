"""A loaded model: how many threads a batch gets, and that its bits do not tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from service_toys import picture

from model.bundle import open_bundle
from model.request import request_graph
from service.models import Model
from service.settings import Settings


def load(bundles: Path) -> Model:
    return Model(
        open_bundle(bundles / "mnist-superpixels" / "1"), Settings(models=bundles, threads=3)
    )


def test_small_batches_run_on_one_thread_and_large_ones_on_all(toy_bundles: Path) -> None:
    model = load(toy_bundles)
    graph = request_graph(model.task, {"graph": picture(40)}, 1)
    assert model._threads_for([graph]) == 3  # nothing is known of its pace yet
    model.learn_pace(graph, "cpu")
    assert model._pace is not None and model._pace > 0
    model._pace = 0.004 / (graph.num_nodes + graph.num_edges)  # one such graph takes 4 ms
    assert [model._threads_for([graph] * n) for n in (1, 2, 3, 50)] == [1, 2, 3, 3]


def test_the_number_of_threads_does_not_show_in_the_answer(toy_bundles: Path) -> None:
    model = load(toy_bundles)
    graphs = [request_graph(model.task, {"graph": picture(40 + 7 * n, n)}, 1) for n in range(20)]
    alone = [model.run([graph], None, "cpu")[0]["probabilities"] for graph in graphs]
    for pace in (None, 0.0, 1.0):  # the layers shared by three, one thread, a share each
        model._pace = pace
        together = [answer["probabilities"] for answer in model.run(graphs, None, "cpu")]
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)
