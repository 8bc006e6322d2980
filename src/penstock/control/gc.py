"""Keeps Python's garbage collector from stopping the control loop to scan objects that it cannot free."""

import gc

YOUNG_MAX = 10_000
"""Containers made since the last collection before the next: some fifty cycles of a big cluster, not two."""
YOUNG_COLLECTIONS = 4
"""Young collections per collection of the next generation, which stops all threads for about 40 ms."""


def settle() -> None:
    """Freeze all live objects out of later collections, and collect young objects more seldom.

    The state is large, lives as long as the server, and has no cycles of references; each young collection would scan
    every job of the lists that changed since the last one. Call it once the state is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, YOUNG_COLLECTIONS, *gc.get_threshold()[2:])
