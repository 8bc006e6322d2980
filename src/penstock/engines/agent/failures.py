"""Failures of the system that the agent's loops outlive: a full disk, no memory, no process or descriptor left."""

import contextlib
import logging
import time
from collections.abc import Iterator

log = logging.getLogger(__name__)

PAUSE_S = 0.05
"""For a loop in which what is due remains due."""


class FailureLog:
    """Logs each kind of failure once, not each turn of a loop that tries again."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int | None]] = set()

    def note(self, what: str, error: OSError | MemoryError) -> None:
        """Log that `what` failed, unless it has failed in the same way before."""
        kind = (what, getattr(error, "errno", None))
        if kind not in self._seen:
            self._seen.add(kind)
            log.error("failed, is tried again: %s", what, exc_info=error)

    @contextlib.contextmanager
    def outlive(self, what: str, *, pause_s: float = 0.0) -> Iterator[None]:
        """Note what the system refuses inside, and go on behind it, after a pause."""
        try:
            yield
        except (OSError, MemoryError) as error:
            self.note(what, error)
            time.sleep(pause_s)
