"""The page as a whole: themes, keyboard, size, offline, narrow screens."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.app import VIEWER


def _brightness(picture: bytes) -> float:
    return float(np.asarray(Image.open(io.BytesIO(picture)).convert("L")).mean())


@pytest.mark.parametrize("tab", ["mesh", "digit", "graph"])
def test_theme_follows_the_system_until_the_reader_chooses(
    visit: Callable[..., Any], tab: str
) -> None:
    seen = visit(tab, color_scheme="dark")
    seen.wait_for(tab, "idle" if tab == "digit" else "done")
    dark = seen.shoot(f"{tab}-dark")
    seen.page.click("#theme")
    seen.page.wait_for_timeout(100)
    light = seen.shoot(f"{tab}-light")
    assert _brightness(dark) < 80 < 160 < _brightness(light)
    seen.page.reload()
    seen.wait_for(tab, "idle" if tab == "digit" else "done")
    assert seen.page.get_attribute("html", "data-theme") == "light"


def test_tabs_work_by_keyboard_and_keep_their_address(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    seen.page.focus("#tab-mesh")
    for key, tab in [("ArrowRight", "digit"), ("End", "graph"), ("ArrowRight", "mesh")]:
        seen.page.keyboard.press(key)
        assert seen.page.evaluate("document.activeElement.id") == f"tab-{tab}"
        assert seen.page.get_attribute(f"#tab-{tab}", "aria-selected") == "true"
        assert seen.page.locator('[role="tabpanel"]:visible').get_attribute("id") == f"panel-{tab}"
        assert seen.page.url.endswith(f"#{tab}")


def test_every_control_has_a_name(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    nameless = seen.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea, canvas, a')]
        .filter((e) => !(e.ariaLabel || e.labels?.length || e.textContent.trim()))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_curl_that_is_shown_names_the_route_and_the_model(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    seen.page.click("#mesh-strip summary")
    words = seen.page.inner_text("#mesh-strip .curl-box")
    assert "/v1/correspondence" in words and "toy-body" in words
    seen.shoot("mesh-curl")


def test_narrow_screen_never_scrolls_sideways(visit: Callable[..., Any]) -> None:
    for tab in ("mesh", "digit", "graph"):
        seen = visit(tab, viewport={"width": 390, "height": 844}, has_touch=True)
        seen.wait_for(tab, "idle" if tab == "digit" else "done")
        wide = seen.page.evaluate("document.documentElement.scrollWidth")
        seen.shoot(f"{tab}-narrow")
        assert wide <= 390, tab


def test_page_is_small_and_names_no_other_host() -> None:
    files = [path for path in VIEWER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 1_500_000
    for path in files:
        if path.suffix in (".html", ".css"):
            assert "//" not in path.read_text().replace("http://www.w3.org", ""), path.name


def test_page_asks_for_a_key_and_sends_it(visit: Callable[..., Any], site: str) -> None:
    seen = visit("digit")
    seen.wait_for("digit", "idle")
    seen.expected.append("status of 401")
    problem = '{"title": "Unauthorized", "status": 401, "detail": "send an API key"}'
    keys = []

    def guard(route: Any) -> None:
        keys.append(route.request.headers.get("authorization"))
        if keys[-1] == "Bearer open sesame":
            route.continue_()
        else:
            route.fulfill(status=401, content_type="application/problem+json", body=problem)

    seen.page.route("**/v1/**", guard)
    seen.page.reload()
    seen.page.fill('#page-problem input[aria-label="API key"]', "open sesame")
    seen.page.click("text=Use this key")
    seen.wait_for("digit", "idle")
    assert keys == [None, "Bearer open sesame"]


def test_progress_is_shown_and_a_lost_service_is_said(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    seen.expected.append("net::ERR_FAILED")
    held: list[Any] = []
    seen.page.route("**/v1/correspondence*", lambda route: held.append(route))
    seen.page.click("#mesh-sample")
    seen.wait_for("mesh", "busy")
    assert seen.page.is_visible("#mesh-strip progress")
    while not held:
        seen.page.wait_for_timeout(50)
    held[0].abort()
    seen.wait_for("mesh", "failed")
    assert "cannot be reached" in seen.page.inner_text("#mesh-strip .problem")
