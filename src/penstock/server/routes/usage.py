"""Routes of usage: recomputed from the log, as JSON, CSV or Parquet."""

import io
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import FastAPI, Query
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api.types import PagedList
from penstock.api.usage import UsageList
from penstock.core.ledger.consumption import DIMENSIONS, SUMS, Consumption, Dimension
from penstock.core.ledger.pricing import GIB
from penstock.core.model.answers import ModelUsage, UsageRow
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.foreign import csv_text
from penstock.core.model.ids import JobId
from penstock.core.model.prices import HOUR_MS
from penstock.core.model.quantities import KWH_MJ, parse_duration_ms, parse_time_ms
from penstock.server.backend import Backend
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import ApiError, answer
from penstock.server.lists import USAGE
from penstock.server.routes.openapi import returns
from penstock.server.services.consumed import ConsumedSince
from penstock.server.services.held import HeldLog
from penstock.server.tables import ListQuery, ListTable, list_query, paged

T = TypeVar("T")
P = TypeVar("P", bound=PagedList)

BATCH = 10_000
_AGO = re.compile(r"\d{1,9}(\.\d{1,3})?\s*[a-zA-Z]{1,12}")
SINCE = "a time with its offset, or how long ago in whole hours, such as 30d"
PAGE_SINCE = "30d"
"""What the pages of usage and waste show first."""
ANY = ListQuery(None, "", "", (), "", {})
DOCUMENTS = ("text/csv", "application/vnd.apache.parquet")
COLUMNS = (
    *DIMENSIONS, "model", "device_hours", "measured_device_hours", "used_device_hours", "cpu_hours", "gib_hours",
    "jobs", "attempts", "energy_kwh", "energy_device_hours",
)  # fmt: skip


def usage_routes(app: FastAPI, backend: Backend, held: HeldLog, caller: Any) -> None:
    consumed = ConsumedSince(backend, held)

    @app.get("/api/v1/usage", **returns(UsageList, documents=DOCUMENTS))
    async def usage(
        who: caller,
        query: Annotated[ListQuery, list_query(USAGE)],
        since: Annotated[str, Query(max_length=40, description=f"{SINCE}; by default all")] = "",
        until: Annotated[str, Query(max_length=40, description="a time with its offset; by default now")] = "",
        by: Annotated[str, Query(max_length=100, description="tenant, user, queue, pool, job, node")] = "tenant",
        format: Annotated[Literal["json", "csv", "parquet"], Query()] = "json",  # noqa: A002 - the API's word
    ) -> Response:
        """Return device, CPU and memory time, recomputed from the log, and how much of it programs used."""
        job = query.given.get("job", 0)
        now_ms, wanted = backend.clock.unix_ms(), dimensions_of(by)
        from_ms, end_ms = time_of("since", since, now_ms, HOUR_MS), time_of("until", until, now_ms)
        until_ms = end_ms or now_ms
        check_dimensions(query, wanted)

        def compute() -> Response:
            by = wanted if "tenant" in wanted else ("tenant", *wanted)
            if end_ms:
                found = _between(backend, by, from_ms, end_ms)
            else:
                found = consumed.of_job(by, from_ms, JobId(job)) if job else consumed.rows(by, from_ms)
            rows = _summed([row for row in found if who.sees(row.tenant)], wanted)
            for row in rows:
                row.by_model = {one.model: one.device_milli_ms for one in row.models if one.model}
            if format != "json":
                return _table(rows, wanted, format)
            return answer(UsageList(from_ms, until_ms, rows, matching=len(rows)))

        question = ("usage", who.sight, job, since, until, wanted, format)
        whole = await backend.past.of(question, lambda: backend.pools.heavy.run(compute), backend.durable_seq)
        return whole if format != "json" else await page_of_kept(backend, USAGE, query, whole, UsageList)

    backend.standing.add(lambda who: usage(who, ANY, PAGE_SINCE))


def _between(backend: Backend, by: tuple[Dimension, ...], from_ms: int, until_ms: int) -> list[UsageRow]:
    found = Consumption(by, from_ms, until_ms)
    while records := backend.log.records(found.seq, BATCH):
        found.take(records)
    return found.rows()


def check_dimensions(query: ListQuery, by: Sequence[str]) -> None:
    """Raise ApiError for a condition or an order by a dimension that rows do not have."""
    for name in (*query.given, query.sort.removeprefix("-")):
        if name in DIMENSIONS and name not in by:
            text = f"rows are not by {name}"
            raise invalid([Problem("bad_value", name, text, name, f"add it: by={','.join((*by, name))}")])


async def page_of_kept(
    backend: Backend, table: ListTable[T], query: ListQuery, whole: Response, kind: type[P]
) -> Response:
    """Return a page of an answer that was worked out as a whole: its other pages need not fold the log again."""
    if query.question == ANY.question:
        return whole

    def compute() -> Response:
        found = msgspec.json.decode(whole.body, type=kind)
        return paged(table, query, getattr(found, table.key), lambda rows: replace(found, rows=rows))

    return await backend.pools.reads.run(compute)


def _summed(rows: list[UsageRow], wanted: tuple[Dimension, ...]) -> list[UsageRow]:
    """Return rows without the tenant unless it was asked for."""
    if "tenant" in wanted:
        return rows
    found: dict[tuple[object, ...], UsageRow] = {}
    for row in rows:
        row.tenant = ""
        key = tuple(getattr(row, name) for name in wanted)
        had = found.setdefault(key, row)
        if had is not row:
            _join(had, row)
            models = {one.model: one for one in had.models}
            for one in row.models:
                _join(models.setdefault(one.model, ModelUsage(one.model)), one)
            had.models = [models[name] for name in sorted(models)]
    return list(found.values())


def _join(had: UsageRow | ModelUsage, more: UsageRow | ModelUsage) -> None:
    for field in (*SUMS, "jobs", "attempts"):  # a job is of one tenant: it is counted once
        setattr(had, field, getattr(had, field) + getattr(more, field))


def dimensions_of(by: str) -> tuple[Dimension, ...]:
    """Return the dimensions that a query names, each once, in their own order.

    Raises: ApiError that names the parameter.
    """
    found = []
    for name in by.split(","):
        if name.strip() not in DIMENSIONS:
            text = f"by is '{by}', expected some of {', '.join(DIMENSIONS)}"
            raise invalid([Problem("bad_value", "by", text, by, nearest(name, DIMENSIONS))])
        found.append(name.strip())
    return tuple(name for name in DIMENSIONS if name in found)


def time_of(field: str, text: str, now_ms: int, whole_ms: int = 1) -> int:
    """Return a time of a query (unix ms), 0 where it has none: a time, or how long ago.

    Args:
        whole_ms: how long ago is counted from a whole multiple of this, so that the same question stays the same.
    Raises: ApiError that names the parameter.
    """
    if not text:
        return 0
    try:
        if _AGO.fullmatch(text):
            return max(1, (now_ms - parse_duration_ms(text)) // whole_ms * whole_ms)
        return parse_time_ms(text)
    except ValueError:
        expected = "a time with its offset such as 2026-11-01T00:00+01:00, or how long ago such as 30d"
        raise invalid([Problem("bad_value", field, f"{field} is '{text}', expected {expected}", text)]) from None


def _lines(rows: list[UsageRow]) -> list[tuple[object, ...]]:
    """Return a line for each row and model with the figures of that model alone, so that a column may be summed."""
    hours = 1000 * HOUR_MS
    return [
        (
            *(getattr(row, name) for name in DIMENSIONS),
            one.model,
            one.device_milli_ms / hours,
            one.measured_milli_ms / hours,
            one.used_milli_ms / hours,
            one.cpu_milli_ms / hours,
            one.memory_byte_ms / (GIB * HOUR_MS),
            one.jobs,
            one.attempts,
            one.energy_mj / KWH_MJ,
            one.powered_milli_ms / hours,
        )
        for row in rows
        for one in row.models
    ]


def _table(rows: list[UsageRow], wanted: tuple[Dimension, ...], kind: str) -> Response:
    keep = [i for i, name in enumerate(COLUMNS) if name not in DIMENSIONS or name in wanted]
    return table_of([COLUMNS[i] for i in keep], [[line[i] for i in keep] for line in _lines(rows)], kind)


def table_of(columns: list[str], lines: list[list[object]], kind: str) -> Response:
    """Return a table as csv or parquet.

    Raises: ApiError when the library for the latter is missing.
    """
    if kind == "csv":
        return Response(csv_text([columns, *lines]), media_type="text/csv")
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        hint = "pip install 'penstock[parquet]'"
        raise ApiError("unavailable", "Parquet needs the library pyarrow", hint=hint) from error
    made = pyarrow.table({name: [line[at] for line in lines] for at, name in enumerate(columns)})
    body = io.BytesIO()
    pyarrow.parquet.write_table(made, body)
    return Response(body.getvalue(), media_type="application/vnd.apache.parquet")
