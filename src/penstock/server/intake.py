"""What routes do with what they are sent and with what comes back: bodies, refusals, and who may do this at all."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from penstock.core.errors import Problem
from penstock.core.jobfile import parse_request
from penstock.core.lifecycle.requests import NewJob, Refusal
from penstock.server.answers import ApiError

T = TypeVar("T")
BODY_MAX_BYTES = 64 * 2**20
READ_AT_ONCE_BYTES = 65_536
"""A larger list of jobs is not read on the event loop."""
_decode_json = msgspec.json.Decoder().decode


async def body_of(request: Request, most: int = BODY_MAX_BYTES) -> bytes:
    """Return the body. Raises: ApiError when it is over the limit."""
    announced = request.headers.get("content-length", "0")
    body = bytearray()
    if not announced.isdigit() or int(announced) <= most:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise ApiError("too_large", f"a request may have {most} bytes")


def json_of(body: bytes) -> Any:
    """Return what a body says. Raises: ApiError when it is not JSON."""
    try:
        return _decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("not_json", "the body is not JSON", detail=str(error)) from error


async def jobs_of(body: bytes) -> Sequence[NewJob]:
    """Return the jobs that a body asks for; a large one is read in a thread, for that may take seconds.

    Raises: ApiError with all that is wrong.
    """
    return _jobs(body) if len(body) <= READ_AT_ONCE_BYTES else await asyncio.to_thread(_jobs, body)


def _jobs(body: bytes) -> Sequence[NewJob]:
    entries, problems = parse_request(json_of(body))
    if problems:
        raise invalid(problems)
    return entries


def title_of(problems: list[Problem]) -> str:
    first = problems[0].message
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more problem(s))"


def refused(refusal: Refusal) -> ApiError:
    """Return a refusal as the error that answers it."""
    return ApiError(refusal.code, title_of(list(refusal.problems)), problems=refusal.problems)


def invalid(problems: list[Problem]) -> ApiError:
    return ApiError("invalid_input", title_of(problems), problems=problems)


def allow(permitted: bool, what: str) -> None:
    """Raise ApiError unless it is permitted."""
    if not permitted:
        raise ApiError("forbidden", f"you may not {what}", hint="ask an administrator for the role, or another token")


def read_body(raw: object, kind: type[T]) -> T:
    """Return a body as a value. Raises: ApiError naming the field."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        field = where.strip("`.") or "body"
        raise invalid([Problem("bad_value", field, f"{field}: {text}")]) from error
