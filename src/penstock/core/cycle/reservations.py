"""Reservations of one cycle: capacity kept for jobs that come first but do not fit yet."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace, RequestClass
from penstock.core.model.plan import Reserved
from penstock.core.place.backfill import Booking, Release, earliest, earliest_beside
from penstock.core.place.gang import GangPlacer
from penstock.core.place.holds import FOREVER_MS
from penstock.core.place.openings import Opening
from penstock.core.preempt.context import CycleContext
from penstock.core.state.copy_on_write import Moment
from penstock.core.state.snapshot import Snapshot


class _Known(NamedTuple):
    """An opening, and what it depends on: the gang, what is free, and when attempts end."""

    opening: Opening | None
    placer: GangPlacer
    changes: Sequence[NodeName]
    changes_count: int
    ends: Iterable[Moment]
    unending: Iterable[Moment]


class Openings:
    """The last opening found for a starving job in each pool: most cycles begin where the one before began."""

    def __init__(self) -> None:
        self._known: dict[PoolName, _Known] = {}

    def find(self, placer: GangPlacer, snapshot: Snapshot, search: Callable[[], Opening | None]) -> Opening | None:
        """Return what `search` returns; it is not called while nothing has changed that the result depends on."""
        pool, known = placer.gang.pool, self._known.get(placer.gang.pool)
        if known is not None and known.placer is placer and known.changes is snapshot.changes:
            same = known.changes_count == snapshot.changes_count
            if same and (known.ends, known.unending) == (snapshot.ends, snapshot.unending):
                return known.opening
        parts = (snapshot.changes, snapshot.changes_count, snapshot.ends, snapshot.unending)
        known = self._known[pool] = _Known(search(), placer, *parts)
        return known.opening


GUESSED_SHARE = 2
"""A start that rests on predicted ends may come earlier: others may use the room kept until 1/2 of the time is left."""
LIFTS_MAX = 8
"""Ends of a job that are tried beside nodes that go: each later one is bound by more of them."""
CouldStart = Callable[[RequestClass], bool]
"""Whether a job of the class could start now if nothing ran."""


class Reservations:
    """Looks ahead over the expected ends of running attempts.

    A reservation is computed only when a later job could start, for only then it matters: a full cluster costs
    nothing here.
    """

    def __init__(self, context: CycleContext, openings: Openings, could_start: CouldStart) -> None:
        self._could_start = could_start
        self._snapshot, self._now_ms, self._cluster, _, self._holds = context
        snapshot = context.snapshot
        self._openings, self._untouched = openings, self._cluster.version
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
        if rule == "strict" and not self._could_start(key):
            return False
        if len(waiting) + len(self._bookings.get(pool, ())) >= self._depth[rule]:
            return False
        waiting.append((job, key, placer))
        self.revision += 1
        return rule == "conservative"

    def bars(self, pool: PoolName) -> JobId | None:
        """Return the job that no other may pass in the pool, or None.

        Never one that could not start if nothing ran: no wait of others would help it. As Slurm's `sched/builtin`,
        which excepts jobs that wait for nodes that are down or drained.
        """
        waiting = self._blocked.get(pool)
        return waiting[0][0].id if waiting and self._rules.get(pool) == "strict" else None

    def waiting(self, pool: PoolName) -> bool:
        """Return whether a job of the pool is owed a reservation before a later one starts."""
        return bool(self._blocked.get(pool))

    def started(self, job: Job, ask: GangAsk, places: tuple[ReplicaPlace, ...], end_ms: int) -> None:
        """Record a start of this cycle: it ends again too."""
        self._begun.append(Release(end_ms, job, ask, tuple(enumerate(places))))

    def reserve(self, pool: PoolName) -> None:
        """Keep room for the blocked jobs of a pool, in order."""
        rule = self._rules.get(pool, "none")
        self.revision += 1
        for job, key, placer in self._blocked.pop(pool, ()):
            bookings = self._bookings.setdefault(pool, [])
            from_ms = 0
            if rule == "easy":
                opening, from_ms = self._next(pool, key, placer)
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
                self._keep(job, opening, from_ms or opening.start_ms)

    def _next(self, pool: PoolName, key: RequestClass, placer: GangPlacer) -> tuple[Opening | None, int]:
        """Return where and when the gang fits first, and from when on its room is kept."""
        guessed = False

        def releases() -> Iterator[Release]:
            nonlocal guessed
            for release in self._releases(pool):
                guessed = guessed or release.job.predicted_ms > 0
                yield release

        opening = self._in_time(placer, key, releases)
        start_ms = opening.start_ms if opening is not None else 0
        ahead_ms = max(0, start_ms - self._now_ms)
        return opening, start_ms - ahead_ms // GUESSED_SHARE if guessed else start_ms

    def _in_time(
        self, placer: GangPlacer, key: RequestClass, releases: Callable[[], Iterable[Release]]
    ) -> Opening | None:
        """Return where a gang of the class fits first when these attempts leave one after the other.

        Nodes that go, or are reserved, from some time on count until then for a gang that ends before.
        """
        if not self._bound_by_time(key):
            return earliest(placer, self._cluster, releases())
        end_ms = self._now_ms + key.length_ms
        for _ in range(LIFTS_MAX):
            with self._cluster.tentatively():
                self._holds.lift(end_ms)
                opening = earliest(placer, self._cluster, releases())
            if opening is None or opening.start_ms >= FOREVER_MS:
                break
            later_ms = opening.start_ms + key.length_ms
            if self._holds.horizon(later_ms) == self._holds.horizon(end_ms):
                return opening
            end_ms = later_ms
        return earliest(placer, self._cluster, releases())

    def _bound_by_time(self, key: RequestClass) -> bool:
        """Return whether it matters when a job of the class ends: some nodes are there only until some time."""
        return key.length_ms > 0 and bool(self._snapshot.leaving or self._snapshot.config.reservations)

    def keep_for_starving(self, job: Job, key: RequestClass, placer: GangPlacer) -> None:
        """Keep everything that becomes free where the job can start soonest, even if that time is unknown."""
        pool = placer.gang.pool
        if self._rules.get(pool) == "strict":
            if self._could_start(key):
                self._blocked.setdefault(pool, []).append((job, key, placer))
                self.revision += 1
            return
        opening = self._soonest(pool, key, placer)
        if opening is not None:
            known = opening.start_ms < FOREVER_MS
            self._keep(job, opening, opening.start_ms if known else self._now_ms)
            self._bookings.setdefault(pool, []).append(
                Booking(opening.start_ms, FOREVER_MS, placer.gang, opening.places)
            )

    def _soonest(self, pool: PoolName, key: RequestClass, placer: GangPlacer) -> Opening | None:
        """Return where the gang fits first when attempts leave one after the other, those of unknown length last."""

        def search() -> Opening | None:
            return self._in_time(placer, key, lambda: chain(self._releases(pool), self._unknown(pool)))

        overdue = any(end_ms <= self._now_ms for end_ms, _ in islice(self._snapshot.ends, 1))
        changed = self._snapshot.stopping or self.promised or self._cluster.version != self._untouched
        if overdue or changed or self._bound_by_time(key):
            return search()
        return self._openings.find(placer, self._snapshot, search)

    def _keep(self, job: Job, opening: Opening, from_ms: int) -> None:
        self._holds.claim_all(opening.beside, from_ms, job.id)
        start_ms = opening.start_ms if opening.start_ms < FOREVER_MS else 0
        self.reserved.append(Reserved(job.id, start_ms, opening.places))

    def _releases(self, pool: PoolName) -> Iterator[Release]:
        """Yield attempts of the pool in the order in which they are expected to leave; the overdue leave now."""
        running, stopping = self._snapshot.running, self._snapshot.stopping
        gone = self.promised
        later = (
            self._release(max(end_ms, self._now_ms + 1), job_id)
            for end_ms, job_id in self._snapshot.ends
            if job_id not in stopping and job_id not in gone and running[job_id].spec.ask.pool == pool
        )
        if not stopping and not self._begun:
            return later
        leaving = (self._release(self._now_ms, job_id) for job_id in sorted(stopping) if job_id not in gone)
        begun = sorted((r for r in self._begun if r.ask.pool == pool and r.end_ms < FOREVER_MS), key=_by_end)
        return heapq.merge((r for r in leaving if r.job.spec.ask.pool == pool), later, begun, key=_by_end)

    def _unknown(self, pool: PoolName) -> Iterable[Release]:
        """Yield attempts of unknown length, the oldest first, and what others hold once it was left for them.

        Suspended attempts are excluded: they do not end before they have their CPUs again.
        """
        running, stopping, gone = self._snapshot.running, self._snapshot.stopping, self.promised
        for _, job_id in self._snapshot.unending:
            if job_id not in stopping and job_id not in gone and running[job_id].spec.ask.pool == pool:
                yield self._release(FOREVER_MS, job_id)
        for job_id in sorted(gone):
            if running[job_id].spec.ask.pool == pool:
                yield self._release(FOREVER_MS, job_id)
        yield from (r for r in self._begun if r.ask.pool == pool and r.end_ms >= FOREVER_MS)

    def _release(self, end_ms: int, job_id: JobId) -> Release:
        job = self._snapshot.running[job_id]
        return Release(end_ms, job, job.leaves)


def _by_end(release: Release) -> tuple[int, JobId]:
    return (release.end_ms, release.job.id)
