"""Bodies: bounded before they are read, against the caller's own share."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from penstock.core.lifecycle.thresholds import SharedAmount
from penstock.server.http import parsing as intake
from penstock.server.http.parsing import FREE_BYTES, jobs_of, large_body_of
from penstock.server.http.responses import ApiError


def request_of(*chunks: bytes, length: int | None = None) -> Request:
    """Return a request whose body comes in these pieces."""
    left: Iterator[bytes] = iter(chunks)

    async def receive() -> dict[str, Any]:
        chunk = next(left, None)
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def refusal_of(request: Request, room: SharedAmount) -> str:
    with pytest.raises(ApiError) as refused, await large_body_of(request, room, 10 * FREE_BYTES):
        raise AssertionError("it was read")
    return refused.value.details.code


@pytest.mark.parametrize("jobs", [1, 5_000])
def test_what_is_wrong_with_jobs_is_said(jobs):
    with pytest.raises(ApiError) as refused:
        jobs_of(json.dumps([{"comand": "true"}] * jobs).encode())
    assert refused.value.details.status == 422


def test_a_body_of_more_values_than_any_request_needs_is_not_decoded(monkeypatch):
    monkeypatch.setattr(intake, "json_of", lambda body: pytest.fail("it was decoded"))
    with pytest.raises(ApiError) as refused:
        jobs_of(b"[" + b"{}," * (intake.VALUES_MAX // 2) + b"{}]")
    assert refused.value.details.code == "too_large"


def test_a_body_counts_against_the_share_of_its_sender_until_it_was_read():
    async def read() -> None:
        room = SharedAmount(4 * FREE_BYTES)
        with await large_body_of(request_of(b"x" * FREE_BYTES, b"y" * FREE_BYTES), room) as body:
            assert (len(body), room.used) == (2 * FREE_BYTES, FREE_BYTES)
            assert await refusal_of(request_of(*[b"z" * FREE_BYTES] * 3), room) == "too_many_requests"
        assert room.used == 0

    asyncio.run(read())


def test_a_body_over_the_limit_is_refused_as_soon_as_that_is_known():
    async def read() -> None:
        room = SharedAmount(2**30)
        assert await refusal_of(request_of(length=10 * FREE_BYTES + 1), room) == "too_large"
        assert await refusal_of(request_of(*[b"x" * FREE_BYTES] * 11), room) == "too_large"
        assert room.used == 0

    asyncio.run(read())


def test_small_bodies_are_always_read():
    async def read() -> bytes:
        with await large_body_of(request_of(b"{}"), SharedAmount(0)) as body:
            return body

    assert asyncio.run(read()) == b"{}"
