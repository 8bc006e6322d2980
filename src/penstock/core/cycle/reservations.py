"""Reservations of one cycle: capacity kept for jobs that come first but do not fit yet."""

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace, RequestClass
from penstock.core.model.plan import Reserved
from penstock.core.place.backfill import Booking, Release, earliest, earliest_beside
from penstock.core.place.gang import GangPlacer
from penstock.core.place.holds import FOREVER_MS
from penstock.core.place.openings import Opening
from penstock.core.preempt.context import CycleContext


class Reservations:
    """Looks ahead over the expected ends of running attempts.

    A reservation is computed only when a later job could start, for only then it matters: a full cluster costs
    nothing here.
    """

    def __init__(self, context: CycleContext) -> None:
        self._snapshot, self._now_ms, self._cluster, _, self._holds = context
        snapshot = context.snapshot
        self._rules = {pool.name: pool.backfill for pool in snapshot.config.pools}
        self._depth = {"easy": 1, "conservative": snapshot.config.settings.backfill_depth_max, "none": 1, "strict": 1}
        self._blocked: dict[PoolName, list[tuple[Job, RequestClass, GangPlacer]]] = {}
        self._bookings: dict[PoolName, list[Booking]] = {}
        self._begun: list[Release] = []
        self.reserved: list[Reserved] = []
        self.promised: Collection[JobId] = ()
        """Victims that leave for another job: their places are free for no third job."""
        self.revision = 0
        """Grows with each reservation that is owed or made."""
        self.busy: set[PoolName] = set()
        """Pools in which a job waits for capacity."""

    def blocked(self, job: Job, key: RequestClass, placer: GangPlacer) -> bool:
        """Record a job that is next in order and does not fit; return whether jobs like it are booked too."""
        pool = key.ask.pool
        self.busy.add(pool)
        rule, waiting = self._rules.get(pool, "none"), self._blocked.setdefault(pool, [])
        if len(waiting) + len(self._bookings.get(pool, ())) >= self._depth[rule]:
            return False
        waiting.append((job, key, placer))
        self.revision += 1
        return rule == "conservative"

    def bars(self, pool: PoolName) -> JobId | None:
        """Return the job that no other may pass in the pool, or None."""
        waiting = self._blocked.get(pool)
        return waiting[0][0].id if waiting and self._rules.get(pool) == "strict" else None

    def waiting(self, pool: PoolName) -> bool:
        """Return whether a job of the pool is owed a reservation before a later one starts."""
        return bool(self._blocked.get(pool))

    def started(self, job: Job, ask: GangAsk, places: tuple[ReplicaPlace, ...], end_ms: int) -> None:
        """Record a start of this cycle: it ends again too."""
        if end_ms < FOREVER_MS:
            self._begun.append(Release(end_ms, job, ask, tuple(enumerate(places))))

    def reserve(self, pool: PoolName) -> None:
        """Keep room for the blocked jobs of a pool, in order."""
        rule = self._rules.get(pool, "none")
        self.revision += 1
        for job, key, placer in self._blocked.pop(pool, ()):
            bookings = self._bookings.setdefault(pool, [])
            if rule == "easy":
                opening = earliest(placer, self._cluster, self._releases(pool))
            elif rule == "conservative":
                releases = list(self._releases(pool))
                with self._cluster.tentatively():
                    self._holds.lift_all_of({reserved.job_id for reserved in self.reserved})
                    opening = earliest_beside(placer, self._cluster, releases, bookings, key.length_ms, self._now_ms)
            else:
                opening = None
            until_ms = opening.start_ms + key.length_ms if opening and key.length_ms else FOREVER_MS
            if opening is not None:
                if rule == "conservative":
                    self._holds.booked(placer.gang, opening.places, opening.start_ms, until_ms)
                bookings.append(Booking(opening.start_ms, until_ms, placer.gang, opening.places))
                self._keep(job, opening, opening.start_ms)

    def keep_for_starving(self, job: Job, key: RequestClass, placer: GangPlacer) -> None:
        """Keep everything that becomes free where the job can start soonest, even if that time is unknown."""
        pool = placer.gang.pool
        if self._rules.get(pool) == "strict":
            self._blocked.setdefault(pool, []).append((job, key, placer))
            self.revision += 1
            return
        opening = earliest(placer, self._cluster, chain(self._releases(pool), self._unknown(pool)))
        if opening is not None:
            known = opening.start_ms < FOREVER_MS
            self._keep(job, opening, opening.start_ms if known else self._now_ms)
            self._bookings.setdefault(pool, []).append(
                Booking(opening.start_ms, FOREVER_MS, placer.gang, opening.places)
            )

    def _keep(self, job: Job, opening: Opening, from_ms: int) -> None:
        self._holds.claim_all(opening.beside, from_ms, job.id)
        start_ms = opening.start_ms if opening.start_ms < FOREVER_MS else 0
        self.reserved.append(Reserved(job.id, start_ms, opening.places))

    def _releases(self, pool: PoolName) -> Iterator[Release]:
        """Yield attempts of the pool in the order in which they are expected to leave; the overdue leave now."""
        running, stopping = self._snapshot.running, self._snapshot.stopping
        gone = self.promised
        leaving = (self._release(self._now_ms, job_id) for job_id in sorted(stopping) if job_id not in gone)
        later = (
            self._release(max(end_ms, self._now_ms + 1), job_id)
            for end_ms, job_id in self._snapshot.ends
            if job_id not in stopping and job_id not in gone and running[job_id].spec.ask.pool == pool
        )
        begun = sorted((r for r in self._begun if r.ask.pool == pool), key=lambda r: (r.end_ms, r.job.id))
        return heapq.merge((r for r in leaving if r.job.spec.ask.pool == pool), later, begun, key=_by_end)

    def _unknown(self, pool: PoolName) -> Iterable[Release]:
        """Yield attempts of unknown length, the oldest first.

        Suspended attempts are excluded: they do not end before they have their CPUs again.
        """
        known = {*self._snapshot.stopping, *self.promised, *(job_id for _, job_id in self._snapshot.ends)}
        known.update(self._snapshot.suspended)
        rest = [j for j in self._snapshot.running.values() if j.id not in known and j.spec.ask.pool == pool]
        for job in sorted(rest, key=lambda j: (j.attempt.allocated_ms if j.attempt else 0, j.id)):
            yield self._release(FOREVER_MS, job.id)

    def _release(self, end_ms: int, job_id: JobId) -> Release:
        job = self._snapshot.running[job_id]
        return Release(end_ms, job, job.leaves)


def _by_end(release: Release) -> tuple[int, JobId]:
    return (release.end_ms, release.job.id)
