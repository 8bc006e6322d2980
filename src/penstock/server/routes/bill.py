"""The route of bills: computed from the log at each request."""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api import types as api
from penstock.control.calendar import local_time, month_named, months
from penstock.core.model.errors import InvalidInput, nearest
from penstock.server.backend import Backend
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import ApiError, answer
from penstock.server.routes.openapi import returns
from penstock.server.services.billing import BillingService


def bill_routes(app: FastAPI, backend: Backend, service: BillingService, caller: Any) -> None:
    @app.get("/api/v1/bill", **returns(api.BillList))
    async def show_bills(
        who: caller,
        tenant: Annotated[str | None, Query(max_length=63, description="only this one")] = None,
        month: Annotated[str | None, Query(max_length=10, description="such as 2026-11; else the present one")] = None,
        summed: Annotated[bool, Query(description="one line for all jobs of a user at one price")] = False,
    ) -> Response:
        """Say what each tenant owes for a month, up to now; recomputed from the log."""
        billing, now_ms = backend.state.config.billing, backend.clock.unix_ms()
        try:
            from_ms, end_ms = month_named(billing.time_zone, month) if month else (0, 0)
        except InvalidInput as error:
            raise invalid(list(error.problems)) from error
        if not month:
            from_ms = months(billing.time_zone, now_ms, now_ms)[0]
        until_ms = min(end_ms, now_ms) if month else now_ms
        priced = bool(billing.tariff.prices)

        def compute() -> Response:
            names = [name for name in service.tenants() if who.sees(name)] if priced else []
            if tenant is not None and priced and tenant not in names:  # a removed tenant still has bills
                raise ApiError("not_found", f"there is no tenant '{tenant}'", hint=nearest(tenant, names))
            wanted = names if tenant is None else [name for name in names if name == tenant]
            bills = service.bills(wanted, from_ms, until_ms) if until_ms > from_ms else []
            zone, found = billing.time_zone, [bill.summed() if summed else bill for bill in bills if bill.lines]
            times = local_time(zone, from_ms), local_time(zone, until_ms)
            return answer(api.BillList(from_ms, until_ms, found, priced, zone, *times))

        question = ("bill", who.sight, tenant, month, summed)
        return await backend.past.of(question, lambda: backend.pools.heavy.run(compute), backend.durable_seq)

    backend.standing.add(lambda who: show_bills(who, summed=True))
