"""How long an update takes at the present batch, and how much of that is waiting for other ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

KEPT = 64
LEAST = 5
"""Updates before a number is given."""
SKIPPED = 2
"""Updates at a new batch that do not count: buffers grow, kernels are chosen."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Mean seconds of the last pass of an update, with the exchange (`step_s`), and of its waiting (`sync_s`)."""

    step_s: float
    sync_s: float


class Clocked:
    """Times of updates at one batch; `clear` begins anew."""

    def __init__(self) -> None:
        self._updates_s: deque[float] = deque(maxlen=KEPT)
        self._waits_s: deque[float] = deque(maxlen=KEPT)
        self._exchanges_s: deque[float] = deque(maxlen=KEPT)
        self._skip = SKIPPED

    def clear(self) -> None:
        """Forget everything: the batch is another one."""
        self._updates_s.clear()
        self._waits_s.clear()
        self._exchanges_s.clear()
        self._skip = SKIPPED

    def add(self, update_s: float, wait_s: float) -> None:
        """Take in one update: its time, and that which the program was seen to wait for other ranks."""
        if self._skip:
            self._skip -= 1
            return
        self._updates_s.append(update_s)
        self._waits_s.append(min(wait_s, update_s))

    def exchanged(self, seconds: float) -> None:
        """Take in how long a backward pass waited for the exchange of gradients beside what it computed."""
        if not self._skip:
            self._exchanges_s.append(seconds)

    def pace(self, passes: int) -> Pace | None:
        """Return the pace of updates of `passes` passes; None before enough of them are known.

        The passes before the last wait for nobody: an update takes `passes * step - (passes - 1) * sync`.
        """
        if len(self._updates_s) < LEAST:
            return None
        update_s = _middle(self._updates_s)
        sync_s = min(update_s, _middle(self._waits_s) + (_middle(self._exchanges_s) if self._exchanges_s else 0.0))
        return Pace((update_s + (passes - 1) * sync_s) / passes, sync_s)


def _middle(values: Collection[float]) -> float:
    """Return the mean of the middle half: saves and evaluations stand out, and do not count."""
    ordered, cut = sorted(values), len(values) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
