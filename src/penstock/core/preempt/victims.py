"""The cheapest set of victims whose leaving lets a gang start.

A set is tried on the snapshot: its places are put back, the gang is placed, all is rolled back. Freed resources are
never added up over nodes, and only a set that lets the beneficiary start is chosen.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.model.plan import PreemptionRuleName
from penstock.core.model.resources import WHOLE_DEVICE_MILLI
from penstock.core.order.queues import QueueNode

EXACT_MAX = 48
"""Possible victims up to which every set may be tried, in order of cost; beyond, they are weighed node by node."""


class Victim(msgspec.Struct, frozen=True):
    """A running attempt that may be asked to leave, and the cost of that (device-milliseconds)."""

    job: Job
    cost: int
    places: tuple[tuple[int, ReplicaPlace], ...]
    """Places that it still holds, with ranks."""
    rule: PreemptionRuleName
    branch: QueueNode
    demand: tuple[int, ...]
    """The use that its queue loses when it has left."""
    suspend: bool = False
    """It is to be frozen in place: its CPUs make enough room."""

    @property
    def gives(self) -> GangAsk:
        """The capacity freed at its places once it has left."""
        return self.job.ask.only_cpus() if self.suspend else self.job.ask


def cpus_of(demand: tuple[int, ...], columns: Collection[int]) -> tuple[int, ...]:
    """Return the CPUs of `demand`: a suspended attempt gives back these and nothing else."""
    return tuple(amount if i in columns else 0 for i, amount in enumerate(demand))


def most_freed_milli(ask: GangAsk, places: Iterable[tuple[int, ReplicaPlace]]) -> int:
    """Return the most device capacity (thousandths) that leaving frees; for a MIG instance that of its device."""
    freed = 0
    for rank, place in places:
        devices = ask.each_of(rank).devices
        if devices is not None:
            share_milli = WHOLE_DEVICE_MILLI if devices.profile else devices.share_milli
            freed += len(place.devices) * share_milli
    return freed


Works = Callable[[Sequence[Victim]], bool]
"""Whether the beneficiary can start, lawfully and where it needs to, once these have left."""


def victim_cost(job: Job, settings: Settings, now_ms: int) -> int:
    """Return work lost since the last checkpoint x width + overheads + a weight that grows with priority.

    In device-milliseconds; width is devices held, or replicas for a job without devices. At least 1.
    """
    attempt = job.attempt
    lost_ms = attempt.unsaved_ms(job.progress.checkpoint_ms, now_ms) if attempt is not None else 0
    ask = job.ask
    width = max(ask.device_total, ask.replica_total)
    overhead_ms = settings.checkpoint_cost_ms + settings.restart_cost_ms
    weight_ms = settings.priority_cost_ms_per_point * max(0, job.spec.priority)
    return max(1, width * (lost_ms + overhead_ms + weight_ms))


def shrink_cost(job: Job, settings: Settings) -> int:
    """Return the cost of shrinking an elastic job, or of stopping an idle one: only the overheads count.

    An elastic job saves first; an idle one hardly works, so little is new since it last saved.
    """
    width = max(job.ask.device_total, job.ask.replica_total)
    return max(1, width * (settings.checkpoint_cost_ms + settings.restart_cost_ms))


def cheapest_victims(victims: Sequence[Victim], works: Works, *, tries_max: int) -> tuple[Victim, ...] | None:
    """Return the cheapest set of `victims` that works, or None when none was found.

    Sets are tried in ascending order of total cost, so the first that works is the cheapest and contains no needless
    victim. After `tries_max` tries, or with more than `EXACT_MAX` victims, sets are built node by node instead,
    cheapest first; each needless member is dropped again, costliest first.
    Source: ordered enumeration of subset sums, Lawler 1972.
    """
    found = sorted(victims, key=lambda v: (v.cost, -v.job.id))
    if not found:
        return None
    if len(found) <= EXACT_MAX:
        if not works(found) and not _may_be_partial(found):
            return None
        exact = _in_order_of_cost(found, works, tries_max)
        if exact is not None:
            return exact
    for ranked in (found, _node_by_node(found)):
        grown = _grown(ranked, works)
        if grown is not None:
            return _without_needless(grown, works)
    return None


def _may_be_partial(victims: Sequence[Victim]) -> bool:
    """Whether a part of the set may be lawful though the whole is not: reclaim takes only what is borrowed."""
    return any(v.rule == "reclaim" or any(at.promised for at in v.branch.path()) for v in victims)


def _in_order_of_cost(found: Sequence[Victim], works: Works, tries_max: int) -> tuple[Victim, ...] | None:
    heap: list[tuple[int, tuple[int, ...]]] = [(found[0].cost, (0,))]
    for _ in range(tries_max):
        if not heap:
            return None
        total, chosen = heapq.heappop(heap)
        if works([found[i] for i in chosen]):
            return tuple(found[i] for i in chosen)
        last = chosen[-1]
        if last + 1 < len(found):
            following = found[last + 1].cost
            heapq.heappush(heap, (total + following, (*chosen, last + 1)))
            heapq.heappush(heap, (total - found[last].cost + following, (*chosen[:-1], last + 1)))
    return None


def _node_by_node(found: Sequence[Victim]) -> list[Victim]:
    """Return the victims so that those of one node follow each other, the node with the cheapest ones first."""
    first: dict[str, int] = {}
    costs: dict[str, int] = {}
    for rank, victim in enumerate(found):
        name = victim.places[0][1].node if victim.places else ""
        first.setdefault(name, rank)
        costs[name] = costs.get(name, 0) + victim.cost
    home = {v.job.id: v.places[0][1].node if v.places else "" for v in found}
    return sorted(found, key=lambda v: (costs[home[v.job.id]], first[home[v.job.id]], v.cost, v.job.id))


def _grown(ranked: Sequence[Victim], works: Works) -> list[Victim] | None:
    """Return the shortest beginning of `ranked` that works, found by doubling and halving; None when none does."""
    high = 1
    while not works(ranked[:high]):
        if high >= len(ranked):
            return None
        high = min(2 * high, len(ranked))
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if works(ranked[:middle]):
            high = middle
        else:
            low = middle
    return list(ranked[:high])


def _without_needless(chosen: list[Victim], works: Works) -> tuple[Victim, ...]:
    for victim in sorted(chosen, key=lambda v: (-v.cost, v.job.id)):
        rest = [v for v in chosen if v is not victim]
        if rest and works(rest):
            chosen = rest
    return tuple(chosen)
