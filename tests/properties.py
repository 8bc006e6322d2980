"""How many examples a property is tried with: a short profile for each run, a long one for `make soak`."""

import os
from typing import Any

from hypothesis import settings

LONG = bool(os.environ.get("PENSTOCK_SLOW"))
LONG_FACTOR = 20


def examples(count: int, **others: Any) -> settings:
    """Return settings with `count` examples, or `LONG_FACTOR` times as many in the long profile; never timed."""
    return settings(max_examples=count * (LONG_FACTOR if LONG else 1), deadline=None, **others)
