"""When a waiting job may start: a bound from the expected ends of running jobs, if no other job comes ahead.

A bound holds for the present state. A caller that knows how wrong expected ends are (a simulator that draws run times)
gives an `Estimator`, whose interval is shown beside it.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import msgspec

from penstock.core.explain.reasons import CONSTRAINTS
from penstock.core.explain.scene import Scene
from penstock.core.model.explanation import Awaiting
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.place.backfill import Release, earliest, held_places
from penstock.core.place.gang import GangPlacer
from penstock.core.place.holds import FOREVER_MS

RELEASES_SEEN_MAX = 1_024
"""Expected ends that are considered; a job that needs more of them gets no bound."""


class StartBound(msgspec.Struct, frozen=True):
    """By when a job may start (unix ms, 0 unknown), and the source of the bound or why there is none."""

    by_ms: int
    note: str


class Estimator(Protocol):
    """Gives an interval (unix ms) for a job's start, or None where it knows no more than the bound."""

    def __call__(self, scene: Scene) -> tuple[int, int] | None: ...


def start_bound(scene: Scene, codes: Collection[str], dependencies: Sequence[Awaiting] = ()) -> StartBound:
    """Return the bound: the latest time at which one of the conditions that time alone meets is met.

    Args:
        codes: of the constraints that keep it from starting now.
        dependencies: its live dependencies.
    """
    job = scene.job
    parts = [_room(scene), _quota(scene)]
    if job.unmet:
        parts.append(_dependencies(scene, dependencies))
    parts += [StartBound(0, reason.untimed) for code, reason in CONSTRAINTS.items() if reason.untimed and code in codes]
    if job.not_before_ms > scene.now_ms:
        parts.append(StartBound(job.not_before_ms, "when it has backed off"))
    unknown = [part for part in parts if not part.by_ms]
    if unknown:
        return StartBound(0, "unknown: " + "; ".join(dict.fromkeys(part.note for part in unknown)))
    last = max(parts, key=lambda part: part.by_ms)
    return StartBound(last.by_ms, f"{last.note}, if nothing else comes ahead")


def _dependencies(scene: Scene, dependencies: Sequence[Awaiting]) -> StartBound:
    ends = {job_id: end_ms for end_ms, job_id in scene.snapshot.ends}
    last_ms, ascending = scene.now_ms, sorted(ends)
    for one in dependencies:
        known = ascending[bisect_left(ascending, one.begin) : bisect_left(ascending, one.end)]
        if len(known) < one.left:
            unknown = next((job_id for job_id, _ in one.first if job_id not in ends), None)
            which = f"job {unknown}" if unknown is not None else f"one of the jobs {one.begin} to {one.end - 1}"
            return StartBound(0, f"the end of {which}, which it depends on, is unknown")
        last_ms = max(last_ms, *(ends[job_id] for job_id in known))
    return StartBound(last_ms, "when the jobs that it depends on are expected to end")


def releases(scene: Scene) -> Iterator[Release]:
    """Yield attempts in the order in which they are expected to leave; stopping attempts leave by their grace."""
    snapshot, now_ms = scene.snapshot, scene.now_ms
    leaving = sorted((_gone_ms(scene, snapshot.running[i]), i) for i in snapshot.stopping if i in snapshot.running)
    later = [(max(end_ms, now_ms), i) for end_ms, i in snapshot.ends if i not in snapshot.stopping]
    begun = [
        (now_ms + length_ms, s)
        for s in scene.base.starts
        if (length_ms := scene.length_of(s.job_id)) and s.job_id != scene.job.id
    ]
    found: list[Release] = [
        _release(end_ms, snapshot.running[i]) for end_ms, i in (leaving + later)[:RELEASES_SEEN_MAX]
    ]
    found += [Release(end_ms, scene.started(s.job_id), tuple(enumerate(s.places)), s.ask) for end_ms, s in begun]
    return iter(sorted(found, key=lambda r: (r.end_ms, r.job.id)))


def _release(end_ms: int, job: Job) -> Release:
    return Release(end_ms, job, held_places(job), job.leaves)


def _gone_ms(scene: Scene, job: Job) -> int:
    stop = job.attempt.stop if job.attempt is not None else None
    return max(scene.now_ms, stop.requested_ms + stop.grace_ms if stop is not None else 0)


def _room(scene: Scene) -> StartBound:
    if scene.fits(scene.gang):
        return StartBound(scene.now_ms, "there is room now")
    mine = next((r for r in scene.base.reserved if r.job_id == scene.job.id and r.start_ms), None)
    if mine is not None:
        return StartBound(mine.start_ms, "by the expected ends of running jobs; room is reserved for it from then on")
    cluster = scene.real()
    opening = earliest(GangPlacer(scene.gang, cluster, scene.tenant), cluster, releases(scene))
    if opening is not None and opening.start_ms < FOREVER_MS:
        return StartBound(opening.start_ms, "by the expected ends of running jobs")
    return StartBound(0, _why_unknown(scene, "it does not fit even when all running jobs have ended"))


def _why_unknown(scene: Scene, otherwise: str) -> str:
    known = {job_id for _, job_id in scene.snapshot.ends} | set(scene.snapshot.stopping)
    unknown: list[JobId] = [i for i, j in scene.snapshot.running.items() if i not in known]
    unknown += [s.job_id for s in scene.base.starts if not scene.length_of(s.job_id)]
    if unknown:
        return f"{len(unknown)} running job(s) declare neither a time limit nor an estimate"
    if len(known) > RELEASES_SEEN_MAX:
        return f"it needs more than the next {RELEASES_SEEN_MAX} ends of running jobs"
    return otherwise


def _quota(scene: Scene) -> StartBound:
    """Return when enough of its queues' use has ended, counted one end after the other."""
    tree, leaf = scene.tree, scene.leaf
    if leaf is None:
        return StartBound(0, "its queue is not in the tree")
    charged = []
    by_ms = scene.now_ms if tree.exceeded(leaf, scene.demand) is None else 0
    for release in releases(scene) if not by_ms else ():
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
        return StartBound(by_ms, "when enough of its quota has become free")
    return StartBound(0, _why_unknown(scene, "its quota does not suffice even when all running jobs have ended"))
