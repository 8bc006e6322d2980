"""A screen of `penstock top` without a terminal, before a server in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from textual import events
from textual.pilot import Pilot

from penstock.cli.top.app import TopApp
from penstock.cli.top.looks import ListWanted
from penstock.client import Client
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.testing.server import InProcessServer

SHOWN_S = 20.0
SMALL, LARGE = (80, 24), (200, 50)


class Printed:
    """Outputs of programs, as a test writes them."""

    def __init__(self) -> None:
        self.written: dict[tuple[int, int, int], bytes] = {}
        """By job, attempt and rank."""

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        found = [(attempt, rank, len(data)) for (job, attempt, rank), data in self.written.items() if job == job_id]
        return [(AttemptNumber(attempt), Rank(rank), size) for attempt, rank, size in found]

    def read(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        data = self.written.get((job_id, attempt, rank))
        return None if data is None else (offset, data[offset : offset + limit])

    def size(self, job_id: JobId, attempt: AttemptNumber, rank: Rank) -> int | None:
        data = self.written.get((job_id, attempt, rank))
        return None if data is None else len(data)

    def read_report(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        return None


class Screen:
    """Types keys and reads what is seen."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app, self._pilot = app, pilot

    @property
    def lines(self) -> list[str]:
        """What a reader sees, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def cursor(self) -> str:
        """The selected line."""
        found = []
        for strip in self.app.screen._compositor.render_strips():
            text = "".join(segment.text for segment in strip)
            if all(segment.style is not None and segment.style.reverse for segment in strip if segment.text.strip()):
                found.append(text.strip())
        return next((text for text in found if text), "")

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Paste a text where the cursor is."""
        assert self.app.screen.focused is not None
        self.app.screen.focused.post_message(events.Paste(text))
        await self._pilot.pause()

    async def click(self, x: int, y: int) -> None:
        await self._pilot.click(offset=(x, y))

    async def resize(self, size: tuple[int, int]) -> None:
        await self._pilot.resize_terminal(*size)

    async def looks(self, times: int = 2) -> None:
        """Wait for answers to questions that are asked from now on."""
        for _ in range(times):
            before = self.app.looked
            self.app.look_now()
            await self.until(lambda: self.app.looked > before, "an answer")  # noqa: B023 - awaited at once
        await self._pilot.pause()

    async def shows(self, *texts: str) -> None:
        """Wait until all texts are seen."""
        await self.until(lambda: all(text in self.text for text in texts), f"{texts}")

    async def until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SHOWN_S
        while not happened():
            assert time.monotonic() < deadline, f"{what} is not seen:\n{self.text}"
            await self._pilot.pause(0.01)


@asynccontextmanager
async def opened(
    server: InProcessServer,
    *,
    url: str = "",
    token: str = "",
    view: str = "queue",
    size: tuple[int, int] = SMALL,
    interval_s: float = 60.0,
) -> AsyncIterator[Screen]:
    """Open a screen; it looks when a test lets it, or every `interval_s`."""
    app = TopApp(
        lambda: Client.at(url or server.url, token=token or server.token, insecure=True),
        ListWanted(view),
        clock_ms=server.engine.clock.unix_ms,
        interval_s=interval_s,
    )
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.until(lambda: app.looked > 0 or bool(app.away), "the first look")
        yield screen


def played(test: Coroutine[Any, Any, None]) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(test)
