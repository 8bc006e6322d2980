"""How often a loop of the engine turns: soon after something has come, and seldom while nothing does."""

import asyncio
import contextlib


class Pace:
    """The pace of one loop. Everything runs on the engine's loop.

    Waking 50 times a second takes one percent of a core, whatever is done then.
    """

    def __init__(self) -> None:
        self._come = asyncio.Event()

    def wake(self) -> None:
        self._come.set()

    async def wait(self, gather_s: float, idle_s: float | None = None) -> None:
        """Wait until something has come since the last wait, and what comes together with it.

        Args:
            idle_s: wait no longer than this for the first; None: as long as it takes.
        """
        if not self._come.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle_s):  # `wait_for` of Python 3.11 may swallow that it is cancelled
                    await self._come.wait()
        self._come.clear()
        await asyncio.sleep(gather_s)
