"""Whether a job fails in the same way repeatedly."""

import re

from penstock.core.model import events as ev
from penstock.core.model.jobs import Failure

_CHANCE = re.compile(r"0x[0-9a-fA-F]+|\d{4,}|\d+ process(?:es)?\b")
"""Addresses, process numbers, ports, and how many processes were killed: they differ in failures that are alike."""


def next_failure(before: Failure | None, event: ev.AttemptEnded, step: int) -> Failure | None:
    """Return how an attempt that has ended failed, counted with those before it that failed just so."""
    if event.outcome not in ("failed", "hung"):
        return before
    how = _CHANCE.sub("#", event.detail)
    same = before is not None and (before.step, before.how) == (step, how)
    return Failure(step, how, before.times + 1 if before is not None and same else 1)
