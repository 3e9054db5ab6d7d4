"""create_app(settings): the whole house, built in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from service import __version__
from service.errors import EXPECTED, explain, respond
from service.middleware import Edge
from service.routes import docs, documentation, health, models, predict, repository, v2
from service.settings import Settings
from service.state import State, state_of

VIEWER = Path(__file__).parent / "viewer" / "dist"
_NO_VIEWER = """<!doctype html><html lang="en"><meta charset="utf-8"><title>SplineCNN</title>
<h1>SplineCNN service</h1><p>The service runs. The viewer is not built: run <code>make page</code>
and restart.</p><p><a href="/docs">API</a> · <a href="/v1/models">models</a> ·
<a href="/readyz">ready</a> · <a href="/metrics">metrics</a></p></html>"""


def create_app(settings: Settings | None = None) -> FastAPI:
    settings = settings or Settings()
    state = State(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await state.start()
        yield
        await state.stop()

    app = FastAPI(
        title="SplineCNN service",
        version=__version__,
        description="Shape correspondence, node labels and graph labels by trained SplineCNNs.",
        lifespan=lifespan,
        docs_url=None,  # its page would load from elsewhere; ours does not
        redoc_url=None,
        middleware=_middleware(settings, state),
    )
    app.state.service = state
    for error in (*EXPECTED, RequestValidationError, HTTPException):
        app.add_exception_handler(error, _answer_error)
    guarded = [Depends(_check_caller)]
    app.include_router(predict.router, dependencies=guarded)
    app.include_router(models.router, dependencies=guarded)
    app.include_router(v2.health)
    app.include_router(v2.router, dependencies=guarded)
    app.include_router(repository.router, dependencies=guarded)
    app.include_router(health.router)
    app.include_router(docs.router)
    documentation.install(app)
    _add_viewer(app)
    return app


def _add_viewer(app: FastAPI) -> None:
    """The built page, file by file: one mount at the root would hide the 405 of other routes."""
    if not (VIEWER / "index.html").exists():
        app.router.routes.append(Route("/", _no_viewer))
        return
    for item in sorted(VIEWER.iterdir()):
        if item.is_dir():
            app.mount(f"/{item.name}", StaticFiles(directory=item))
        else:
            path = "/" if item.name == "index.html" else f"/{item.name}"
            app.router.routes.append(Route(path, partial(_viewer_file, item)))


async def _viewer_file(file: Path, request: Request) -> Response:
    return FileResponse(file, headers={"Cache-Control": "no-cache"})


async def _no_viewer(request: Request) -> Response:
    return HTMLResponse(_NO_VIEWER)


def _middleware(settings: Settings, state: State) -> list[Middleware]:
    cross = bool(settings.cors_origins)
    edge = Middleware(Edge, metrics=state.metrics, cors=cross, traces=state.traces)
    if not settings.cors_origins:
        return [edge]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=[
            *("X-Request-ID", "X-Arrays", "X-Model", "X-Warning"),
            *("Server-Timing", "Retry-After", "ETag"),
        ],
    )
    return [edge, cors]


async def _check_caller(request: Request) -> None:
    state_of(request).doorkeeper.check_caller(request.headers)


async def _answer_error(request: Request, error: Exception) -> Response:
    oip = request.url.path.startswith("/v2")
    return respond(explain(error), request.scope["request_id"], oip=oip)
