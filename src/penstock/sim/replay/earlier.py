"""Earlier traces as the history that a scheduler has learned run times from before a replay begins."""

from collections.abc import Iterator, Sequence

from penstock.core.model.ids import JobId
from penstock.core.model.words import counted
from penstock.core.predict.forecast import PastRun, features_of
from penstock.sim.replay.replay import first_ms, from_origin
from penstock.traces.model import Trace, TraceJob

FIRST_ID = 1 << 40
"""Ids of earlier jobs: above those of any replay."""


def earlier_runs(earlier: Sequence[Trace], trace: Trace) -> tuple[tuple[PastRun, ...], str]:
    """Return the runs of earlier traces that had ended when `trace` begins, and a note of what was taken.

    A trace whose last submit comes after the next trace's first is moved back until it does not: offsets, and calendar
    times out of order, say nothing of what lies between.

    Args:
        earlier: the earliest first.
    """
    begin_ms = next_ms = first_ms(from_origin(trace))
    runs: list[PastRun] = []
    left = moved = 0
    for past in map(from_origin, reversed(earlier)):
        if not past.jobs:
            continue
        back_ms = max(0, past.jobs[-1].submit_ms - next_ms)
        next_ms = past.jobs[0].submit_ms - back_ms
        moved += bool(back_ms)
        for job in past.jobs:
            number = len(runs) + left
            run = _run(job, JobId(FIRST_ID + number), back_ms)
            if run is None or run.finished_ms >= begin_ms:
                left += 1
            else:
                runs.append(run)
    names = ", ".join(past.name for past in earlier)
    return tuple(runs), "; ".join(_said(names, len(runs), left, moved))


def _said(names: str, known: int, left: int, moved: int) -> Iterator[str]:
    yield f"history: {counted(known, 'run')} of {names}"
    if left:
        yield f"{counted(left, 'job')} that had not run and ended before the first submit left out"
    if moved:
        yield f"{counted(moved, 'trace')} moved back in time to end before it"


def _run(job: TraceJob, job_id: JobId, back_ms: int) -> PastRun | None:
    """Return how the job ran where it was seen, or else at its submit; None where it never ran."""
    work, seen = job.work, job.seen
    if seen is not None and not seen.started_ms:
        return None
    started_ms, ended_ms = (seen.started_ms, seen.ended_ms) if seen is not None else (job.submit_ms, 0)
    ended_ms = ended_ms or started_ms + work.run_ms
    whole = work.ends != "cancelled" and not work.fails_after_ms
    features = features_of(job.spec, job.user)
    return PastRun(job_id, features, job.submit_ms - back_ms, started_ms - back_ms, ended_ms - back_ms, whole)
