"""The page of the API: what stands in it, sent as it stands to the shipped models, is answered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.settings import Settings

BUNDLES = Path(__file__).parents[2] / "bundles"
# these change the service
ADMIN = ("/load", "/unload")


def opened(page: Any, method: str, path: str) -> Any:
    """The part of the page about one route, unfolded."""
    part = page.locator("details").filter(
        has=page.locator("summary", has_text=method).filter(has=page.get_by_text(path, exact=True))
    )
    part.locator("summary").click()
    return part


def sent(part: Any) -> str:
    """What came back: the status, then the body."""
    part.get_by_role("button", name="Send").click()
    output = part.locator("pre")
    part.page.wait_for_function(
        "pre => /^[0-9]{3} /.test(pre.textContent)", arg=output.element_handle()
    )
    return str(output.inner_text())


@pytest.mark.skipif(not BUNDLES.is_dir(), reason="the shipped models are not exported")
def test_every_example_works_as_it_stands(
    browser: Any, serving: Callable[[Settings], AbstractContextManager[str]], tmp_path: Path
) -> None:
    ink = np.zeros((28, 28), np.uint8)
    ink[4:24, 13:16] = 255
    Image.fromarray(ink).save(tmp_path / "one.png")
    with serving(Settings(models=BUNDLES, watch_seconds=0, log_level="warning")) as address:
        page = browser.new_page()
        page.goto(f"{address}docs")
        page.wait_for_selector("details")
        routes = page.locator("summary").evaluate_all(
            "all => all.map(each => [each.children[0].textContent, each.children[1].textContent])"
        )
        assert ["POST", "/v2/models/{name}/infer"] in routes and len(routes) > 20
        for method, path in routes:
            if not path.endswith(ADMIN):
                said = sent(opened(page, method, path))
                assert said.startswith("200 "), f"{method} {path}: {said[:300]}"
        part = page.locator("details", has=page.get_by_text("/v1/graph-label", exact=True))
        part.locator("input[type=file]").set_input_files(tmp_path / "one.png")
        assert sent(part).startswith("200 ") and '"name":"1"' in sent(part)
        page.context.close()
