"""The busiest routes without the router and the layers around it, which small requests would feel.

Their documented twins stay where they are and do the same.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from service.routes import predict, v2
from service.state import State

_INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_INFER_ROUTES = ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer")


class Shortcuts:
    """Finds the handler of a POST; None sends it the long way."""

    def __init__(self, state: State) -> None:
        self._doorkeeper = state.doorkeeper
        self._routes: dict[str, Callable[[Request], Awaitable[Response]]] = {
            route.path: route.endpoint
            for route in predict.router.routes
            if isinstance(route, APIRoute)
        }

    def __call__(self, scope: Scope, receive: Receive) -> Awaitable[Response] | None:
        path = scope["path"]
        endpoint = self._routes.get(path)
        if endpoint is not None:
            scope["template"] = path
            return self._predict(endpoint, Request(scope, receive))
        if path.startswith("/v2") and (found := _INFER.fullmatch(path)):
            scope["template"] = _INFER_ROUTES[found[2] is not None]
            return self._infer(Request(scope, receive), found[1], found[2])
        return None

    async def _predict(
        self, endpoint: Callable[[Request], Awaitable[Response]], request: Request
    ) -> Response:
        self._doorkeeper.check_caller(request)
        return await endpoint(request)

    async def _infer(self, request: Request, name: str, version: str | None) -> Response:
        self._doorkeeper.check_caller(request)
        return await v2.infer(request, name, version)
