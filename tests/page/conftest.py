"""A real browser before the real service, with toy models behind it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trimesh
import uvicorn

from service.app import VIEWER, create_app
from service.settings import Settings
from tests.toys import make_nearest_bundle, make_toy_bundles

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SHOTS = Path(__file__).parent / "shots"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM.exists():
        return
    skip = pytest.mark.skip(reason=f"the page is tested in Chromium, and {CHROMIUM} is not there")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the service, on a free port of this machine."""
    assert (VIEWER / "index.html").exists(), "the page is not built: run `make page`"
    bundles = tmp_path_factory.mktemp("page") / "bundles"
    make_toy_bundles(bundles, "toy-body", "toy-nodes", "toy-grid", "toy-superpixels")
    ball = trimesh.creation.icosphere(3)
    height = ball.vertices[:, 2]
    attributes = {
        "landmarks": {"top": int(height.argmax()), "bottom": int(height.argmin())},
        "segments": {"names": ["south", "north"], "of_vertex": [int(z > 0) for z in height]},
    }
    make_nearest_bundle(bundles, ball, attributes, doubt=0.5)
    settings = Settings(
        models=bundles,
        threads=1,
        watch_seconds=0,
        log_level="warning",
        default_models={"correspondence": "toy-body"},
    )
    with served(settings) as address:
        yield address


@pytest.fixture(scope="session")
def serving() -> Callable[[Settings], AbstractContextManager[str]]:
    return served


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The address of a service in this process."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()  # who comes before it is ready waits
        config = uvicorn.Config(create_app(settings), ws="none", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")  # Playwright's loop must be gone before other tests run theirs
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Visit:
    """One page, and everything it complained about."""

    def __init__(self, page: Any, site: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.expected: list[str] = []  # a refused request is an error to the console, too
        page.set_default_timeout(90_000)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda sent: self._check_home(sent.url, site))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _check_home(self, url: str, site: str) -> None:
        if not url.startswith((site, "blob:", "data:")):
            self.complaints.append(f"the page asked another host: {url}")

    def wait_for(self, tab: str, state: str = "done") -> None:
        self.page.wait_for_selector(f'#{tab}-strip[data-state="{state}"]')

    def shoot(self, name: str) -> bytes:
        SHOTS.mkdir(exist_ok=True)
        picture: bytes = self.page.screenshot(path=SHOTS / f"{name}.png")
        return picture

    def unexpected(self) -> list[str]:
        return [
            text for text in self.complaints if not any(known in text for known in self.expected)
        ]


@pytest.fixture
def visit(browser: Any, site: str) -> Iterator[Callable[..., Visit]]:
    """Opens the page at a tab; a complaint nobody expected fails the test."""
    contexts, visits = [], []

    def make(tab: str = "mesh", **options: Any) -> Visit:
        calm = {"viewport": {"width": 1024, "height": 720}, "reduced_motion": "reduce"}
        options = {**calm, **options}
        contexts.append(browser.new_context(**options))
        visits.append(Visit(contexts[-1].new_page(), site))
        visits[-1].page.goto(f"{site}#{tab}")
        return visits[-1]

    yield make
    complaints = [complaint for each in visits for complaint in each.unexpected()]
    for context in contexts:
        context.close()
    assert complaints == []
