"""Helpers of routes: read bodies, turn refusals into answers, check rights."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from penstock.core.config.job import parse_request
from penstock.core.lifecycle.requests import NewJob
from penstock.core.lifecycle.thresholds import SharedAmount
from penstock.core.messages.requests import Refusal
from penstock.core.model.errors import Problem
from penstock.core.model.words import counted
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import calling

T = TypeVar("T")
FREE_BYTES = 65_536
"""Of each body, outside of any share."""
WAIT = "send them one after the other"
BODY_MAX_BYTES = 16 * 2**20
VALUES_MAX = 4_000_000
"""Values in one body: empty lists and mappings take 30 times the bytes that they are sent as."""
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


class LargeBody:
    """A body whose bytes count against its sender's share of a room: `with` gives it, and the room back at the end."""

    def __init__(self, room: SharedAmount) -> None:
        caller = calling.get()
        self._names = (caller.tenant, f"{caller.tenant}/{caller.user}")
        self._room, self._taken = room, 0
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        """Take one more piece. Raises: ApiError when it is over the sender's share."""
        self._data += chunk
        if len(self._data) > FREE_BYTES:
            if self._room.take(self._names, len(chunk)) is not None:
                raise ApiError("too_many_requests", "your other requests that are being read are too large", hint=WAIT)
            self._taken += len(chunk)

    def __len__(self) -> int:
        return len(self._data)

    def __enter__(self) -> bytes:
        return bytes(self._data)

    def __exit__(self, *_: object) -> None:
        if self._taken:
            self._room.give_back(self._names, self._taken)


async def large_body_of(request: Request, room: SharedAmount, most: int = BODY_MAX_BYTES) -> LargeBody:
    """Return the body. Raises: ApiError when it is over the limit, or over the sender's share of the room."""
    announced, body = request.headers.get("content-length", "0"), LargeBody(room)
    try:
        if announced.isdigit() and int(announced) > most:
            raise ApiError("too_large", f"a request may have {most} bytes")
        async for chunk in request.stream():
            body.add(chunk)
            if len(body) > most:
                raise ApiError("too_large", f"a request may have {most} bytes")
    except BaseException:
        body.__exit__()
        raise
    return body


def json_of(body: bytes) -> Any:
    """Return what a body says. Raises: ApiError when it is not JSON."""
    try:
        return _decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("not_json", "the body is not JSON", detail=str(error)) from error


def jobs_of(body: bytes) -> Sequence[NewJob]:
    """Return the jobs that a body asks for; for a thread where it is large. Raises: ApiError with all that is wrong."""
    values = sum(body.count(sign) for sign in (b",", b"[", b"{"))
    if values > VALUES_MAX:
        raise ApiError("too_large", f"a request may have {VALUES_MAX} values, this one has about {values}")
    entries, problems = parse_request(json_of(body))
    if problems:
        raise invalid(problems)
    return entries


def title_of(problems: list[Problem]) -> str:
    first = problems[0].message
    return first if len(problems) == 1 else f"{first} (and {counted(len(problems) - 1, 'more problem')})"


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
