"""The routes about quotas and pools: how much of each is used, and by whom."""

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI
from starlette.responses import Response

from penstock.api.quotas import PoolList, QuotaList
from penstock.core.model.access import Scope
from penstock.core.model.answers import QuotaRow
from penstock.core.state.snapshot import snapshot_beside
from penstock.core.status.pools import pool_stats
from penstock.core.status.quotas import holders, quota_rows, seen_holders
from penstock.server.backend import Backend
from penstock.server.http.responses import answer
from penstock.server.lists import POOLS, QUOTAS
from penstock.server.routes.openapi import returns
from penstock.server.tables import ListQuery, list_query, paged

WHOLE = ("quotas",)
"""The question of the rows of all tenants, of which each caller gets what they see: no sums are worked out for it."""


def quota_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/quotas", **returns(QuotaList))
    async def show_quotas(who: caller, query: Annotated[ListQuery, list_query(QUOTAS)]) -> Response:
        """Say how much of each quota is used, borrowed and lent, and who holds what, as far as names are shown."""

        def work_out() -> Response:
            snapshot, now_ms = snapshot_beside(backend.state), backend.clock.unix_ms()
            rows = quota_rows(snapshot, now_ms, backend.state.quota_notes.last)
            alike = backend.state.indexes.charges.alike.copy()
            return answer(QuotaList(rows, holders(alike, snapshot.config.quota_pools)))

        def seen() -> Response:
            found = msgspec.json.decode(whole.body, type=QuotaList)
            rows = [row for row in found.quotas if _is_seen(row, who)]
            held = seen_holders(found.holders, who.sees, backend.state.config.settings.holders_shown)
            return paged(QUOTAS, query, rows, lambda page: QuotaList(page, held))

        seq = backend.state.seq
        whole = await backend.kept.of(WHOLE, lambda: backend.pools.heavy.run(work_out), seq)  # for nobody as it is
        shown = await backend.pools.reads.run(seen)
        shown.headers.update({name: whole.headers[name] for name in ("age",) if name in whole.headers})
        return shown

    @app.get("/api/v1/pools", **returns(PoolList))
    async def list_pools(who: caller, query: Annotated[ListQuery, list_query(POOLS)]) -> Response:
        """List pools: what they have, how much of it is given out, and the state of their devices."""

        def compute() -> Response:
            return paged(POOLS, query, pool_stats(snapshot_beside(backend.state), backend.clock.unix_ms()), PoolList)

        question = ("pools", query.question)
        return await backend.kept.of(question, lambda: backend.pools.heavy.run(compute), backend.state.seq)


def _is_seen(row: QuotaRow, scope: Scope) -> bool:
    """Return whether a row is the caller's to see: all queues, and their own tenants."""
    return row.kind == "queue" or scope.sees(row.name)
