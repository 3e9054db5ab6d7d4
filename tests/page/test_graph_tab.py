"""The graph tab: the sample, a pasted graph, pointing, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def _settle(seen: Any) -> None:
    seen.wait_for("graph")
    seen.page.wait_for_selector('#graph-stage[data-layout="settled"]')


def _made_graph(num_nodes: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    edges = rng.integers(0, num_nodes, (2 * num_nodes, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    indices = rng.integers(0, 20, (num_nodes, 1)).tolist()
    features = {"size": 20, "indices": indices}
    return {"num_nodes": num_nodes, "edges": edges.tolist(), "features": features}


def test_sample_is_laid_out_and_labelled(visit: Callable[..., Any]) -> None:
    seen = visit("graph")
    _settle(seen)
    assert seen.page.inner_text("#graph-size") == "12 nodes · 16 edges"
    names = seen.page.locator("#graph-legend .legend-name").all_inner_texts()
    assert names == ["red", "green", "blue"]
    counts = seen.page.locator("#graph-legend .number").all_inner_texts()
    assert sum(int(count) for count in counts) == 12
    seen.shoot("graph")


def test_pointing_at_a_node_shows_its_probabilities(visit: Callable[..., Any]) -> None:
    seen = visit("graph")
    _settle(seen)
    seen.page.fill("#graph-node", "5")
    rows = seen.page.locator("#graph-about .number").all_inner_texts()
    assert len(rows) == 3
    assert abs(sum(float(row.strip("<> %")) for row in rows) - 100) < 0.5
    seen.page.fill("#graph-node", "")
    seen.page.locator("#graph-model").focus()
    box = seen.page.locator("#graph-canvas").bounding_box()
    for step in range(400):  # somewhere along this spiral there is a node
        radius, angle = 0.02 * step**0.5, 0.5 * step
        x = box["width"] * (0.5 + radius * np.cos(angle))
        y = box["height"] * (0.5 + radius * np.sin(angle))
        seen.page.mouse.move(box["x"] + x, box["y"] + y)
        if seen.page.input_value("#graph-node"):
            break
    assert seen.page.locator("#graph-about .best").count() == 1


def test_pasted_graph_is_wrapped_and_answered(visit: Callable[..., Any]) -> None:
    seen = visit("graph")
    _settle(seen)
    seen.page.fill("#graph-text", json.dumps(_made_graph(60)))
    seen.page.click("text=Label nodes")
    seen.page.wait_for_function("() => document.body.innerText.includes('60 nodes')")
    _settle(seen)
    counts = seen.page.locator("#graph-legend .number").all_inner_texts()
    assert sum(int(count) for count in counts) == 60


def test_large_file_settles_without_filling_the_text_field(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "papers.json").write_text(json.dumps({"graph": _made_graph(1600)}))
    seen = visit("graph")
    _settle(seen)
    seen.page.set_input_files("#graph-file", tmp_path / "papers.json")
    seen.page.wait_for_function("() => document.body.innerText.includes('1,600 nodes')")
    _settle(seen)
    assert seen.page.input_value("#graph-text") == ""
    assert "papers.json" in seen.page.get_attribute("#graph-text", "placeholder")
    seen.shoot("graph-large")


def test_wrong_features_are_told_by_field(visit: Callable[..., Any]) -> None:
    seen = visit("graph")
    _settle(seen)
    seen.expected.append("status of 422")
    graph = {**_made_graph(5), "features": [[1.0, 2.0]] * 5}
    seen.page.fill("#graph-text", json.dumps(graph))
    seen.page.click("text=Label nodes")
    seen.wait_for("graph", "failed")
    assert "graph.features" in seen.page.inner_text("#graph-strip .problem")
    seen.page.fill("#graph-text", "{not json")
    seen.page.click("text=Label nodes")
    seen.page.wait_for_function("() => document.body.innerText.includes('not valid JSON')")
