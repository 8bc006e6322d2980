"""Changes that are undone: a context for what is tried in each cycle for each class of jobs.

Not a generator (`contextlib.contextmanager`): entering and leaving one takes three times as long.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

Mark = TypeVar("Mark")


class Tentative(Generic[Mark]):
    """Calls `begin` when it is entered, and `undo` with its value when it is left."""

    __slots__ = ("_begin", "_mark", "_undo")

    def __init__(self, begin: Callable[[], Mark], undo: Callable[[Mark], None]) -> None:
        self._begin, self._undo = begin, undo

    def __enter__(self) -> None:
        self._mark = self._begin()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._undo(self._mark)
