"""What a job's notes teach about its speed: by size, by placement and batch, and what a restart costs it.

A restart is measured from the request to save until the first step beyond the one that was resumed; the time that the
job waited for places between the two attempts is no part of it.
"""

from msgspec.structs import replace

from penstock.core.model.batching import StepNoted
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import AttemptEnded, BatchChosen
from penstock.core.model.jobs import Attempt, Job, Outcome, StopReason
from penstock.core.model.progress import SIZES_MAX, STEPS_MAX, Gauges, Progress, SizeNoted

CHANGES_MAX = 64
"""Changes of a job that are remembered: more than it may have in an hour."""
CHANGE_REASONS: frozenset[StopReason] = frozenset({"resized", "moved"})
SAVED: frozenset[Outcome] = frozenset({"resized", "moved", "preempted", "drained", "requeued"})
"""Outcomes of attempts that were asked to save and leave."""
RESTART_MAX_MS = 3_600_000
"""A single measurement counts for no more."""
NUMBER_MAX = 2**53
"""A report of more samples or microseconds is wrong."""


def with_batch(job: Job, event: BatchChosen) -> Job:
    """Return the job whose attempt goes on with another batch. Raises: BrokenInvariant."""
    if job.attempt is None or job.attempt.number != event.attempt:
        raise BrokenInvariant(f"job {job.id}: a batch for attempt {event.attempt}, which is not current")
    return replace(job, attempt=replace(job.attempt, batch=event.batch))


def after_speed(before: Progress, told: Progress, attempt: Attempt, now_ms: int) -> Progress:
    """Return what is known after a note: `told`, with its speeds and costs.

    Args:
        before: what was known before the note.
        told: the same with the note's gauges, mark and step.
    """
    if attempt.choice == 0:
        sizes = _sizes(before.sizes, told.gauges, attempt, now_ms)
        told = replace(told, sizes=sizes, steps=_steps(before.steps, told.gauges, attempt))
    seen = told.gauges.batch
    noise = seen.noise if seen is not None and 0 < seen.noise <= NUMBER_MAX else before.noise
    if before.noted_attempt == attempt.number or not before.stop_ms:
        return replace(told, noise=noise)
    return replace(told, noise=noise, restart_ms=_restart_ms(before, told, attempt), stop_ms=0)


def _restart_ms(before: Progress, told: Progress, attempt: Attempt) -> int:
    """Return the mean cost of a restart after the first note of an attempt; what cannot be measured changes nothing."""
    beyond = told.noted.step - before.step
    if before.resumed_attempt != attempt.number or beyond < 1:
        return before.restart_ms
    first_ms = told.noted.at_ms - (beyond - 1) * told.gauges.step_ms - (attempt.allocated_ms - attempt.idle_ms)
    cost_ms = min(RESTART_MAX_MS, before.stop_ms + max(0, first_ms))
    return (before.restart_ms + cost_ms) // 2 if before.restart_ms else cost_ms


def after_stop(progress: Progress, attempt: Attempt, event: AttemptEnded, now_ms: int) -> Progress:
    """Return what is known once an attempt is gone: how long it took to save and leave, where it was asked to."""
    asked_ms = attempt.stop.requested_ms if attempt.stop is not None else 0
    measured = asked_ms and attempt.running_ms and event.outcome in SAVED
    return replace(progress, stop_ms=max(1, now_ms - asked_ms) if measured else 0)


def _sizes(before: tuple[SizeNoted, ...], gauges: Gauges, attempt: Attempt, now_ms: int) -> tuple[SizeNoted, ...]:
    key = len(attempt.replicas), attempt.model
    known = next((size for size in before if (size.replicas, size.model) == key), None)
    steps_ms = [ms for ms in (gauges.step_ms, known.step_ms_least if known is not None else 0) if ms]
    fresh = SizeNoted(
        key[0],
        now_ms,
        gauges.samples_per_s_milli,
        gauges.data_wait_milli,
        gauges.communication_milli,
        min(steps_ms, default=0),
        attempt.model,
    )
    return (*(size for size in before if size is not known), fresh)[-SIZES_MAX:]


def _steps(before: tuple[StepNoted, ...], gauges: Gauges, attempt: Attempt) -> tuple[StepNoted, ...]:
    seen = gauges.batch
    if seen is None or not 0 < seen.local <= NUMBER_MAX or not 0 < seen.step_us <= NUMBER_MAX:
        return before
    nodes = len({replica.place.node for replica in attempt.replicas})
    sync_us = min(max(seen.sync_us, 0), seen.step_us)
    fresh = StepNoted(nodes, len(attempt.replicas), seen.local, seen.step_us, sync_us, attempt.model)
    known = next((one for one in before if _placement(one) == _placement(fresh)), None)
    if known is not None:  # half of a new measurement: one slow minute is no trend
        mean = (known.step_us + fresh.step_us + 1) // 2, (known.sync_us + fresh.sync_us + 1) // 2
        fresh = replace(fresh, step_us=mean[0], sync_us=mean[1])
    return (*(one for one in before if one is not known), fresh)[-STEPS_MAX:]


def _placement(step: StepNoted) -> tuple[int, int, int, str]:
    return step.nodes, step.replicas, step.local, step.model
