"""Looks every few seconds how much of the maxima of queues and tenants is used, and has alerts written to the log.

What is to be said is pure (`core/lifecycle/quota_alerts.py`). A peak that lasts less than the pause may go unseen.
"""

import asyncio

from penstock.control import messages as msg
from penstock.core.lifecycle.quota_alerts import due_notes, is_limited
from penstock.core.state.snapshot import snapshot_beside
from penstock.core.status.quotas import quota_rows
from penstock.server.backend import Backend
from penstock.server.services.periodic import repeat

LOOK_EVERY_S = 5.0
LOOK_SHARE = 50


class QuotaAlertService:
    """One for each server."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "the quotas", LOOK_EVERY_S, LOOK_SHARE)

    async def look(self) -> None:
        """Have all alerts written that are due."""
        state, now_ms = self._backend.state, self._backend.clock.unix_ms()
        if not is_limited(state.config):
            return
        snapshot, last = snapshot_beside(state), state.quota_notes.last
        found = await asyncio.to_thread(lambda: due_notes(quota_rows(snapshot, now_ms), last, now_ms))
        if found:
            await self._backend.ask(msg.NoteQuotas(tuple(found)))
