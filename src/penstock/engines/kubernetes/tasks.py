"""Work of an engine that nobody waits for: it is kept until it ends, and an error in it is not lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Work that has begun. An error goes to the loop's exception handler at once, which logs it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # a loop keeps no task alive
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"work failed: {task.get_coro()}", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)
