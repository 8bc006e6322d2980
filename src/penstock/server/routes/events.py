"""Routes about the log: pages of it, and the stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Request
from starlette.responses import Response

from penstock.core.model.access import Scope
from penstock.core.model.events import Record
from penstock.server.backend import Backend
from penstock.server.http.door import scope_of_token, token_of
from penstock.server.http.limits import CountedStream
from penstock.server.http.turns import caller_of
from penstock.server.routes.openapi import returns

EVENTS_MAX = 10_000
STREAM_BATCH, STREAM_BATCH_BYTES = 500, 262_144
STREAM_KEEPALIVE_S = 15.0
LOOKS_MAX = 10
"""Parts of the log that one request looks through: a tenant's few events may lie among many others."""
LOOKED = "X-Penstock-Looked"
GATHER_S = 0.02
"""A follower that has caught up reads on after this long: events of that time come together."""
_encode = msgspec.json.Encoder().encode
AfterQuery = Annotated[int, Query(ge=0, le=2**53, description="only events with a higher number")]


def event_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    looked_to = {
        LOOKED: "the last event that was read; where the answer is empty, continue after it until it is `after`"
    }

    @app.get("/api/v1/events", **returns(list[Record], headers=looked_to))
    async def list_events(
        who: caller, after: AfterQuery = 0, limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 1000
    ) -> Response:
        """Return events of the log that the caller may see, in order."""

        def compute(after: int) -> tuple[bytes, int]:
            found, looked = backend.reads.records(who, after, limit)
            return _encode(found) if found else b"", looked

        body, looked = b"", after
        for _ in range(LOOKS_MAX):  # each look is a turn of its own
            begin = looked
            body, looked = await backend.pools.reads.run(compute, begin)
            if body or looked == begin:
                break
        headers = {LOOKED: str(looked)}
        return Response(body or b"[]", media_type="application/json", headers=headers)

    @app.get("/api/v1/events/stream", **returns(None, media="text/event-stream"))
    async def stream_events(
        request: Request,
        who: caller,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
    ) -> Response:
        """Follow the log as server-sent events; `after` or Last-Event-ID says where to go on, else from now."""
        start = last_event_id if last_event_id is not None else after
        follow = _follow(backend, token_of(request.headers), backend.durable_seq if start is None else start)
        return CountedStream(backend.gate.streams, caller_of(who), follow, media_type="text/event-stream")


async def _follow(backend: Backend, token: str, after: int) -> AsyncIterator[bytes]:
    """Yield events that a token's owner may see, while the token is valid: a stream may outlive it."""

    def compute(scope: Scope, after: int) -> tuple[bytes, int]:
        records, looked = backend.reads.records(scope, after, STREAM_BATCH, STREAM_BATCH_BYTES)
        return b"".join(map(_sent, records)), looked

    yield b": following\n\n"
    while not backend.closing.is_set() and (scope := scope_of_token(backend, token)) is not None:
        piece, looked = await backend.pools.reads.run(compute, scope, after)
        if piece:
            yield piece
        if looked > after:
            after = looked
        elif backend.durable_seq <= after:
            await backend.wait_for_change(STREAM_KEEPALIVE_S)
            if backend.durable_seq <= after:
                yield b": still here\n\n"
            else:
                await asyncio.sleep(GATHER_S)


def _sent(record: Record) -> bytes:
    kind = type(record.event).__name__
    return f"id: {record.seq}\nevent: {kind}\ndata: ".encode() + _encode(record) + b"\n\n"
