"""An event loop in virtual time: it waits for nothing, so minutes pass in milliseconds, in the same order each time."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
BEYOND_S = 1e-6
"""How far a wait goes beyond the moment it is for: the loop runs what is due a little before, as time is not exact."""


class _Selector(selectors.DefaultSelector):
    """Takes a wait for time that passes."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulated world waits for something that never happens")
        self.passed_s += timeout + BEYOND_S if timeout > 0 else 0.0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual time. Threads are none: what would run in one runs at once."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed_s

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done: asyncio.Future[T] = self.create_future()
        done.set_result(func(*args))
        return done


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs in virtual time from 0 s on."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
