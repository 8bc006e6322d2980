"""Waiting times of steps, for data and for other ranks, as shares of the time between two reports."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

Item = TypeVar("Item")
Waiting = Literal["data_wait", "communication"]


class Meters:
    """Adds up waiting times; `take` gives them as shares of the time since it was called before.

    Args:
        clock_s: monotonic seconds.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._waited_s: dict[str, float] = {}
        self._all_s: dict[str, float] = {}

    @contextmanager
    def waiting(self, what: Waiting) -> Iterator[None]:
        """Count the time of the body as waiting."""
        begun_s = self._clock_s()
        try:
            yield
        finally:
            waited_s = self._clock_s() - begun_s
            self._waited_s[what] = self._waited_s.get(what, 0.0) + waited_s
            self._all_s[what] = self._all_s.get(what, 0.0) + waited_s

    def waited_s(self, what: Waiting) -> float:
        """Return all that was ever counted of a kind of waiting, in seconds."""
        return self._all_s.get(what, 0.0)

    def data(self, source: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of `source`; the time that it takes counts as waiting for data."""
        items = iter(source)
        while True:
            with self.waiting("data_wait"):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def take(self, least_s: float = 0.0) -> dict[str, float]:
        """Return the share of each kind of waiting that was ever counted, 0 to 1; nothing within `least_s` seconds."""
        now_s = self._clock_s()
        elapsed_s = now_s - self._since_s
        if not self._waited_s or elapsed_s <= max(0.0, least_s):
            return {}
        shares = {name: round(min(1.0, waited_s / elapsed_s), 4) for name, waited_s in self._waited_s.items()}
        self._since_s, self._waited_s = now_s, dict.fromkeys(self._waited_s, 0.0)
        return shares


def device_memory_bytes() -> int:
    """Return the memory that PyTorch has allocated on all CUDA devices of this process; 0 without any in use."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count()))
