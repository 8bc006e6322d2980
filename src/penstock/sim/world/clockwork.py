"""Simulated time: a queue of planned actions, and clocks that read it."""

import heapq
from collections.abc import Callable

UNIX_BEGIN_MS = 1_700_000_000_000


class Agenda:
    """Planned actions by time. Actions at the same time run in the order they were planned."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + max(0, delay_ms), self._count, action))

    def step(self) -> bool:
        """Run the next action; return False when none is left."""
        if not self._heap:
            return False
        self.now_ms, _, action = heapq.heappop(self._heap)
        action()
        return True


class ServerClock:
    """The server's clocks run right."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda

    def unix_ms(self) -> int:
        return UNIX_BEGIN_MS + self._agenda.now_ms

    def monotonic_ms(self) -> int:
        return self._agenda.now_ms


class NodeClock:
    """A node's clock runs a little fast or slow."""

    def __init__(self, agenda: Agenda, rate_ppm: int) -> None:
        self._agenda, self._rate_ppm = agenda, rate_ppm

    def now_ms(self) -> int:
        return self._agenda.now_ms * (1_000_000 + self._rate_ppm) // 1_000_000
