"""Keys of the queue policies that order jobs. The lowest key goes first; equal keys fall to the older job."""

from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.order.extension import Policies, checked_key, extension_of
from penstock.core.order.ranks import STEPS_PER_OCTAVE

OrderKey = tuple[int, ...]
SCORE_SCALE = 1000
"""Scores are in thousandths so that the waiting bonus grows smoothly without floats."""


def priority_score_milli(job: Job, device_milli: int, settings: Settings, now_ms: int) -> int:
    """Return base + waiting bonus - size penalty, in thousandths of a point.

    The bonus grows linearly from the submit (kept over requeues) to `wait_bonus_max` at the horizon.
    """
    waited = min(max(0, now_ms - job.submitted_ms), settings.wait_bonus_horizon_ms)
    bonus = SCORE_SCALE * settings.wait_bonus_max * waited // max(1, settings.wait_bonus_horizon_ms)
    return SCORE_SCALE * job.spec.priority + bonus - settings.size_penalty_per_device * device_milli


def aged_ms(job: Job, rank: int, settings: Settings) -> int:
    """Return the place of a job among those of its priority: shortest first, each halving worth `ageing` of waiting.

    The order of log2(device time) - waited / ageing. As all jobs age at the same pace, it is one number that does not
    change as time passes: the submit, put off by `ageing` for each doubling of the predicted device time (unix ms).
    """
    return job.submitted_ms + settings.ageing_ms * rank // STEPS_PER_OCTAVE


def order_key(
    policy: str, job: Job, key: RequestClass, settings: Settings, now_ms: int, policies: Policies
) -> OrderKey:
    """Return the sort key of `job` under `policy`; no policy puts the younger of two jobs of one class first."""
    if policy == "priority":
        return (-priority_score_milli(job, key.ask.device_milli, settings, now_ms), job.id)
    if policy == "fifo":
        return (0, job.id)
    if policy in ("fair_share", "capacity"):
        return (-job.spec.priority, job.id)
    if policy == "shortest_predicted":
        return (-job.spec.priority, aged_ms(job, key.rank, settings), job.id)
    if policy == "least_attained":
        return (key.rank, -job.spec.priority, job.id)
    found = extension_of(policies, policy)
    if found is None:
        raise ValueError(f"there is no policy '{policy}': validation should have caught it")
    return (*checked_key(found, job, now_ms, settings), job.id)
