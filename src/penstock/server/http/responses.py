"""HTTP answers: JSON by msgspec, errors as problem details (RFC 9457)."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.api.types import ProblemDetails
from penstock.core.model.errors import Problem

STATUS: dict[str, int] = {
    "invalid_input": 422,
    "conflict": 409,
    "unavailable": 501,
    "not_found": 404,
    "unauthenticated": 401,
    "forbidden": 403,
    "too_large": 413,
    "too_many_requests": 429,
    "not_json": 400,
    "overloaded": 503,
    "secret_unreadable": 409,
    "store_full": 507,
    "store_unavailable": 503,
    "stale_epoch": 503,
    "not_leader": 503,
    "method_not_allowed": 405,
    "bad_request": 400,
}

_encode = msgspec.json.Encoder().encode


class ApiError(Exception):
    """Becomes a problem-details answer."""

    def __init__(
        self,
        code: str,
        title: str,
        *,
        detail: str = "",
        hint: str = "",
        problems: Iterable[Problem] = (),
        headers: Mapping[str, str] | None = None,
        leader: str = "",
    ) -> None:
        super().__init__(title)
        self.headers = headers
        status = STATUS.get(code, 500)
        self.details = ProblemDetails(title, status, code, detail, hint, problems=list(problems), leader=leader)


def answer(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")


def problem(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.details.status == 401 else headers or error.headers
    body = _encode(error.details)
    return Response(body, error.details.status, headers=headers, media_type="application/problem+json")
