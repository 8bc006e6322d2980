"""The promise about runs of schedules, recounted from jobs; `invariants.py` lists it with the others."""

from collections.abc import Iterable

from penstock.core.state.schedules import Schedules
from penstock.core.state.state import State


def runs_match_jobs(state: State) -> Iterable[str]:
    """The runs of schedules that are not over are those of live jobs, and no schedule is due without a time."""
    recounted = Schedules(jobs=state.jobs.values()).live
    if recounted != state.schedules.live:
        yield f"live runs {state.schedules.live} differ from {recounted}"
    for key, one in state.schedules.by_key.items():
        if key != one.key:
            yield f"schedule {one.key} is kept as {key}"
