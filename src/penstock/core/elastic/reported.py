"""Conclusions from a running job's metrics for its size: how busy it is, its speed at each size, useless sizes.

A size at which a job mostly waits is assumed to be no better than a smaller one: the resource it waits for is shared.
If it has also run at another size, and the larger of both was faster, the resource is not shared (each replica loads
its own data), and waiting says nothing. After an hour this is forgotten: storage is not slow for ever.
"""

from itertools import pairwise

from penstock.core.elastic.rules import Scaling, ScalingRules, Utilisation, scale
from penstock.core.elastic.speedup import SpeedCurve, ThroughputReport, curve_of
from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import Job
from penstock.core.model.progress import SizeNoted

KEPT_MS = 3_600_000
"""Older notes of a size keep no job from it."""
FASTER_MILLI = 100
"""A larger size counts as faster from here: 100 = 10 %."""
RULES = ScalingRules()


def utilisation_of(job: Job, now_ms: int) -> Utilisation | None:
    """Return how busy the job is by its latest metrics, None before the first of this attempt.

    Unreported metrics count as no waiting. They hold since they were noted: a change would have been noted.
    """
    attempt, told = job.attempt, job.progress
    if attempt is None or not attempt.running_ms or told.noted_attempt != attempt.number:
        return None
    gauges = told.gauges
    noted_ms = told.noted.at_ms + attempt.idle_ms
    return Utilisation(
        busy_milli=busy_milli(gauges.data_wait_milli, gauges.communication_milli),
        data_queue=gauges.data_queue,
        window_ms=max(0, now_ms - max(noted_ms, attempt.running_ms)),
        since_change_ms=max(0, now_ms - attempt.running_ms),
    )


def busy_milli(data_wait_milli: int, communication_milli: int) -> int:
    return max(0, 1000 - data_wait_milli - communication_milli)


def curve_told(job: Job, model: str | None = None) -> SpeedCurve:
    """Return the job's speed-up curve: its reported throughput at each size, Amdahl's law before any report.

    Args:
        model: of the devices; by default the one that it runs on, or ran on last.
    """
    sizes = sizes_on(job, model)
    return curve_of([ThroughputReport(size.replicas, size.samples_per_s_milli) for size in sizes])


def sizes_on(job: Job, model: str | None = None) -> list[SizeNoted]:
    """Return the notes of a job's sizes on one model of devices, by default its present or last one.

    Without any, those of an unknown model: of former versions, or of several models together.
    """
    sizes = job.progress.sizes
    if model is None:
        model = job.attempt.model if job.attempt is not None else sizes[-1].model if sizes else ""
    found = [size for size in sizes if size.model == model]
    return found or [size for size in sizes if not size.model]


def largest_useful(job: Job, settings: Settings, now_ms: int) -> int:
    """Return the largest size that the job's own metrics do not rule out."""
    least, shrinks = job.spec.ask.replicas, settings.elastic_shrink_idle
    useless = (size.replicas for size in _useless(job, settings, now_ms))
    most = min((max(least, size // 2) if shrinks else size for size in useless), default=job.spec.ask.replicas_max)
    return min(most, job.spec.ask.replicas_max)


def _useless(job: Job, settings: Settings, now_ms: int) -> list[SizeNoted]:
    """Return recent sizes, smallest first, at which the job mostly waited and more is not known to be faster."""
    lately = (size for size in sizes_on(job) if now_ms - size.noted_ms < KEPT_MS)
    found = [size for size in lately if _waits(size, settings) and not _more_is_faster(job, size)]
    return sorted(found, key=lambda size: size.replicas)


def shrink_due(job: Job, now_ms: int) -> Scaling | None:
    """Return the rules' decision on a running job that they would halve; None where they would not.

    A `stay` means that they would, but have not seen it for long enough.
    """
    seen, size = utilisation_of(job, now_ms), len(job.attempt.replicas) if job.attempt is not None else 0
    if seen is None or seen.busy_milli >= RULES.in_below_milli:
        return None
    if any(_more_is_faster(job, known) for known in sizes_on(job) if known.replicas == size):
        return None
    ask = job.spec.ask
    found = scale(seen, replicas=size, minimum=ask.replicas, maximum=ask.replicas_max, curve=curve_told(job))
    return None if found.reason == "at_minimum" else found


def shrink_due_ms(job: Job) -> int:
    """Return when the rules have seen enough of a job that they would halve (unix ms)."""
    attempt = job.attempt
    assert attempt is not None
    noted_ms = max(attempt.running_ms, job.progress.noted.at_ms + attempt.idle_ms)
    return max(noted_ms + RULES.window_ms, attempt.running_ms + RULES.in_cooldown_ms)


def why_not_larger(job: Job, settings: Settings, now_ms: int) -> str:
    """Return, for people, which of a running elastic job's metrics keep it from more replicas; '' for none."""
    attempt = job.attempt
    if attempt is None or not job.spec.ask.elastic or attempt.choice:
        return ""
    size, most = len(attempt.replicas), largest_useful(job, settings, now_ms)
    if most > size or size >= job.spec.ask.replicas_max:
        return ""
    at = _useless(job, settings, now_ms)[0]
    waits = f"{at.data_wait_milli // 10} % of the time for data"
    if at.communication_milli:
        waits += f" and {at.communication_milli // 10} % for other ranks"
    return f"it gets no more than {size} of {job.spec.ask.replicas_max} replicas: with {at.replicas} it waits {waits}"


def _waits(size: SizeNoted, settings: Settings) -> bool:
    """Return whether the job mostly waited at this size, for data or by the rules."""
    idle = busy_milli(size.data_wait_milli, size.communication_milli) < RULES.in_below_milli
    return size.data_wait_milli > settings.elastic_data_wait_max_milli or (settings.elastic_shrink_idle and idle)


def _more_is_faster(job: Job, size: SizeNoted) -> bool:
    """Return whether the job is known to be notably faster at this size than below it, or above it than at this one."""
    rates = sorted((s.replicas, s.samples_per_s_milli) for s in sizes_on(job) if s.samples_per_s_milli)
    pairs = (pair for pair in pairwise(rates) if size.replicas in (pair[0][0], pair[1][0]))
    return any(fast * 1000 > slow * (1000 + FASTER_MILLI) for (_, slow), (_, fast) in pairs)
