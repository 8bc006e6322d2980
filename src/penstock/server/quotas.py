"""The route about quotas: how much of each is used, and by whom."""

import asyncio
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from penstock.api import types as api
from penstock.core.access import Scope
from penstock.core.quotas import QuotaRow, holders, quota_rows
from penstock.core.snapshot import take_snapshot
from penstock.server.answers import answer
from penstock.server.backend import Backend
from penstock.server.openapi import returns


def quota_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/quotas", **returns(api.QuotaList))
    async def show_quotas(who: caller) -> Response:
        """Say how much of each quota is used, borrowed and lent, and who of the caller's tenants holds what."""
        snapshot, now_ms = take_snapshot(backend.state), backend.clock.unix_ms()

        def compute() -> api.QuotaList:
            rows = [row for row in quota_rows(snapshot, now_ms) if _is_seen(row, who)]
            return api.QuotaList(rows, [one for one in holders(snapshot) if who.sees(one.tenant)])

        return answer(await asyncio.to_thread(compute))


def _is_seen(row: QuotaRow, scope: Scope) -> bool:
    """Return whether a row is the caller's to see: all queues, and their own tenants."""
    return row.kind == "queue" or scope.sees(row.name)
