"""When an attempt counts as idle while it holds its places: by its own reports, or by a hang that was found.

Three cases are kept apart. A program that waits for data for nine tenths of its time, or hangs, is *idle*. A program
that makes steps is not. A program without a new report for long is *not known*, which never counts as idle. A
suspended attempt holds nothing that others want.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock.core.model.cluster import IdleRule
from penstock.core.model.events import HangFound, IdleNoted
from penstock.core.model.ids import QueueName
from penstock.core.model.jobs import Job
from penstock.core.model.progress import Gauges, Progress
from penstock.core.model.quantities import format_duration

IdleCause = Literal["data", "hang"]
IDLE_ABOVE_MILLI = 900
"""An attempt that waits for data for more of its time than this counts as idle as a whole."""
SILENT_MS = 1_200_000
"""Time for which a program's report holds: changes are noted within half of it (`control/progress.py`)."""
SILENT_REPORTS = 3
"""Its own steps, or reports, for which it holds where those take longer."""


class Idle(NamedTuple):
    """Since when (unix ms, less the time in which the attempt was suspended), and why."""

    since_ms: int
    cause: IdleCause
    text: str


def known_for_ms(gauges: Gauges) -> int:
    """Return how long a program's report holds."""
    return max(SILENT_MS, SILENT_REPORTS * max(gauges.step_ms, gauges.report_gap_ms))


def tells_more(before: tuple[int, Gauges] | None, step: int, gauges: Gauges) -> bool:
    """Return whether a note says more than the one before: a silent program is noted again with the same numbers."""
    return before != (step, gauges)


def waits_idle(gauges: Gauges) -> bool:
    return gauges.data_wait_milli > IDLE_ABOVE_MILLI


def idle_of(job: Job, now_ms: int) -> Idle | None:
    """Return since when and why the job's attempt is idle; None where it is not, or that is not known."""
    attempt, told = job.undisturbed, job.progress
    if attempt is None or not is_marked(job):
        return None
    if told.hang:
        return Idle(told.idle_since_ms, "hang", f"makes no step: {told.hang}")
    if not waits_idle(told.gauges) or now_ms - attempt.idle_ms - told.told_ms > known_for_ms(told.gauges):
        return None
    return Idle(told.idle_since_ms, "data", f"waits for data {told.gauges.data_wait_milli // 10} % of the time")


def idle_for_ms(job: Job, idle: Idle, now_ms: int) -> int:
    """Return how long the attempt has been idle, not counting the time in which it was suspended."""
    suspended_ms = job.attempt.idle_ms if job.attempt is not None else 0
    return max(0, now_ms - suspended_ms - idle.since_ms)


def makes_room(job: Job, rules: Mapping[QueueName, IdleRule], now_ms: int) -> bool:
    """Return whether the job's attempt is idle, that was noted, and its queue wants it to make room then.

    An attempt that has saved nothing and cannot be asked to would lose all its work: it stays.
    """
    rule = rules.get(job.spec.queue)
    if rule is None or rule.reclaim != "when_wanted" or not job.progress.idle_noted:
        return False
    return job.evictable and job.saves and idle_of(job, now_ms) is not None


def is_marked(job: Job) -> bool:
    """Return whether the last note of the present attempt says that it is idle."""
    attempt, told = job.attempt, job.progress
    return attempt is not None and told.noted_attempt == attempt.number and told.idle_since_ms > 0


def after_note(before: Progress, told: Progress, *, same_attempt: bool) -> Progress:
    """Return `told`, which was just noted, with the time since which it is idle."""
    known = (before.noted.step, before.gauges) if same_attempt else None
    fresh = tells_more(known, told.noted.step, told.gauges)
    told_ms = told.noted.at_ms if fresh else before.told_ms
    if not waits_idle(told.gauges):
        return replace(told, told_ms=told_ms, idle_since_ms=0, idle_noted=False)
    if same_attempt and before.idle_since_ms and not before.hang:
        return replace(told, told_ms=told_ms)
    return replace(told, told_ms=told_ms, idle_since_ms=told.noted.at_ms, idle_noted=False)


def after_event(job: Job, event: HangFound | IdleNoted, time_ms: int) -> Job:
    """Return the job once it was found to hang, or was noted as idle."""
    told = job.progress
    if isinstance(event, IdleNoted):
        return replace(job, progress=replace(told, idle_noted=True))
    suspended_ms = job.attempt.idle_ms if job.attempt is not None else 0
    since_ms = max(1, time_ms - suspended_ms - event.idle_ms)
    if waits_idle(told.gauges) and told.idle_since_ms:
        since_ms = min(since_ms, told.idle_since_ms)
    noted = told.idle_noted and since_ms <= told.idle_since_ms
    told = replace(told, hang=event.text, hang_ranks=event.ranks, idle_since_ms=since_ms, idle_noted=noted)
    return replace(job, progress=told)


def said(job: Job, now_ms: int) -> str:
    """Return for people that the attempt is idle, where that was noted; '' where not."""
    idle = idle_of(job, now_ms) if job.progress.idle_noted else None
    return "" if idle is None else f"idle for {format_duration(idle_for_ms(job, idle, now_ms))}: it {idle.text}"
