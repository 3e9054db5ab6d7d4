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


def test_superpixels_come_first_and_another_model_is_one_choice_away(
    visit: Callable[..., Any],
) -> None:
    seen = visit("digit")
    seen.wait_for("digit", "idle")
    assert seen.page.input_value("#digit-model") == "toy-superpixels"
    seen.page.keyboard.press("3")
    seen.wait_for("digit")
    few = int(seen.page.inner_text("#digit-size").split()[0])
    seen.page.select_option("#digit-model", "toy-grid")
    seen.page.wait_for_function(
        "() => document.getElementById('digit-size').innerText.startsWith('784')"
    )
    assert few <= 75


def test_number_key_draws_and_escape_clears(visit: Callable[..., Any]) -> None:
    """Wherever the focus is, so also right after the tab was chosen."""
    seen = visit("mesh")
    seen.wait_for("mesh")
    seen.page.keyboard.press("3")
    seen.page.click("#tab-digit")
    seen.wait_for("digit", "idle")  # the tab was not open yet
    blank = _plot(seen)
    seen.page.keyboard.press("3")
    seen.wait_for("digit")
    assert _plot(seen) != blank
    seen.page.keyboard.press("Escape")
    seen.wait_for("digit", "idle")
    assert seen.page.inner_text("#digit-answer") == "–"
    assert _plot(seen) == blank
