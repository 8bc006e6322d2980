"""Routes about the log: pages of it, and the stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from fastapi import FastAPI, Header, Query, Request
from starlette.responses import Response

from penstock.core.config.reader import short
from penstock.core.model import events as ev
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.events import Record
from penstock.core.model.ids import JobId
from penstock.server.backend import Backend
from penstock.server.http.door import scope_of_token, token_of
from penstock.server.http.limits import CountedStream
from penstock.server.http.parsing import invalid
from penstock.server.http.turns import caller_of
from penstock.server.routes.openapi import returns
from penstock.server.routes.usage import time_of

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
        who: caller,
        after: AfterQuery = 0,
        limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 1000,
        kind: Annotated[list[str] | None, Query(max_length=16, description="one or several, as JobFinished")] = None,
        job: Annotated[int, Query(ge=0, le=2**53, description="only what the log says of this job")] = 0,
        since: Annotated[str, Query(max_length=40, description="a time with its offset, or how long ago: 1h")] = "",
        until: Annotated[str, Query(max_length=40, description="a time with its offset; before it")] = "",
    ) -> Response:
        """Return events of the log that the caller may see, in order."""
        now_ms = backend.clock.unix_ms()
        span = time_of("since", since, now_ms), time_of("until", until, now_ms)
        query = EventQuery(kinds_of(kind or ()), job, *span)

        def compute(after: int) -> tuple[bytes, int]:
            found, looked = _found(backend, who, query, after, limit)
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


class EventQuery(NamedTuple):
    """Which events."""

    kinds: tuple[type[ev.Event], ...]
    """Empty: all."""
    job: int
    since_ms: int
    until_ms: int
    """0: no end."""

    def fits(self, record: Record) -> bool:
        return (not self.kinds or isinstance(record.event, self.kinds)) and record.time_ms >= self.since_ms


KINDS: dict[str, type[ev.Event]] = {kind.__name__: kind for kind in get_args(ev.AnyEvent)}


def kinds_of(names: Sequence[str]) -> tuple[type[ev.Event], ...]:
    """Return the kinds of events of some names. Raises: ApiError with the nearest name."""
    for name in names:
        if name not in KINDS:
            text = f"kind is '{short(name)}': there are no such events"
            raise invalid([Problem("unknown_kind", "kind", text, short(name), nearest(name, KINDS))])
    return tuple(KINDS[name] for name in names)


def _found(backend: Backend, who: Scope, query: EventQuery, after: int, limit: int) -> tuple[list[Record], int]:
    """Return the next events that match, and up to where was looked; where that is `after`, there are no more."""
    reads, last = backend.reads, backend.durable_seq
    if query.job:
        records = reads.records_of_job(who, JobId(query.job))
        fits = [one for one in records if one.seq > after and query.fits(one)]
        found = [one for one in fits if not query.until_ms or one.time_ms < query.until_ms][:limit]
        return found, found[-1].seq if len(found) == limit else max(after, last)
    begin = max(after, reads.before_time(query.since_ms)) if query.since_ms else after
    end = reads.before_time(query.until_ms) if query.until_ms else last
    if query.until_ms and begin >= end:
        return [], max(after, last)
    wanted = query.fits if query.kinds or query.since_ms else None
    found, looked = reads.records(who, begin, limit, wanted=wanted)
    if query.until_ms and looked >= end:
        return [one for one in found if one.seq <= end], max(looked, last)
    return found, looked


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
