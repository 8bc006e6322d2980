"""Routes about the log: pages of it, and the stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Request
from fastapi.security.utils import get_authorization_scheme_param
from starlette.responses import Response

from penstock.core.access import Scope
from penstock.core.model.events import Record
from penstock.server.answers import answer
from penstock.server.auth import scope_for
from penstock.server.backend import Backend
from penstock.server.limits import CountedStream
from penstock.server.openapi import returns

EVENTS_MAX = 10_000
STREAM_BATCH = 500
STREAM_KEEPALIVE_S = 15.0
LOOKS_AT_ONCE = 2
"""Callers for whom a part of the log is looked through at once: a tenant's few events may lie among many others."""
AfterQuery = Annotated[int, Query(ge=0, le=2**53, description="only events with a higher number")]


def event_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    turns = asyncio.Semaphore(LOOKS_AT_ONCE)

    @app.get("/api/v1/events", **returns(list[Record]))
    async def list_events(
        who: caller, after: AfterQuery = 0, limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 1000
    ) -> Response:
        """Return events of the log that the caller may see, in order; none is left where none comes."""
        while True:
            async with turns:
                found, looked = await asyncio.to_thread(backend.reads.records, who, after, limit)
            if found or looked == after:
                return answer(found)
            after = looked

    @app.get("/api/v1/events/stream", **returns(None, media="text/event-stream"))
    async def stream_events(
        request: Request,
        who: caller,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
    ) -> Response:
        """Follow the log as server-sent events; `after` or Last-Event-ID says where to go on, else from now."""
        start = last_event_id if last_event_id is not None else after
        _, secret = get_authorization_scheme_param(request.headers.get("authorization"))
        follow = _follow(backend, secret, backend.durable_seq if start is None else start)
        return CountedStream(backend.gate.streams, who.user, follow, media_type="text/event-stream")


def scope_now(backend: Backend, secret: str) -> Scope | None:
    """Return what a token may be used for at this moment; None when it is none, or not any more."""
    return scope_for(secret, backend.tokens, backend.state, backend.clock.unix_ms())


async def _follow(backend: Backend, secret: str, after: int) -> AsyncIterator[bytes]:
    """Yield what the owner of a token may see, for as long as it is good: a stream may outlive it by far."""
    yield b": following\n\n"
    while not backend.closing.is_set() and (scope := scope_now(backend, secret)) is not None:
        records, looked = await asyncio.to_thread(backend.reads.records, scope, after, STREAM_BATCH)
        for record in records:
            kind = type(record.event).__name__
            yield f"id: {record.seq}\nevent: {kind}\ndata: ".encode() + msgspec.json.encode(record) + b"\n\n"
        if looked > after:
            after = looked
        elif backend.durable_seq <= after:
            await backend.wait_for_change(STREAM_KEEPALIVE_S)
            if backend.durable_seq <= after:
                yield b": still here\n\n"
