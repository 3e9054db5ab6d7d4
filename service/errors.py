"""What can go wrong for a caller, and the one JSON shape that says so.

    Exception
    ├── model.errors.SplineCNNError
    │   ├── InvalidGraph        422, names the field
    │   ├── BundleError         500 on a request, a refusal on a load
    │   └── UnsupportedTask     422
    └── Refusal                 carries its own status
        ├── BadRequest 400      ├── TooLarge 413         ├── Full 429
        ├── Unauthorized 401    ├── WrongType 415        ├── ModelFailed 500
        ├── Forbidden 403       ├── Invalid 422          ├── NotReady 503
        ├── NotFound 404        └── TooSlow 408          └── Late 504
        └── Gone 499 (the caller left; nobody reads it)

Every answer is `application/problem+json` (RFC 9457); routes under /v2 say `{"error": …}` instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import Response

from model.errors import InvalidGraph, SplineCNNError
from service.replies import Reply


class Refusal(Exception):
    """An answer that is not the one asked for."""

    status = 500

    def __init__(
        self, detail: str, *, path: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = headers or {}
        self.errors = [] if path is None else [FieldError(path, detail)]


@dataclass(frozen=True)
class FieldError:
    path: str
    message: str


class BadRequest(Refusal):
    status = 400


class Unauthorized(Refusal):
    status = 401

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="splinecnn"'})


class Forbidden(Refusal):
    status = 403


class NotFound(Refusal):
    status = 404


class NotAcceptable(Refusal):
    status = 406


class TooSlow(Refusal):
    status = 408


class TooLarge(Refusal):
    status = 413


class WrongType(Refusal):
    status = 415


class Invalid(Refusal):
    status = 422


class Full(Refusal):
    status = 429

    def __init__(self, detail: str, retry_after: float = 1.0) -> None:
        super().__init__(detail, headers={"Retry-After": str(max(1, round(retry_after)))})


class Gone(Refusal):
    status = 499


class ModelFailed(Refusal):
    status = 500


class NotReady(Refusal):
    status = 503

    def __init__(self, detail: str, retry_after: float = 1.0) -> None:
        super().__init__(detail, headers={"Retry-After": str(max(1, round(retry_after)))})


class Late(Refusal):
    status = 504

    def __init__(self, detail: str, retry_after: float = 1.0) -> None:
        super().__init__(detail, headers={"Retry-After": str(max(1, round(retry_after)))})


# What a request may raise; anything else is our fault and is logged with its trace.
EXPECTED = (Refusal, SplineCNNError, ValidationError)


@dataclass(frozen=True)
class Problem:
    """The RFC 9457 shape."""

    status: int
    detail: str
    errors: list[FieldError] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        if self.status == 499:
            return "Client Closed Request"
        return HTTPStatus(self.status).phrase


def explain(error: Exception) -> Problem:
    """The problem a caller is shown; what is our fault is never spelled out."""
    if isinstance(error, Refusal):
        return Problem(error.status, error.detail, error.errors, error.headers)
    if isinstance(error, InvalidGraph):
        return Problem(422, str(error), [FieldError(error.path, error.message)])
    if isinstance(error, ValidationError):
        errors = [FieldError(_dotted(e["loc"]), _said(e)) for e in error.errors()]
        first = errors[0]
        return Problem(
            422, f"{first.path}: {first.message}" if first.path else first.message, errors
        )
    if isinstance(error, SplineCNNError):
        return Problem(422, str(error))
    if isinstance(error, HTTPException):
        return Problem(error.status_code, str(error.detail), [], dict(error.headers or {}))
    return Problem(500, "the service failed; the log has the cause under this request id")


def reply_to(problem: Problem, request_id: str, *, oip: bool = False) -> Reply:
    """The answer for a problem, in the shape of the route's family."""
    if oip:
        status = 400 if problem.status == 422 else problem.status  # that protocol knows no 422
        error = orjson.dumps({"error": _with_path(problem)})
        return Reply(error, "application/json", problem.headers, status)
    body: dict[str, object] = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": _with_path(problem),
        "request_id": request_id,
    }
    if problem.errors:
        body["errors"] = [{"path": e.path, "message": e.message} for e in problem.errors]
    return Reply(orjson.dumps(body), "application/problem+json", problem.headers, problem.status)


def respond(problem: Problem, request_id: str, *, oip: bool = False) -> Response:
    return reply_to(problem, request_id, oip=oip).response()


def _with_path(problem: Problem) -> str:
    path = problem.errors[0].path if problem.errors else ""
    return problem.detail if path in problem.detail else f"{path}: {problem.detail}"


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "an array",
    "greater_than_equal": "at least {ge}",
}


def _said(error: ErrorDetails) -> str:
    """What is wanted and what came, without the library's own terms."""
    wanted = _WANTED.get(error["type"])
    given = error["input"]
    if wanted is None or not isinstance(given, str | int | float | None):
        return error["msg"]
    came = orjson.dumps(given if not isinstance(given, str) else given[:40]).decode()
    return f"must be {wanted.format(**error.get('ctx', {}))}, got {came}"


def _dotted(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path
