"""Consolidation: attempts that can save move elsewhere, so that a gang fits whose capacity is free, but scattered.

No job loses more than a restart, and none moves unless the gain exceeds that cost.
"""

from collections.abc import Callable, Iterable, Iterator

from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import Job
from penstock.core.place.backfill import Release, earliest, held_places
from penstock.core.place.gang import GangPlacer, put_gang
from penstock.core.place.index import ClusterIndex
from penstock.core.preempt.victims import Victim, shrink_cost
from penstock.core.state.snapshot import Snapshot


def can_move(job: Job) -> bool:
    """Return whether the job can go on elsewhere from where it is: it has saved, or can be asked to."""
    return job.undisturbed is not None and job.evictable and job.saves


def move_cost(job: Job, settings: Settings, now_ms: int) -> int:
    """Return the cost of moving the job (device-milliseconds): the overheads, and work it cannot save on request."""
    attempt = job.attempt
    assert attempt is not None
    lost_ms = 0
    if not job.save_signal:
        lost_ms = attempt.unsaved_ms(job.progress.checkpoint_ms, now_ms)
    width = max(job.ask.device_total, job.ask.replica_total)
    return shrink_cost(job, settings) + width * lost_ms


def fits_when_moved(
    victims: Iterable[Victim], leaving: Iterable[Job], placer: GangPlacer, cluster: ClusterIndex
) -> bool:
    """Return whether the gang fits and each of `victims` fits again, the gang placed first."""
    moved = list(victims)
    with cluster.tentatively():
        for job in leaving:
            cluster.put_back(job.leaves, held_places(job))
        for victim in moved:
            cluster.put_back(victim.job.ask, victim.places)
        if placer.put() is None:
            return False
        return all(put_gang(v.job.next_ask(v.job.ask), cluster, v.job.spec.tenant) is not None for v in moved)


def gain_of(job: Job, placer: GangPlacer, cluster: ClusterIndex, snapshot: Snapshot, now_ms: int) -> int:
    """Return the value of starting the gang now (device-milliseconds): its width x the wait that it avoids.

    The wait is up to the earliest start by expected ends, or up to the starvation bound where no end is known.
    """
    opening = earliest(placer, cluster, _releases(snapshot, placer.gang.pool, now_ms))
    bound_ms = snapshot.config.settings.starvation_after_ms
    wait_ms = bound_ms if opening is None else min(bound_ms, opening.start_ms - now_ms)
    return max(job.spec.ask.device_total, job.spec.ask.replica_total) * max(0, wait_ms)


def _releases(snapshot: Snapshot, pool: str, now_ms: int) -> Iterator[Release]:
    for end_ms, job_id in snapshot.ends:
        job = snapshot.running[job_id]
        if job.spec.ask.pool == pool:
            yield Release(max(end_ms, now_ms + 1), job, job.ask)


Weigh = Callable[[Job], Victim | None]


def _moves(job: Job) -> bool:
    """Return whether the job can move: one that shares its device holds half of it, and wants all of another one."""
    return can_move(job) and job.attempt is not None and job.attempt.pairing is None


def movable(snapshot: Snapshot, pool: str, weigh: Weigh) -> list[Victim]:
    """Return the jobs of a pool that could move, as victims made by `weigh`, by job id."""
    there = (job for job in snapshot.running.values() if job.spec.ask.pool == pool)
    found = (weigh(job) for job in there if _moves(job) and job.spec.tenant not in snapshot.held)
    return sorted((v for v in found if v is not None), key=lambda v: v.job.id)
