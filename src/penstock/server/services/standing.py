"""Questions about the whole past that pages ask first: asked before anyone does, as they take seconds on a long log."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.responses import Response

from penstock.core.model.access import Scope
from penstock.core.model.ids import UserName
from penstock.server.http.kept import max_stale_ms
from penstock.server.services.periodic import repeat

EVERY_S = 3_600
"""Pages accept answers of that age: nobody has to wait for one."""
SHARE = 20
VIEWER = Scope(UserName(""), "viewer")
"""Sees all: the answers for a tenant alone take a part of the time."""
Ask = Callable[[Scope], Awaitable[Response]]


class StandingQuestions:
    """Lives on the event loop."""

    def __init__(self) -> None:
        self._questions: list[Ask] = []

    def add(self, ask: Ask) -> None:
        self._questions.append(ask)

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "the standing questions", EVERY_S, SHARE)

    async def look(self) -> None:
        """Ask all, each after a pause as long as the one before it took."""
        max_stale_ms.set(1000 * EVERY_S)  # what is known is worked out anew where that is due
        for ask in self._questions:
            begun = time.monotonic()
            await ask(VIEWER)
            await asyncio.sleep(time.monotonic() - begun)
