"""The remaining time of a running program by its own reports, and the progress kept from them.

A program that reports its steps predicts better than all earlier runs: the rest is remaining steps x time per step.
That time is the mean since the first note of the attempt, once that is long enough: it includes evaluations and
checkpoints, which a usual step leaves out, and is finer than a millisecond. Before, it is the usual step's. Between two
attempts, and until the next one reports or saves, the rest counts from the newest checkpoint (`core/order/ranks.py`).

It is an expectation, not a bound: half of such ends come later, and forecasts draw around it
(`sim/forecast/outlook.py`). Training may stop early, a fold may count from 0 again: then it is wrong until the next
note.
"""

from msgspec.structs import replace

from penstock.core.model.events import (
    BatchChosen,
    CheckpointSaved,
    HangFound,
    IdleNoted,
    JobResumed,
    ProgressNoted,
    SaveSignalNoted,
    UseNoted,
)
from penstock.core.model.ids import AttemptNumber
from penstock.core.model.jobs import Job
from penstock.core.model.progress import Mark, Progress
from penstock.core.order.ranks import expected_ms
from penstock.core.state.idleness import after_event, after_note, after_use
from penstock.core.state.speeds import after_speed, with_batch

DRIFT_SHARE = 8
"""The rest of a run is worth another note when it is off by more than this part of it."""
DRIFT_LEAST_MS = 10_000


OfAttempt = ProgressNoted | HangFound | IdleNoted | JobResumed | SaveSignalNoted | UseNoted | BatchChosen


def noted(job: Job, event: OfAttempt, time_ms: int) -> Job:
    """Return the job once this was noted of its present attempt."""
    if isinstance(event, JobResumed):
        return replace(job, progress=replace(job.progress, step=event.step, resumed_attempt=event.attempt))
    if isinstance(event, UseNoted):
        return after_use(job, event, time_ms)
    if isinstance(event, BatchChosen):
        return with_batch(job, event)
    if isinstance(event, SaveSignalNoted):
        return replace(job, progress=replace(job.progress, save_signal=event.signal, save_attempt=event.attempt))
    if not isinstance(event, ProgressNoted):
        return after_event(job, event, time_ms)
    before, attempt = job.progress, job.attempt
    assert attempt is not None
    mark = Mark(event.step, (attempt.suspended_ms or time_ms) - attempt.idle_ms)
    goes_on = before.noted_attempt == event.attempt and before.first.at_ms > 0 and before.first.step <= event.step
    told = replace(
        before,
        gauges=event.gauges,
        noted_attempt=event.attempt,
        step=max(before.step, event.step),
        first=before.first if goes_on else mark,
        noted=mark,
        hang="",
        hang_ranks=(),
    )
    told = after_speed(before, told, attempt, time_ms)
    same_attempt = before.noted_attempt == event.attempt
    return replace(job, progress=after_note(before, told, same_attempt=same_attempt))


def saved(job: Job, event: CheckpointSaved, time_ms: int) -> Job:
    """Return the job with the newest checkpoint of its present attempt."""
    attempt = job.attempt
    assert attempt is not None
    progress = replace(
        job.progress,
        step=max(job.progress.step, event.step),
        checkpoint_step=event.step,
        checkpoint_ms=time_ms,
        checkpoint_attempt=event.attempt,
        storage=attempt.storage,
        checkpoint_idle_ms=attempt.idle_ms + (time_ms - attempt.suspended_ms if attempt.suspended_ms else 0),
        hang="",
        hang_ranks=(),
    )
    return replace(job, progress=progress)


def told_end_ms(job: Job) -> int:
    """Return when the job's attempt ends by its program's reports (unix ms), within its time limit; 0 if unknown.

    It does not move as time passes: only a note, a checkpoint before the first note, or a suspension moves it.
    """
    attempt, told = job.attempt, job.progress
    at = None if attempt is None else _seen_last(told, attempt.number)
    if attempt is None or at is None:
        return 0
    each_us, total = told.step_us, told.gauges.total_steps
    if not each_us or not total:
        return 0
    end_ms = at.at_ms + max(0, total - at.step) * each_us // 1000
    limit_ms = job.spec.time_limit_ms
    if limit_ms:
        end_ms = min(end_ms, attempt.allocated_ms + limit_ms)
    return end_ms + attempt.idle_ms


def _seen_last(told: Progress, attempt: AttemptNumber) -> Mark | None:
    """Return where the attempt was when it last said so: in a note, or else with a checkpoint."""
    if told.noted_attempt == attempt:
        return told.noted if told.noted.at_ms else None
    if told.checkpoint_attempt == attempt:
        return Mark(told.checkpoint_step, told.checkpoint_ms - told.checkpoint_idle_ms)
    return None


def told_rest_ms(job: Job, now_ms: int) -> int | None:
    """Return how long the job's attempt still runs by its program's reports, 0 when overdue; None if unknown."""
    end_ms = told_end_ms(job)
    return max(0, end_ms - now_ms) if end_ms else None


def expected_rest_ms(job: Job, now_ms: int) -> int:
    """Return how long the job is expected to go on where it is; where unknown, as long as it has run.

    A job that has run for longer than was expected goes on for long: run times are heavy-tailed.
    Lengths of jobs like it say nothing of one that is trained at other sizes and batches than they were.
    """
    told_ms = told_rest_ms(job, now_ms)
    if told_ms is not None:
        return told_ms
    length_ms = expected_ms(job) if job.spec.batch is None else 0
    ran_ms = max(0, now_ms - job.first_started_ms) if job.first_started_ms else 0
    return length_ms - ran_ms if length_ms > ran_ms else ran_ms


def drifted(progress: Progress, step: int, since_ms: int) -> bool:
    """Return whether the end that was noted is off by enough for another note.

    Args:
        step: that the program has reached.
        since_ms: how long ago its gauges were noted.
    """
    left = progress.gauges.total_steps - step
    if left <= 0:
        return False
    each_us = progress.step_us
    off_ms = abs(since_ms - (step - progress.noted.step) * each_us // 1000)
    return off_ms > DRIFT_LEAST_MS and DRIFT_SHARE * off_ms > left * each_us // 1000
