"""The request class of a job: its attributes for the scheduler except age, as coarse as its queue's policy allows.

Numbers that differ from job to job (expected length, service attained) are rounded to steps, so that classes stay few.
"""

from penstock.core.model.cluster import ClusterConfig, Settings
from penstock.core.model.jobs import Job, RequestClass

STEPS_PER_OCTAVE = 4
"""Lengths are rounded up to the next 2^(1/4), about 19 %."""
UNKNOWN_MS = 86_400_000
"""Predicted device time of a job of which nothing is known: all such jobs are equal; who declares less goes first."""
LOST_MAX = 3
"""Attempts of a job that may be lost before its first run without a bearing on its rights."""
REST_MOST_MILLI = 1_300
"""A reported rest is hardly longer than this many times itself: the 0.9 quantile of `TOLD_SPREAD` (`sim/forecast`)."""
_QUARTERS = (1_000_000, 1_189_207, 1_414_214, 1_681_793)


def request_class(job: Job, config: ClusterConfig) -> RequestClass:
    """Return the request class of a job under the policies of `config`."""
    spec = job.spec
    queue = config.queue_by_name.get(spec.queue)
    policy = queue.policy if queue is not None else "fifo"
    rank = 0
    if policy == "least_attained":
        rank = attained_level(job.served_device_ms, config.settings)
    elif policy == "shortest_predicted":
        length_ms = expected_ms(job)
        rank = length_step(length_ms * max(1, spec.ask.device_total) if length_ms else UNKNOWN_MS)
    length_ms = rounded_up_ms(longest_ms(job))
    storage = job.progress.saved_on if job.attempt is None else None  # what it saves while it runs is not known before
    return RequestClass(
        spec.queue,
        spec.tenant,
        spec.priority,
        spec.ask.on_storage(storage),
        tuple(other.on_storage(storage) for other in spec.alternatives) if storage is not None else spec.alternatives,
        spec.preemptible,
        rank,
        length_ms,
        spec.preempts and not always_lost(job),
    )


def always_lost(job: Job) -> bool:
    """Return whether a job was lost time and again before it ever ran: until it does it asks nobody to leave."""
    return job.infrastructure_failures >= LOST_MAX and not job.first_started_ms


def own_rest_ms(job: Job) -> int:
    """Return the run time left from the newest checkpoint, by what an earlier attempt reported; 0 unknown.

    Unknown, too, once the present attempt reports or saves: then its end is known (`core/state/expected_end.py`).
    """
    told = job.progress
    reports = job.attempt is not None and job.attempt.number in (told.noted_attempt, told.checkpoint_attempt)
    return 0 if reports else job.progress.rest_ms


def expected_ms(job: Job) -> int:
    """Return the reported, else the predicted or declared, run time of an attempt, within its limit; 0 unknown."""
    return _within_limit(job, own_rest_ms(job) or job.predicted_ms or job.spec.estimated_duration_ms)


def longest_ms(job: Job) -> int:
    """Return the run time that an attempt hardly exceeds: reported or predicted, within its limit; 0 unknown.

    Jobs that use room until another job's reservation are judged by this: with the expected length, half of them
    would be late.
    """
    own_ms = own_rest_ms(job) * REST_MOST_MILLI // 1000
    return _within_limit(job, own_ms or job.predicted_most_ms or job.spec.estimated_duration_ms)


def _within_limit(job: Job, length_ms: int) -> int:
    limit_ms = job.spec.time_limit_ms
    return min(length_ms or limit_ms, limit_ms) if limit_ms else length_ms


def attained_level(served_device_ms: int, settings: Settings) -> int:
    """Return the level of a job that has attained this much service: 0 is served first.

    Levels double: the first ends at the step, the second at twice the step, and so on. Source: Tiresias (NSDI'19),
    discretised two-dimensional least attained service.
    """
    return (served_device_ms // max(1, settings.least_attained_step_device_ms)).bit_length()


def service_above(level: int, settings: Settings) -> int:
    """Return the least service of a job above this level (device-milliseconds)."""
    return max(1, settings.least_attained_step_device_ms) << level


def length_step(length_ms: int) -> int:
    """Return the number of the step that a length falls into: steps are 2^(1/4) apart, 0 is up to 1 ms or unknown."""
    if length_ms <= 1:
        return 0
    octave = length_ms.bit_length() - 1
    base = 1 << octave
    at = length_ms * 1_000_000
    first, second, third, fourth = _QUARTERS  # not a loop: every look at a job comes here
    quarter = (at > base * first) + (at > base * second) + (at > base * third) + (at > base * fourth)
    return STEPS_PER_OCTAVE * octave + quarter


def rounded_up_ms(length_ms: int) -> int:
    """Return the length rounded up to its step; 0 stays 0."""
    if length_ms <= 1:
        return max(0, length_ms)
    octave, quarter = divmod(length_step(length_ms), STEPS_PER_OCTAVE)
    return -(-(1 << octave) * _QUARTERS[quarter] // 1_000_000)
