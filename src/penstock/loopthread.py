"""An event loop in a thread of its own, for work that must not wait for API requests."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")
END_WAIT_S = 2.0


class LoopThread:
    """Runs from `start` to `stop`; any thread may call its methods."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, soon; nothing is called once the loop has ended."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Let the loop end, and wait a moment for it."""
        if self._thread.ident is not None:
            self.call(self.loop.stop)
            self._thread.join(END_WAIT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()
