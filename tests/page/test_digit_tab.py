"""The digit tab: drawing, the graph of the picture, the bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _plot(seen: Any) -> str:
    return seen.page.evaluate("document.getElementById('digit-plot').toDataURL()")


def _bars(seen: Any) -> list[float]:
    rows = seen.page.locator("#digit-bars .number").all_inner_texts()
    return [float(row.strip("<> %")) for row in rows if row]


def test_drawn_digit_becomes_a_graph_and_ten_bars(visit: Callable[..., Any]) -> None:
    seen = visit("digit")
    seen.wait_for("digit", "idle")
    box = seen.page.locator("#digit-pad").bounding_box()
    places = [(0.35, 0.25), (0.65, 0.25), (0.55, 0.5), (0.45, 0.8)]
    points = [(box["x"] + box["width"] * u, box["y"] + box["height"] * v) for u, v in places]
    seen.page.mouse.move(*points[0])
    seen.page.mouse.down()
    for point in points[1:]:
        seen.page.mouse.move(*point, steps=2)
    seen.page.mouse.up()
    seen.wait_for("digit")
    assert "nodes" in seen.page.inner_text("#digit-size")
    bars = _bars(seen)
    assert len(bars) == 10
    assert abs(sum(bars) - 100) < 1
    best = seen.page.inner_text("#digit-bars .best .bar-name")
    assert best == seen.page.inner_text("#digit-answer")
    seen.page.wait_for_timeout(250)
    seen.shoot("digit")


def test_number_key_draws_and_escape_clears(visit: Callable[..., Any]) -> None:
    seen = visit("digit")
    seen.wait_for("digit", "idle")
    blank = _plot(seen)
    seen.page.focus("#digit-pad")
    seen.page.keyboard.press("3")
    seen.wait_for("digit")
    assert _plot(seen) != blank
    seen.page.keyboard.press("Escape")
    seen.wait_for("digit", "idle")
    assert seen.page.inner_text("#digit-answer") == "–"
    assert _plot(seen) == blank
