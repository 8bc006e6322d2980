"""How many examples a property is tried with: a short profile for each run, a long one for `make soak`."""

import os
from typing import Any

from hypothesis import settings

LONG = bool(os.environ.get("PENSTOCK_SLOW"))
LONG_FACTOR, SHORT_DIVISOR, SHORT_MIN = 20, 2, 15


def examples(count: int, **others: Any) -> settings:
    """Return settings with half of `count` examples, or `LONG_FACTOR` times as many as it in the long profile.

    Never timed: machines that are busy fail no test.
    """
    short = max(min(count, SHORT_MIN), count // SHORT_DIVISOR)
    return settings(max_examples=count * LONG_FACTOR if LONG else short, deadline=None, **others)
