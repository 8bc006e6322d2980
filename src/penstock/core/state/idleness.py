"""When an attempt counts as idle while it holds its places: by its own reports, a hang that was found, or as measured.

Three cases are kept apart. A program that waits for data for nine tenths of its time, or hangs, is *idle*. A program
that makes steps is not. Of a program without a new report for long the measured use of its devices decides, while its
nodes measure it: below a tenth of the time it is idle. Otherwise it is *not known*, which never counts as idle. A
suspended attempt holds nothing that others want.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock.core.model.cluster import IdleRule
from penstock.core.model.events import HangFound, IdleNoted, UseNoted
from penstock.core.model.ids import QueueName
from penstock.core.model.jobs import Job
from penstock.core.model.measured import UseMark
from penstock.core.model.progress import Gauges, Progress
from penstock.core.model.quantities import format_duration

IdleCause = Literal["data", "hang", "unused"]
IDLE_ABOVE_MILLI = 900
"""An attempt that waits for data for more of its time than this counts as idle as a whole."""
SILENT_MS = 1_200_000
"""Time for which a program's report holds: changes are noted within half of it (`control/progress.py`)."""
BUSY_LEAST_MILLI = 1000 - IDLE_ABOVE_MILLI
"""An attempt whose devices are measured busy for less of the time is idle."""
MEASURED_HOLDS_MS = 1_500_000
"""Time for which a measurement holds: the next is noted after less than half of it (`control/uses.py`)."""
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
    held_ms = 0
    if told.noted_attempt == attempt.number:  # its own words first, as long as they hold
        if told.hang:
            return Idle(told.idle_since_ms, "hang", f"makes no step: {told.hang}")
        held_ms = told.told_ms + known_for_ms(told.gauges)
        if now_ms - attempt.idle_ms <= held_ms:
            if not waits_idle(told.gauges):
                return None
            return Idle(told.idle_since_ms, "data", f"waits for data {told.gauges.data_wait_milli // 10} % of the time")
    use = job.use
    if not _measured_idle(job) or now_ms - use.noted_ms > MEASURED_HOLDS_MS:
        return None
    text = f"uses its devices {use.busy_milli // 10} % of the time, as measured"
    return Idle(max(held_ms, use.idle_since_ms), "unused", text)


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
    """Return whether the last note of the present attempt, by its program or its nodes, says that it is idle."""
    return _says_idle(job) or _measured_idle(job)


def _says_idle(job: Job) -> bool:
    attempt, told = job.attempt, job.progress
    return attempt is not None and told.noted_attempt == attempt.number and told.idle_since_ms > 0


def _measured_idle(job: Job) -> bool:
    return job.attempt is not None and job.use.attempt == job.attempt.number and job.use.idle_since_ms > 0


def after_use(job: Job, event: UseNoted, time_ms: int) -> Job:
    """Return the job once the measured use of its devices was noted."""
    before = job.use if job.use.attempt == event.attempt else UseMark()
    idle = event.busy_milli < BUSY_LEAST_MILLI
    since_ms = (before.idle_since_ms or max(1, time_ms - event.covered_ms)) if idle else 0
    pairing = job.attempt.pairing if job.attempt is not None else None
    use = UseMark(
        event.attempt,
        time_ms,
        event.busy_milli,
        event.untouched,
        since_ms,
        covered_ms=event.covered_ms,
        memory_peak_bytes=event.memory_peak_bytes,
        steps=event.steps,
        step_us=event.step_us,
        beside=pairing.other if pairing is not None else None,
    )
    if use.beside == before.beside and not use.step_us:  # a short note, at the end
        use = replace(use, steps=before.steps, step_us=before.step_us)
    noted = job.progress.idle_noted and (_says_idle(job) or (idle and before.idle_since_ms > 0))
    return replace(job, use=use, progress=replace(job.progress, idle_noted=noted))


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
