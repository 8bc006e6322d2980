"""HTTP answers: JSON by msgspec, errors as problem details (RFC 9457)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.api.types import ProblemDetails
from penstock.core.model.errors import Problem


class ErrorCode(NamedTuple):
    """What an error of a code means, and what a caller can do."""

    status: int
    meaning: str
    next_step: str


_AGAIN = "send it again a moment later; writes with the same Idempotency-Key"
ERROR_CODES: dict[str, ErrorCode] = {
    "bad_request": ErrorCode(400, "the request is none of HTTP that this server reads", "look at method and headers"),
    "not_json": ErrorCode(400, "the body is not JSON", "send JSON; `detail` says where it ends to be some"),
    "unauthenticated": ErrorCode(
        401, "there is no token, or it is unknown, revoked or expired", "send `Authorization: Bearer TOKEN`"
    ),
    "forbidden": ErrorCode(
        403, "the caller's role or token does not allow this", "ask an administrator for the role, or another token"
    ),
    "not_found": ErrorCode(
        404, "there is no such thing, or the caller does not see it", "look for it in its list; `hint` has the nearest"
    ),
    "method_not_allowed": ErrorCode(405, "the path has no such method", "look into the OpenAPI document"),
    "conflict": ErrorCode(
        409, "it contradicts what is now, such as a name that is taken", "look at what is now, then decide again"
    ),
    "secret_unreadable": ErrorCode(
        409, "a sealed secret cannot be opened with the keys of this server", "set the secret again"
    ),
    "precondition_failed": ErrorCode(
        412, "`If-Match` names another version than the present one", "look at `now`, then decide again"
    ),
    "too_large": ErrorCode(413, "the request, or what it would do, is beyond a limit", "send several smaller ones"),
    "invalid_input": ErrorCode(
        422, "one or more values are wrong; nothing was done", "correct what `problems` names by field"
    ),
    "too_many_requests": ErrorCode(
        429, "the caller or their tenant sends more than their share", "wait as long as `Retry-After` says"
    ),
    "internal_error": ErrorCode(500, "a fault of the server", "report it with the server's log; writes may be done"),
    "unavailable": ErrorCode(
        501, "this server lacks a library, or is ending", "do what `hint` says, such as installing an extra"
    ),
    "overloaded": ErrorCode(503, "more requests wait than the server lets wait", _AGAIN),
    "store_unavailable": ErrorCode(503, "the log cannot be reached", _AGAIN),
    "stale_epoch": ErrorCode(503, "another server leads since", "ask the server that leads"),
    "not_leader": ErrorCode(503, "this server follows another", "ask the server that `leader` names"),
    "store_full": ErrorCode(507, "there is no room for the log", "make room on the server's disk"),
}
"""Every code that an error answer can have; they are stable. `problems` have codes of their own, by field."""
STATUS: dict[str, int] = {code: one.status for code, one in ERROR_CODES.items()}

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
