"""An answer before anyone has written it."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.responses import Response


@dataclass(slots=True)
class Reply:
    """What goes out, and how it is called; a route turns it into a response."""

    content: bytes
    media_type: str
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200

    def response(self) -> Response:
        return Response(self.content, self.status, self.headers, self.media_type)
