"""Sizes and places of elastic jobs: which jobs get idle devices, and which give some back.

`allocate` makes one round: sizes by marginal gain, then places that leave unchanged jobs where they are, then a check
that the whole round is worth its restarts. `give_back` frees devices for another job at the least loss.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.core.elastic.places import RoundCapacity
from penstock.core.elastic.worth import ElasticJob, ElasticSettings, Places, Worth, envelope, replicas_of, sizes_of


class Allocation(msgspec.Struct, frozen=True):
    """Sizes and places of the jobs from now on, by job id."""

    sizes: dict[int, int]
    places: dict[int, Places]
    """A job whose entry equals its present places is not touched; () means that it waits."""
    gain: int
    """By how much the summed cost falls compared with no change."""


def allocate(
    jobs: Iterable[ElasticJob],
    free: Mapping[str, int],
    settings: ElasticSettings | None = None,
    *,
    rebalance: bool = True,
) -> Allocation:
    """Return sizes and places for one round.

    Args:
        jobs: running and waiting ones, any order; ids differ.
        free: idle devices by node, without devices that `jobs` hold; nodes may differ.
        rebalance: running jobs may also shrink and move for others; else only idle devices are given out.
    Sizes stay within each job's bounds (or 0 for one that waits, or may pause). The round as a whole, its restarts
    included, costs less than no change, or changes nothing: since restart costs always count against a change,
    rounds with the same input lower one sum each time and cannot swing back.
    """
    settings = settings or ElasticSettings()
    ordered = sorted(jobs, key=lambda j: j.id)
    room = dict(sorted(free.items()))
    for job in ordered:
        for node, count in job.held:
            room[node] = room.get(node, 0) + count * job.devices_each
    worths = _worths(ordered, room, settings)
    sizes = choose_sizes(list(worths.values()), room, rebalance=rebalance)
    plans = [RoundCapacity(room, worths).place(sizes, guarded=True)]
    if rebalance:
        plans.append(RoundCapacity(room, worths).place(sizes, guarded=False))
    stay = {job.id: job.held for job in ordered}
    allowed = [plan for plan in (stay, *plans) if all(keeps_bounds(job, plan[job.id]) for job in ordered)]
    # Bounds changed under running jobs may leave no plan that keeps them all: jobs without room then wait.
    best = min(allowed or plans[:1], key=lambda plan: _total(worths, plan))
    gain = _total(worths, stay) - _total(worths, best)
    return Allocation({number: replicas_of(places) for number, places in best.items()}, best, gain)


def _worths(ordered: Sequence[ElasticJob], room: Mapping[str, int], settings: ElasticSettings) -> dict[int, Worth]:
    return {job.id: Worth(job, settings, fair_share(job, len(ordered), room)) for job in ordered}


def fair_share(job: ElasticJob, jobs: int, room: Mapping[str, int]) -> tuple[int, int]:
    """Return the replicas and the nodes of a job that has an equal share of `room`, which `jobs` jobs divide."""
    devices, widest = sum(room.values()), max(room.values(), default=1)
    share = max(1, -(-devices // (jobs * job.devices_each)))
    return share, -(-share // max(1, widest // job.devices_each))


def _total(worths: Mapping[int, Worth], plan: Mapping[int, Places]) -> int:
    return sum(worth.cost_of(plan[number]) for number, worth in worths.items())


def keeps_bounds(job: ElasticJob, places: Places) -> bool:
    """Return whether these places are a size that the job accepts: none where it waits, or may pause."""
    size = replicas_of(places)
    if not size:
        return job.may_pause or not job.size
    return job.minimum <= size <= job.maximum


def choose_sizes(worths: Sequence[Worth], room: Mapping[str, int], *, rebalance: bool) -> dict[int, int]:
    """Return the size of each job: devices go step by step to the job that gains most per device.

    Only their sum is checked, to be no more than `room`, not whether they can be placed.
    """
    left = sum(room.values())
    widest = max(room.values(), default=0)
    sizes: dict[int, int] = {}
    points: dict[int, list[tuple[int, int]]] = {}
    for worth in worths:
        job = worth.job
        found = points_of(worth, max(1, widest // job.devices_each), rebalance=rebalance)
        if found[0][0] * job.devices_each > left:
            found = [(0, worth.cost(0, 0, moved=True))]
        sizes[job.id], points[job.id] = found[0][0], found
        left -= found[0][0] * job.devices_each
    by_id = {worth.job.id: worth.job for worth in worths}
    heap: list[tuple[float, int, int]] = []
    for job in by_id.values():
        _offer(heap, job, points[job.id], size=sizes[job.id], left=left)
    while heap:
        _, number, size = heapq.heappop(heap)
        needed = (size - sizes[number]) * by_id[number].devices_each
        if needed <= left:
            sizes[number], left = size, left - needed
        _offer(heap, by_id[number], points[number], size=sizes[number], left=left)
    return sizes


def points_of(worth: Worth, per_node: int, *, rebalance: bool) -> list[tuple[int, int]]:
    """Return (size, cost) of the job's possible sizes, ascending; the first is what it has in any case."""
    job, found = worth.job, []
    if not job.size or (job.may_pause and rebalance):
        found.append((0, worth.cost(0, 0, moved=True)))
    for size in sizes_of(job, per_node):
        if size == job.size:
            found.append((size, worth.cost_of(job.held)))
        elif size > job.size or rebalance:
            found.append((size, worth.cost(size, -(-size // per_node), moved=True)))
    return found or [(job.maximum, worth.cost(job.maximum, -(-job.maximum // per_node), moved=True))]


def _offer(
    heap: list[tuple[float, int, int]], job: ElasticJob, points: Sequence[tuple[int, int]], *, size: int, left: int
) -> None:
    """Put the job's next step on the heap: the best of the steps that still fit."""
    most = size + left // job.devices_each
    hull = envelope([point for point in points if size <= point[0] <= most])
    if len(hull) > 1:
        (low, dear), (high, cheap) = hull[0], hull[1]
        # A quotient of integers below 2^53 is rounded the same way everywhere.
        heapq.heappush(heap, (-(dear - cheap) / ((high - low) * job.devices_each), job.id, high))


def give_back(
    jobs: Iterable[ElasticJob], needed: int, settings: ElasticSettings | None = None
) -> dict[int, int] | None:
    """Return new sizes of the running jobs that shrink so that `needed` devices become free at the least loss.

    None when all together cannot free them without going below a minimum. Loss is the slowdown of the shrunk jobs,
    their restarts included; of equal losses the choice that frees less is taken, so that no job shrinks needlessly.
    Exact: a knapsack by devices freed, in O(needed x replicas above the minimum).
    """
    settings = settings or ElasticSettings()
    best: list[tuple[int, int, dict[int, int]] | None] = [(0, 0, {})] + [None] * max(needed, 0)
    """By devices freed, at most `needed`: (loss, all devices freed, new sizes)."""
    for job in sorted(jobs, key=lambda j: j.id):
        worth = Worth(job, settings)
        stay = worth.cost_of(job.held)
        following = list(best)
        for size in range(job.size - 1, job.minimum - 1, -1):
            frees = (job.size - size) * job.devices_each
            loss = worth.cost(size, max(1, min(len(job.held), size)), moved=True) - stay
            for freed, before in enumerate(best):
                if before is None or freed == needed:
                    continue
                to = min(needed, freed + frees)
                after = (before[0] + loss, before[1] + frees)
                current = following[to]
                if current is None or after < current[:2]:
                    following[to] = (*after, {**before[2], job.id: size})
        best = following
    found = best[max(needed, 0)]
    return None if found is None else found[2]
