"""Limits on starts in addition to quotas: the reserve of a pool, and turns in a queue of least attained service.

Each check returns by how many thousandths of devices the start would exceed the limit, or None where it may start;
the cycle asks whether it does, explanations give the number.
"""

from collections.abc import Iterable

from penstock.core.model.cluster import Pool, Queue, Settings
from penstock.core.model.ids import QueueName
from penstock.core.model.jobs import Job
from penstock.core.order.walk import PendingJobs


def over_reserve(
    pool: Pool | None, device_milli: int, free_milli: int, total_milli: int, *, preemptible: bool
) -> int | None:
    """Return by how much a start would cut into its pool's reserve for preemptible jobs."""
    if pool is None or not pool.reserve_milli or preemptible or not device_milli:
        return None
    short = reserved_milli(pool, total_milli) - (free_milli - device_milli)
    return short if short > 0 else None


def reserved_milli(pool: Pool, total_milli: int) -> int:
    """Return the devices that a pool keeps for preemptible jobs."""
    return total_milli * pool.reserve_milli // 1000


def takes_turns(settings: Settings, queue: Queue | None, job: Job) -> bool:
    """Return whether the job has to be admitted first: jobs of its queue take turns, and it has not run yet.

    None has to where `admission` is 0, the default: under a limit near the size of the pool narrow jobs get in as
    places become free, and a wide one waits for as long as they come. Figures: docs/policies.md.
    """
    if not settings.admission_milli or queue is None:
        return False
    return queue.policy == "least_attained" and not job.last_attempt


def over_admission(settings: Settings, device_milli: int, admitted_milli: int, total_milli: int) -> int | None:
    """Return by how much jobs that take turns would exceed a pool's admission limit; the first always may start."""
    short = admitted_milli + device_milli - admission_limit_milli(settings, total_milli)
    return short if admitted_milli and short > 0 else None


def admission_limit_milli(settings: Settings, total_milli: int) -> int:
    """Return the devices that jobs which take turns may ask for together, where there is such a limit."""
    return total_milli * settings.admission_milli // 1000


def admitted_waiting_milli(queue: QueueName, classes: Iterable[PendingJobs]) -> int:
    """Return the devices of waiting jobs of the queue that have been started once: they take turns."""
    return sum(
        key.ask.device_milli * sum(bool(job.last_attempt) for job in jobs)
        for _, key, jobs in classes
        if key.queue == queue
    )
