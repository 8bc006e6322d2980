"""HTTP answers: JSON by msgspec, errors as problem details (RFC 9457)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.api.error_texts import ANSWERS
from penstock.api.types import ProblemDetails
from penstock.core.model.errors import Problem

STATUS: dict[str, int] = {
    "bad_request": 400,
    "not_json": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "secret_unreadable": 409,
    "precondition_failed": 412,
    "too_large": 413,
    "invalid_input": 422,
    "too_many_requests": 429,
    "internal_error": 500,
    "unavailable": 501,
    "provider_failed": 502,
    "overloaded": 503,
    "store_unavailable": 503,
    "stale_epoch": 503,
    "not_leader": 503,
    "store_full": 507,
}


class ErrorCode(NamedTuple):
    """What an error of a code means, and what a caller can do."""

    status: int
    meaning: str
    next_step: str


ERROR_CODES: dict[str, ErrorCode] = {code: ErrorCode(STATUS[code], *text) for code, text in ANSWERS.items()}
"""Every code that an error answer can have; they are stable. `problems` have codes of their own, by field."""

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
        now: Any = None,
    ) -> None:
        super().__init__(title)
        self.headers = headers
        status = STATUS.get(code, 500)
        self.details = ProblemDetails(
            title, status, code, detail, hint, problems=list(problems), leader=leader, now=now
        )


def answer(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")


def problem(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.details.status == 401 else headers or error.headers
    body = _encode(error.details)
    return Response(body, error.details.status, headers=headers, media_type="application/problem+json")
