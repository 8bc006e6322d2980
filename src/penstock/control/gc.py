"""Keeps Python's garbage collector from stopping the control loop to scan objects that it cannot free."""

import gc
import time
from collections.abc import Mapping

YOUNG_MAX = 10_000
"""Containers made since the last collection before the next: some fifty cycles of a big cluster, not two."""
YOUNG_COLLECTIONS = 4
"""Young collections per collection of the next generation, which stops all threads for about 40 ms."""
LONG_S = 0.05
"""A full collection that stopped all threads for this long is not to scan the same objects again."""
_FULL = 2


class _Survivors:
    """Freezes what a long full collection has found alive: answers about the past hold many thousands of objects.

    What of it comes to be garbage by a cycle is kept for ever; all else is freed by its references. It happens seldom:
    a collection is long only with many new objects.
    """

    def __init__(self) -> None:
        self._begun_s = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != _FULL:
            return
        now_s = time.perf_counter()
        if phase == "start":
            self._begun_s = now_s
        elif now_s - self._begun_s >= LONG_S:
            gc.freeze()


def settle() -> None:
    """Freeze all live objects out of later collections, and collect young objects more seldom.

    The state is large, lives as long as the server, and has no cycles of references; each young collection would scan
    every job of the lists that changed since the last one. Call it once the state is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, YOUNG_COLLECTIONS, *gc.get_threshold()[2:])
    if not any(isinstance(callback, _Survivors) for callback in gc.callbacks):
        gc.callbacks.append(_Survivors())
