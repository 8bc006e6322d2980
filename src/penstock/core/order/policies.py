"""Keys of the queue policies. The lowest key goes first; equal keys fall to the lower job id, which is older."""

from penstock.core.model.cluster import QueuePolicy, Settings
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job

OrderKey = tuple[int, JobId]
SCORE_SCALE = 1000
"""Scores are kept in thousandths so that the waiting bonus grows smoothly without floats."""


def priority_score_milli(job: Job, settings: Settings, now_ms: int) -> int:
    """Return base + waiting bonus - size penalty, in thousandths of a point.

    The bonus grows linearly from the submit (kept over requeues) to `wait_bonus_max` at the horizon.
    """
    waited = min(max(0, now_ms - job.submitted_ms), settings.wait_bonus_horizon_ms)
    bonus = SCORE_SCALE * settings.wait_bonus_max * waited // max(1, settings.wait_bonus_horizon_ms)
    penalty = SCORE_SCALE * settings.size_penalty_per_device * job.spec.ask.device_total
    return SCORE_SCALE * job.spec.priority + bonus - penalty


def order_key(policy: QueuePolicy, job: Job, settings: Settings, now_ms: int) -> OrderKey:
    """Return the sort key of `job` under `policy`."""
    if policy == "fifo":
        return (0, job.id)
    return (-priority_score_milli(job, settings, now_ms), job.id)
