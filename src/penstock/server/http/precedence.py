"""What goes before what in the threads that compute: one interpreter runs one thread at a time."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

APART_S = 0.02
"""Work that has run for so long is not waited for: what follows begins beside it."""
HELD_S = 0.02
"""The longest that a change which has just come keeps other work from beginning."""
CHANGE_S = 0.05
"""A request that changes something and is older than this is a long one, which nothing is kept back for."""

is_change: ContextVar[bool] = ContextVar("is_change", default=False)
"""Whether the request that is being served changes something."""


class Precedence:
    """Changes go before reads, and short work runs alone: for pools whose threads compute. Lives on the event loop.

    The interpreter's lock goes round among all who want it. A submit needs it a dozen times, so it would take as many
    times longer as threads compute beside it. They are no faster for being several: so one piece of work begins when
    the one before has ended, or has run for `APART_S`, and none while a change that has just come is answered.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.fills: list[Callable[[], None]] = []
        """Of each pool: begins what may begin."""
        self._running: dict[object, float] = {}
        """When each piece of work began."""
        self._changes, self._changed_s = 0, -CHANGE_S
        """Those that are being answered, and when the last has come."""
        self._look: tuple[float, asyncio.Handle] | None = None
        """When the pools look again, by the loop's clock, and what to cancel."""

    @contextmanager
    def change(self) -> Iterator[None]:
        """Hold back what waits to begin, for the while of the block."""
        is_change.set(True)
        self._changes, self._changed_s = self._changes + 1, self._now_s()
        try:
            yield
        finally:
            self._changes -= 1
            if not self._changes:
                self._fill()

    def holds(self, since_s: float) -> bool:
        """Return whether work that has waited since then must wait still; the pools look again when that is over."""
        now_s = self._now_s()
        wait_s = max(self._running.values(), default=-APART_S) + APART_S - now_s
        if self._changes and now_s - self._changed_s < CHANGE_S:
            wait_s = max(wait_s, since_s + HELD_S - now_s)
        if wait_s > 0:
            self._look_again(wait_s)
        return wait_s > 0

    def begin(self, work: object) -> None:
        self._running[work] = self._now_s()

    def end(self, work: object) -> None:
        del self._running[work]
        self._fill()

    def now_s(self) -> float:
        return self._now_s()

    def _look_again(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        at_s = loop.time() + after_s
        if self._look is None or at_s < self._look[0]:
            self._cancel_look()
            self._look = at_s, loop.call_later(after_s, self._fill)  # uvloop's handle of a short wait has no `when`

    def _cancel_look(self) -> None:
        if self._look is not None:
            self._look[1].cancel()
            self._look = None

    def _fill(self) -> None:
        self._cancel_look()
        for fill in self.fills:
            fill()
