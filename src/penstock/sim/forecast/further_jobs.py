"""Draws the jobs that are submitted while others wait: each further day is one of the latest days anew, or empty.

A day is taken whole: who submits in crowds goes on doing so, and nights stay nights. The empty day stands for what has
not been seen: the fewer days are known, the more often it comes. Source: the block bootstrap (Künsch 1989, "The
jackknife and the bootstrap for general stationary observations").
"""

import random
from collections.abc import Callable, Iterator, Sequence

from penstock.core.model.ids import JobId
from penstock.core.predict.arrivals import DAY_MS, Arrival
from penstock.core.state.state import State
from penstock.traces.model import TraceJob, Work

ArrivalDays = Sequence[Sequence[Arrival]]
"""The arrivals of whole days, the latest day first."""
DAYS_MIN = 3
"""A day or two may be unusual: where fewer are known, no further jobs come."""
FURTHER_MAX = 5_000
"""Further jobs of one sample; after them none come."""


def further_jobs(
    days: ArrivalDays,
    state: State,
    now_ms: int,
    draw: random.Random,
    length_ms: Callable[[JobId], int],
    weary: Callable[[], bool],
) -> Iterator[TraceJob]:
    """Yield jobs like those of past days, in the order of time, from now on.

    Args:
        length_ms: how long a live job of this sample runs; 0 for a job that is not live.
        weary: polled before each job; once true, no further ones come.
    """
    if len(days) < DAYS_MIN:
        return
    queues = state.config.queue_by_name
    count = 0
    for ahead in range(FURTHER_MAX):
        back = draw.randrange(len(days) + 1)
        for one in days[back] if back < len(days) else ():
            run_ms = length_ms(one.job_id) or one.length_ms
            if not run_ms or one.spec.queue not in queues:
                continue  # it left without a run, or its queue is gone
            count += 1
            if count > FURTHER_MAX or weary():
                return
            at_ms = max(now_ms + 1, one.submitted_ms + (back + 1 + ahead) * DAY_MS)
            told = (one.expected_ms, one.most_ms) if one.expected_ms else None
            yield TraceJob("", at_ms, one.spec, one.user, Work(run_ms, saves=True), predicted=told)
