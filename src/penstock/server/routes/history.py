"""Routes that look back: timelines of allocations."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api.history import AllocationView, TimelineRow, TimelineView
from penstock.core.ledger.allocations import Allocation
from penstock.core.ledger.timeline import By, Question, keys_by, timeline_of
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem
from penstock.core.model.prices import HOUR_MS
from penstock.core.model.quantities import format_duration
from penstock.server.backend import Backend
from penstock.server.http.kept import KeptAnswers
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import answer
from penstock.server.routes.openapi import returns
from penstock.server.routes.usage import time_of
from penstock.server.selecting import check_names
from penstock.server.services.history import HistoryService

DAY_MS = 24 * HOUR_MS
WINDOW_MAX_MS = 31 * DAY_MS
KEPT_MS = 2_000
"""All pages that show the same get an answer up to this old: many open pages cost as much as one."""
GRID_PARTS = 1_000
"""Windows are widened to multiples of about this part of their length, so that pages opened at other moments share."""
ROWS_MAX = 1_000
Name = Annotated[str, Query(max_length=200)]
Time = Annotated[str, Query(max_length=40, description="a time with its offset, such as 2026-11-01T00:00+01:00")]


def history_routes(app: FastAPI, backend: Backend, history: HistoryService, caller: Any) -> None:
    kept = KeptAnswers(backend.clock, KEPT_MS)

    @app.get("/api/v1/timeline", **returns(TimelineView))
    async def timeline(
        who: caller,
        since: Annotated[Time, Query(alias="from", description="by default a day before its end")] = "",
        until: Annotated[Time, Query(description="by default now")] = "",
        by: Annotated[By, Query(description="what makes a row")] = "node",
        node: Name = "",
        tenant: Name = "",
        user: Name = "",
        job: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=ROWS_MAX, description="rows")] = 200,
        cursor: Annotated[str, Query(max_length=200, description="next_cursor of the page before")] = "",
    ) -> Response:
        """Return what jobs held, as rows of bars; of jobs of others only that nodes were held.

        Of more than 5,000 bars on one page of rows, it says only how much of each row was held over time.
        """
        from_ms, until_ms = _widened(*window_of(since, until, backend.clock.unix_ms(), DAY_MS))
        if tenant and not who.sees(tenant):
            check_names(who, backend.state.config, tenant=tenant)
        asked = Question(from_ms, until_ms, by, node, tenant, user, job, limit, cursor)
        return await kept.of(
            ("timeline", who.sight, asked),
            lambda: backend.pools.heavy.run(lambda: answer(_timeline(backend, history, who, asked))),
        )


def _timeline(backend: Backend, history: HistoryService, who: Scope, asked: Question) -> TimelineView:
    span = history.allocations(asked.from_ms, asked.until_ms)
    nodes, now_ms = backend.state.nodes.copy(), backend.clock.unix_ms()
    found = timeline_of(span.source, asked, who.sees, [str(name) for name in nodes], now_ms=now_ms)
    sizes = {str(name): len(node.spec.devices) for name, node in nodes.items()} if asked.by == "node" else {}
    rows = [TimelineRow(row.key, row.bars, sizes.get(row.key, 0), row.density) for row in found.rows]
    return TimelineView(
        asked.from_ms,
        asked.until_ms,
        asked.by,
        rows,
        _views(found.bars, {row.key: at for at, row in enumerate(rows)}, asked.by, who),
        found.merged,
        found.total,
        found.following,
        span.seq,
        span.complete,
        span.since_ms,
    )


def _views(bars: Sequence[Allocation], rows: dict[str, int], by: By, who: Scope) -> list[AllocationView]:
    seen = {tenant: who.sees(tenant) for tenant in {one.tenant for one in bars}}
    key_of = keys_by(by)
    return [_view(one, rows[key_of(one)], seen=seen[one.tenant]) for one in bars]


def _view(one: Allocation, row: int, *, seen: bool) -> AllocationView:
    held = row, one.node, one.start_ms, one.end_ms or None, list(one.devices), one.device_milli / 1000
    if not seen:
        return AllocationView(*held, held=True)
    named = one.job_id, one.attempt, one.job_name, one.tenant, one.user, one.outcome
    return AllocationView(*held, *named)


def window_of(since: str, until: str, now_ms: int, length_ms: int, most_ms: int = WINDOW_MAX_MS) -> tuple[int, int]:
    """Return the window (unix ms) that a query asks for.

    Args:
        length_ms: its length where the query gives no begin.
    Raises: ApiError for times that are none, an end before its begin, and a window longer than `most_ms`.
    """
    until_ms = time_of("until", until, now_ms) or now_ms
    from_ms = time_of("from", since, now_ms) or until_ms - length_ms
    if from_ms >= until_ms:
        text = f"from is '{since}', expected a time before the end of the window"
        raise invalid([Problem("bad_value", "from", text, since)])
    if until_ms - from_ms > most_ms:
        text = f"the window is {format_duration(until_ms - from_ms)} long, expected {format_duration(most_ms)} at most"
        raise invalid([Problem("bad_value", "from", text, since)])
    return from_ms, until_ms


def _widened(from_ms: int, until_ms: int) -> tuple[int, int]:
    step_ms = max(1_000, (until_ms - from_ms) // GRID_PARTS)
    return from_ms // step_ms * step_ms, -(-until_ms // step_ms) * step_ms
