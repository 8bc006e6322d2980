"""What tenants owe: worked out from the log, whenever it is asked."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api import types as api
from penstock.control.calendar import month_named, months
from penstock.core.errors import InvalidInput, nearest
from penstock.core.ledger.bill import Bill, bill
from penstock.core.ledger.pricing import charges
from penstock.core.ledger.sessions import Session, SessionLog
from penstock.core.model.ids import AttemptNumber, JobId, Rank, TenantName
from penstock.core.model.prices import Billing
from penstock.server.answers import ApiError, answer
from penstock.server.backend import Backend
from penstock.server.openapi import returns

BATCH = 10_000


def bill_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/bill", **returns(api.BillList))
    async def show_bills(
        who: caller,
        tenant: Annotated[str | None, Query(max_length=63, description="only this one")] = None,
        month: Annotated[str | None, Query(max_length=10, description="such as 2026-11; else the present one")] = None,
    ) -> Response:
        """Say what each tenant owes for a month, up to now; recomputed from the log."""
        billing, now_ms = backend.state.config.billing, backend.clock.unix_ms()
        known = {t.name for t in backend.state.config.tenants}
        try:
            from_ms, end_ms = month_named(billing.time_zone, month) if month else (0, 0)
        except InvalidInput as error:
            raise ApiError("invalid_input", error.message, problems=error.problems) from error
        if not month:
            from_ms = months(billing.time_zone, now_ms, now_ms)[0]
        until_ms = min(end_ms, now_ms) if month else now_ms
        if until_ms <= from_ms or not billing.tariff.prices:
            return answer(api.BillList(from_ms, until_ms, [], bool(billing.tariff.prices)))
        found = await asyncio.to_thread(_bills, backend, billing, tenant, from_ms, until_ms)
        if tenant is not None and not found and tenant not in known:  # one that is gone has its bills still
            raise ApiError("not_found", f"there is no tenant '{tenant}'", hint=nearest(tenant, sorted(known)))
        return answer(api.BillList(from_ms, until_ms, found))


def _bills(backend: Backend, billing: Billing, tenant: str | None, from_ms: int, until_ms: int) -> list[Bill]:
    log, ended = SessionLog(), list[Session]()
    while records := backend.reader.records(log.seq, BATCH):
        for record in records:
            ended += log.take(record)
    held: dict[TenantName, list[Session]] = {}
    for session in (*ended, *log.open.values()):
        if tenant in (None, session.tenant):
            held.setdefault(session.tenant, []).append(session)
    found = (bill_of(name, held[name], billing, from_ms, until_ms) for name in sorted(held))
    return [one for one in found if one.lines]


def bill_of(tenant: TenantName, held: Iterable[Session], billing: Billing, from_ms: int, until_ms: int) -> Bill:
    """Return the bill of a tenant for [from_ms, until_ms), given all sessions that it ever had."""
    month_ms = months(billing.time_zone, from_ms, from_ms)[0]
    counted = [s for s in _since(held, month_ms, billing.tariff.minimum_ms) if s.start_ms < until_ms]
    first_ms = min((s.start_ms for s in counted), default=from_ms)
    begins = months(billing.time_zone, min(first_ms, from_ms), until_ms)
    return bill(tenant, billing, charges(counted, billing.tariff, begins, from_ms, until_ms), from_ms, until_ms)


def _since(held: Iterable[Session], month_ms: int, minimum_ms: int) -> list[Session]:
    """Return the sessions of holds that count for anything since the month began."""
    holds: dict[tuple[JobId, AttemptNumber, Rank], list[Session]] = {}
    for session in held:
        holds.setdefault((session.job_id, session.attempt, session.rank), []).append(session)

    def counts(session: Session) -> bool:
        return not session.end_ms or session.end_ms + minimum_ms > month_ms

    return [session for parts in holds.values() if any(map(counts, parts)) for session in parts]
