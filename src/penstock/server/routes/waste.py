"""Allocated but unused device time, and its cost: recomputed from the log, as JSON, CSV or Parquet."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api.usage import WasteList
from penstock.control.calendar import ZoneDates
from penstock.core.ledger import posting as treasury
from penstock.core.ledger.consumption import DIMENSIONS, Dimension, sortable
from penstock.core.ledger.waste import KINDS, waste_of
from penstock.core.model.answers import WasteRow
from penstock.core.model.prices import HOUR_MS
from penstock.server.backend import Backend
from penstock.server.http.responses import answer
from penstock.server.lists import WASTE
from penstock.server.routes.openapi import returns
from penstock.server.routes.usage import (
    ANY,
    DOCUMENTS,
    PAGE_SINCE,
    SINCE,
    check_dimensions,
    dimensions_of,
    page_of_kept,
    table_of,
    time_of,
)
from penstock.server.services.held import HeldLog
from penstock.server.tables import ListQuery, list_query

_TIMES = ("device", *KINDS[:-1])
_COSTS = ("cost", *(f"{kind}_cost" for kind in KINDS))
_SUMMED = (*(f"{name}_milli_ms" for name in _TIMES), *_COSTS)
Since = Annotated[str, Query(max_length=40, description=f"{SINCE}; by default the present month")]


def waste_routes(app: FastAPI, backend: Backend, held: HeldLog, caller: Any) -> None:
    @app.get("/api/v1/waste", **returns(WasteList, documents=DOCUMENTS))
    async def waste(
        who: caller,
        query: Annotated[ListQuery, list_query(WASTE)],
        since: Since = "",
        until: Annotated[str, Query(max_length=40, description="a time with its offset; by default now")] = "",
        by: Annotated[str, Query(max_length=100, description="tenant, user, queue, pool, job, node")] = "tenant",
        format: Annotated[Literal["json", "csv", "parquet"], Query()] = "json",  # noqa: A002 - the API's word
    ) -> Response:
        """Return what was used, idle (and why) or not known of what was held, with what each of it cost."""
        now_ms, billing = backend.clock.unix_ms(), backend.state.config.billing
        begin_ms, end_ms = time_of("since", since, now_ms, HOUR_MS), time_of("until", until, now_ms)
        wanted = dimensions_of(by)
        check_dimensions(query, wanted)
        until_ms = min(end_ms or now_ms, now_ms)
        from_ms = begin_ms or ZoneDates(billing.time_zone).month(until_ms)

        def compute() -> Response:
            rows = _rows(backend, held, who.sees, wanted, from_ms, until_ms)
            if format != "json":
                return _table(rows, wanted, format, billing.digits)
            priced = bool(billing.tariff.prices)
            return answer(
                WasteList(from_ms, until_ms, billing.currency, billing.digits, priced, rows, matching=len(rows))
            )

        question = ("waste", who.sight, since, until, wanted, format)
        whole = await backend.past.of(question, lambda: backend.pools.heavy.run(compute), backend.durable_seq)
        return whole if format != "json" else await page_of_kept(backend, WASTE, query, whole, WasteList)

    backend.standing.add(lambda who: waste(who, ANY, PAGE_SINCE))


def _rows(
    backend: Backend, log: HeldLog, sees: Any, by: tuple[Dimension, ...], from_ms: int, until_ms: int
) -> list[WasteRow]:
    state, now_ms = backend.state, backend.clock.unix_ms()
    config, dates = state.config, ZoneDates(state.config.billing.time_zone)
    held = log.since(from_ms, sees)
    found: list[WasteRow] = []
    for name, use in held.uses.items():
        view = treasury.view_of(name, use, state.money, config, dates, now_ms)
        found += waste_of(use, held.activity, config.billing, view.calendar, by, from_ms, until_ms)
    return _summed(found, by)


def _summed(rows: Iterable[WasteRow], by: tuple[Dimension, ...]) -> list[WasteRow]:
    """Return rows summed over tenants unless the tenant was asked for, in the order of `by`."""
    found: dict[tuple[object, ...], WasteRow] = {}
    for row in rows:
        had = found.setdefault(tuple(getattr(row, name) for name in by), row)
        if had is not row:
            for field in _SUMMED:
                setattr(had, field, getattr(had, field) + getattr(row, field))
    return [found[key] for key in sorted(found, key=lambda key: tuple(map(sortable, key)))]


def _table(rows: list[WasteRow], by: tuple[Dimension, ...], kind: str, digits: int) -> Response:
    names = [name for name in DIMENSIONS if name in by]
    lines = [
        [
            *(getattr(row, name) for name in names),
            *(getattr(row, f"{name}_milli_ms") / (1000 * HOUR_MS) for name in _TIMES),
            *(Decimal(getattr(row, name)).scaleb(-digits) for name in _COSTS),
        ]
        for row in rows
    ]
    hours = ["device_hours", *(f"{name}_device_hours" for name in _TIMES[1:])]
    return table_of([*names, *hours, *_COSTS], lines, kind)
