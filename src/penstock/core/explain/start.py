"""When a waiting job starts at the latest: a bound from time limits alone.

Expected ends are no bound: half of all jobs run longer. And the room that becomes free is not the job's alone: every
job that waits for the same room may take it first. So running jobs leave by their limits and their grace, and the
jobs that wait beside it run one after the other: while it waits and all that runs now has ended, one of them runs.
The bound assumes what `core/model/start_text.py` says. Estimates are another thing: a caller that draws run times gives
an `Estimator`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from heapq import nsmallest
from typing import Protocol

import msgspec

from penstock.core.explain.reasons import CONSTRAINTS
from penstock.core.explain.scene import Scene
from penstock.core.model.estimates import Times
from penstock.core.model.explanation import Awaiting
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import Job
from penstock.core.model.words import agree, counted
from penstock.core.place.backfill import Release, earliest, held_places
from penstock.core.place.gang import GangPlacer
from penstock.core.place.holds import FOREVER_MS

RELEASES_SEEN_MAX = 1_024
"""Ends that are considered; a job that needs more of them gets no bound."""
WAITING_SEEN_MAX = 1_024
"""Jobs that wait beside it and are counted; with more there is no bound."""


class StartBound(msgspec.Struct, frozen=True):
    """By when a job starts (unix ms, 0 unknown), and the source of the bound or why there is none."""

    by_ms: int
    note: str


class Estimator(Protocol):
    """Gives early, likely and late time (unix ms; 0 unknown) of a job's start, or None where it knows none."""

    def __call__(self, scene: Scene) -> Times | None: ...


def start_bound(
    scene: Scene, codes: Collection[str], dependencies: Sequence[Awaiting] = (), blocked: Sequence[Job] = ()
) -> StartBound:
    """Return the bound: the latest time at which all is met that keeps the job from starting.

    Args:
        codes: of the constraints that keep it from starting now.
        dependencies: its live dependencies.
        blocked: jobs that wait for others or for their turn in an array, ascending; one more than `WAITING_SEEN_MAX`
            of them are enough.
    """
    job = scene.job
    departures = Departures(scene)
    parts = [_room(scene, departures), _quota(scene, departures), _windows(scene)]
    if job.unmet:
        parts.append(_dependencies(scene, departures, dependencies))
    parts += [StartBound(0, reason.untimed) for code, reason in CONSTRAINTS.items() if reason.untimed and code in codes]
    if job.not_before_ms > scene.now_ms:
        parts.append(StartBound(job.not_before_ms, "when it has backed off"))
    if not scene.starts and all(part.by_ms for part in parts):
        parts.append(_others(scene, departures, blocked, max(part.by_ms for part in parts)))
    unknown = [part for part in parts if not part.by_ms]
    if unknown:
        return StartBound(0, "unknown: " + "; ".join(dict.fromkeys(part.note for part in unknown)))
    return max(parts, key=lambda part: part.by_ms)


def left_ms(job: Job, now_ms: int) -> int:
    """Return when what a job `leaves` is free that runs, or starts now (unix ms); 0 where that is unknown.

    By its order to stop or by its time limit, which counts while the program runs.
    """
    attempt, spec = job.attempt, job.spec
    if attempt is not None and attempt.suspended_ms:
        return 0
    if attempt is not None and attempt.stop is not None:
        return max(now_ms, attempt.stop.requested_ms + attempt.stop.grace_ms)
    if not spec.time_limit_ms:
        return 0
    worked_ms = attempt.worked_ms(now_ms) if attempt is not None else 0
    return now_ms + max(0, spec.time_limit_ms - worked_ms) + spec.grace_ms


class Departures:
    """When the jobs have left that run, or that this cycle starts: at the latest, each computed once."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._starts = {start.job_id: start for start in scene.base.starts if start.job_id != scene.job.id}

    def jobs(self) -> Iterator[Job]:
        yield from self._scene.snapshot.running.values()
        yield from map(self._scene.started, self._starts)

    def pool_of(self, job: Job) -> PoolName:
        start = self._starts.get(job.id)
        return start.ask.pool if start is not None else job.ask.pool

    def end_ms(self, job: Job) -> int:
        """Return when a job has ended (unix ms), 0 where that is unknown: one that is to be frozen does not end."""
        attempt = job.attempt
        frozen = attempt is not None and attempt.stop is not None and not attempt.leaving
        return 0 if frozen else self._left_ms.get(job.id, 0)

    @cached_property
    def _left_ms(self) -> dict[JobId, int]:
        now_ms = self._scene.now_ms
        return {job.id: found_ms for job in self.jobs() if (found_ms := left_ms(job, now_ms))}

    @cached_property
    def releases(self) -> list[Release]:
        """What jobs leave, in the order of time: the first `RELEASES_SEEN_MAX` of those that are known."""
        first = nsmallest(RELEASES_SEEN_MAX, ((end_ms, job_id) for job_id, end_ms in self._left_ms.items()))
        return [self._release(end_ms, job_id) for end_ms, job_id in first]

    def _release(self, end_ms: int, job_id: JobId) -> Release:
        start = self._starts.get(job_id)
        if start is not None:
            return Release(end_ms, self._scene.started(job_id), start.ask, tuple(enumerate(start.places)))
        job = self._scene.snapshot.running[job_id]
        return Release(end_ms, job, job.leaves, held_places(job))

    def why_unknown(self, otherwise: str) -> str:
        """Return why the releases give no time."""
        unknown = [job for job in self.jobs() if not self.end_ms(job)]
        unlimited = sum(not job.spec.time_limit_ms for job in unknown)
        if unlimited:
            return f"{counted(unlimited, 'running job')} {agree('have ', unlimited)}no time limit"
        if unknown:
            return f"{counted(len(unknown), 'suspended job')} may resume at any time"
        if len(self._left_ms) > RELEASES_SEEN_MAX:
            return f"it needs more than the next {RELEASES_SEEN_MAX} ends of running jobs"
        return otherwise


def _dependencies(scene: Scene, departures: Departures, dependencies: Sequence[Awaiting]) -> StartBound:
    ends = {job.id: end_ms for job in departures.jobs() if (end_ms := departures.end_ms(job))}
    last_ms, ascending = scene.now_ms, sorted(ends)
    for one in dependencies:
        known = ascending[bisect_left(ascending, one.begin) : bisect_left(ascending, one.end)]
        if len(known) < one.left:
            unknown = next((job_id for job_id, _ in one.first if job_id not in ends), None)
            which = f"job {unknown}" if unknown is not None else f"one of the jobs {one.begin} to {one.end - 1}"
            return StartBound(0, f"the end of {which}, which it depends on, is unknown")
        last_ms = max(last_ms, *(ends[job_id] for job_id in known))
    return StartBound(last_ms, "when the jobs that it depends on have reached their time limits")


def _room(scene: Scene, departures: Departures) -> StartBound:
    if scene.fits(scene.gang):
        return StartBound(scene.now_ms, "there is room now")
    cluster = scene.real()
    opening = earliest(GangPlacer(scene.gang, cluster, scene.tenant), cluster, departures.releases)
    if opening is not None and opening.start_ms < FOREVER_MS:
        return StartBound(opening.start_ms, "when running jobs have reached their time limits")
    return StartBound(0, departures.why_unknown("it does not fit even when all running jobs have ended"))


def _quota(scene: Scene, departures: Departures) -> StartBound:
    """Return when enough of its queues' use has ended, counted one end after the other."""
    tree, leaf = scene.tree, scene.leaf
    if leaf is None:
        return StartBound(0, "its queue is not in the tree")
    charged = []
    by_ms = scene.now_ms if tree.exceeded(leaf, scene.demand) is None else 0
    for release in departures.releases if not by_ms else ():
        account = scene.account_of(release.job)
        if account is None:
            continue
        demand = tree.demand_of(release.ask, [place for _, place in release.places], scene.snapshot.nodes)
        tree.charge(account, demand, -1)
        charged.append((account, demand))
        if tree.exceeded(leaf, scene.demand) is None:
            by_ms = release.end_ms
            break
    for account, demand in charged:
        tree.charge(account, demand)
    if by_ms:
        return StartBound(by_ms, "when jobs that use its quota have reached their time limits")
    return StartBound(0, departures.why_unknown("its quota does not suffice even when all running jobs have ended"))


def _windows(scene: Scene) -> StartBound:
    """Return no bound where nodes of its pool are to be reserved for others."""
    for window in scene.config.reservations:
        if window.tenant == scene.tenant or window.start_ms <= scene.now_ms:
            continue
        nodes = (scene.snapshot.free.get(name) for name in window.nodes)
        if any(node is not None and node.shape.pool == scene.gang.pool for node in nodes):
            return StartBound(0, "nodes of its pool are reserved for another tenant later")
    return StartBound(scene.now_ms, "no nodes are reserved for others")


def _others(scene: Scene, departures: Departures, blocked: Sequence[Job], alone_ms: int) -> StartBound:
    """Return when all that could take its room first has run: first what runs now, then what waits, one by one.

    Args:
        alone_ms: when the job could start if no other waited.
    """
    everywhere = _has_maximum(scene)
    total_ms = waiting = 0
    for job in _beside(scene, blocked, everywhere):
        waiting += 1
        if not job.spec.time_limit_ms:
            return StartBound(0, f"job {job.id} waits, too, and has no time limit")
        if waiting > WAITING_SEEN_MAX:
            break
        total_ms += job.spec.time_limit_ms + job.spec.grace_ms
    if max(waiting, len(blocked)) > WAITING_SEEN_MAX:
        return StartBound(0, f"more than {WAITING_SEEN_MAX:,} jobs wait beside it")
    if not waiting and not _resume(scene, everywhere):
        return StartBound(alone_ms, "no other job waits for the same room")
    busy_ms = alone_ms
    for job in departures.jobs():
        if everywhere or departures.pool_of(job) == scene.gang.pool:
            end_ms = departures.end_ms(job)
            if not end_ms:
                return StartBound(0, departures.why_unknown(""))
            busy_ms = max(busy_ms, end_ms)
    note = (
        f"when running jobs and {counted(waiting, 'waiting job')} have reached their time limits, one after the other"
    )
    return StartBound(busy_ms + total_ms, note)


def _beside(scene: Scene, blocked: Sequence[Job], everywhere: bool) -> Iterator[Job]:
    """Yield jobs that wait and may take its room first; of the blocked ones all but those that wait for its end."""
    here = scene.gang.pool
    started = {scene.job.id, *(start.job_id for start in scene.base.starts)}
    for _, key, jobs in scene.snapshot.classes:
        if everywhere or any(ask.pool == here for ask in (key.ask, *key.alternatives)):
            yield from (job for job in jobs if job.id not in started)
    later = [scene.job.id]
    for job in blocked:
        if any(bisect_left(later, one.jobs.start) < bisect_left(later, one.jobs.stop) for one in job.awaited):
            later.append(job.id)
            continue
        if job.id == scene.job.id or job.spec.tenant in scene.snapshot.held:
            continue
        if everywhere or any(ask.pool == here for ask in (job.spec.ask, *job.spec.alternatives)):
            yield job


def _resume(scene: Scene, everywhere: bool) -> bool:
    """Return whether a job that is suspended, or is to be, may resume first: unless it makes room for this one."""
    snapshot = scene.snapshot
    for job in map(snapshot.running.get, (*snapshot.suspended, *snapshot.stopping)):
        attempt = job.attempt if job is not None and (everywhere or job.ask.pool == scene.gang.pool) else None
        if attempt is None:
            continue
        if attempt.suspended_ms and attempt.suspended_for != scene.job.id:
            return True
        if attempt.stop is not None and not attempt.leaving and attempt.stop.beneficiary != scene.job.id:
            return True
    return False


def _has_maximum(scene: Scene) -> bool:
    """Return whether jobs of any pool may keep it from starting, by a maximum that they share."""
    parents = scene.config.queue_by_name
    queue = parents.get(scene.spec.queue)
    while queue is not None:
        if queue.max:
            return True
        queue = parents.get(queue.parent)
    tenant = scene.config.tenant_by_name.get(scene.tenant)
    return tenant is not None and bool(tenant.max)
