"""The cheapest set of victims whose freed capacity lets a gang start.

A set is tried on the snapshot: its places are put back, the gang is placed, the places are taken again. Freed
resources are never added up over nodes, and no set is chosen that does not let the beneficiary start.
"""

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.place.fit import closed_reason
from penstock.core.place.free import FreeCluster
from penstock.core.place.gang import NoFit, place_gang


class Victim(msgspec.Struct, frozen=True):
    """A running attempt that may be asked to leave, and what that would cost (device-milliseconds)."""

    job: Job
    cost: int
    places: tuple[ReplicaPlace, ...]
    """What it still holds."""


def held_places(job: Job) -> tuple[ReplicaPlace, ...]:
    """Return the places that the job's attempt still holds."""
    if job.attempt is None:
        return ()
    return tuple(r.place for r in job.attempt.replicas if r.holds)


def victim_cost(job: Job, settings: Settings, now_ms: int) -> int:
    """Return work lost since the last checkpoint x width + overheads + a weight that grows with priority.

    In device-milliseconds; width is devices held, or replicas for a job without devices. At least 1.
    """
    attempt = job.attempt
    if attempt is None or not attempt.running_ms:
        lost_ms = 0
    else:
        lost_ms = max(0, now_ms - max(attempt.running_ms, job.progress.checkpoint_ms))
    width = max(job.spec.ask.device_total, job.spec.ask.replicas)
    overhead_ms = settings.checkpoint_cost_ms + settings.restart_cost_ms
    weight_ms = settings.priority_cost_ms_per_point * max(0, job.spec.priority)
    return max(1, width * (lost_ms + overhead_ms + weight_ms))


def candidates(beneficiary: Job, running: Iterable[Job], settings: Settings, now_ms: int) -> list[Victim]:
    """Return who may be preempted for `beneficiary`, cheapest first.

    Only preemptible attempts of strictly lower priority that are not being stopped already and have had their
    minimum run time. Strictly lower priority makes a cascade (A evicts B evicts A) impossible.
    """
    found = []
    for job in running:
        attempt = job.attempt
        if attempt is None or attempt.stop is not None or not job.spec.preemptible:
            continue
        if job.spec.priority >= beneficiary.spec.priority or job.spec.ask.pool != beneficiary.spec.ask.pool:
            continue
        ran_ms = now_ms - (attempt.running_ms or attempt.allocated_ms)
        if ran_ms < settings.min_runtime_before_preemption_ms:
            continue
        found.append(Victim(job, victim_cost(job, settings, now_ms), held_places(job)))
    return sorted(found, key=lambda v: (v.cost, -v.job.id))


def cheapest_victims(
    gang: GangAsk, cluster: FreeCluster, victims: Sequence[Victim], *, tries_max: int
) -> tuple[Victim, ...] | None:
    """Return the cheapest set of `victims` without which `gang` fits, or None when even all do not suffice.

    Sets are tried in ascending order of total cost, so the first that works is the cheapest and contains nobody
    who is not needed. After `tries_max` tries it falls back to a greedy choice, cheapest first, from which each
    one that is not needed is dropped again, dearest first.
    Source: ordered enumeration of subset sums, Lawler 1972.
    """
    useful = [v for v in victims if _on_open_node(gang, cluster, v)]
    if not useful or not _fits_without(gang, cluster, useful):
        return None
    heap: list[tuple[int, tuple[int, ...]]] = [(useful[0].cost, (0,))]
    for _ in range(tries_max):
        if not heap:
            break
        total, chosen = heapq.heappop(heap)
        if _fits_without(gang, cluster, [useful[i] for i in chosen]):
            return tuple(useful[i] for i in chosen)
        last = chosen[-1]
        if last + 1 < len(useful):
            following = useful[last + 1].cost
            heapq.heappush(heap, (total + following, (*chosen, last + 1)))
            heapq.heappush(heap, (total - useful[last].cost + following, (*chosen[:-1], last + 1)))
    return _greedy(gang, cluster, useful)


def _greedy(gang: GangAsk, cluster: FreeCluster, useful: Sequence[Victim]) -> tuple[Victim, ...]:
    chosen: list[Victim] = []
    for victim in useful:
        chosen.append(victim)
        if _fits_without(gang, cluster, chosen):
            break
    for victim in sorted(chosen, key=lambda v: (-v.cost, v.job.id)):
        rest = [v for v in chosen if v is not victim]
        if rest and _fits_without(gang, cluster, rest):
            chosen = rest
    return tuple(chosen)


def _on_open_node(gang: GangAsk, cluster: FreeCluster, victim: Victim) -> bool:
    return any(not closed_reason(gang, cluster.nodes[p.node]) for p in victim.places)


def _fits_without(gang: GangAsk, cluster: FreeCluster, victims: Sequence[Victim]) -> bool:
    for victim in victims:
        cluster.put_back(victim.job.spec.ask, victim.places)
    fits = not isinstance(place_gang(gang, cluster), NoFit)
    for victim in victims:
        cluster.take(victim.job.spec.ask, victim.places)
    return fits
