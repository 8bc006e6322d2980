"""Pairs: two low-utilisation jobs that share one device, and are separated when they slow each other down.

Theory. Every occupant is alone on its device. Two of them may be joined when both were measured below a utilisation
for a whole window, their owners allow it, and the memory limits of both fit on one of the two devices with a margin.
Each pair frees one device, so the goal is as many pairs as possible, and among those the pairs with the most headroom
left. That is a matching: exact for small groups, greedy for large ones. A device never gets a third job.
A pair whose measured steps got slower than alone is separated; it is not proposed again before a cool-down.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import msgspec

from penstock.core.model.ids import JobId, NodeName, TenantName
from penstock.core.model.pairing import SharingSettings as SharingSettings
from penstock.core.model.quantities import format_size

FULL_MILLI = 1000

Edge = tuple[int, int]
"""Two jobs that could share a device, by their indexes in the list of candidates, ascending."""


class Occupant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A running attempt on one device, as measured. An attempt on several devices is listed once for each."""

    job: JobId
    tenant: TenantName
    node: NodeName
    device: int
    model: str
    device_memory_bytes: int
    utilisation_milli: int
    """Mean over the window, 0 to 1000."""
    measured_ms: int
    """How much of the last window is measured."""
    memory_used_bytes: int
    """Highest seen."""
    memory_limit_bytes: int = 0
    """The job's memory limit, 0 without one: then its use counts, and the margin covers growth."""
    may_share: bool = False
    movable: bool = True
    """Whether the attempt may be stopped and started again elsewhere."""
    moving_cost: int = 0
    """Cost of stopping and starting it, in device-milliseconds."""

    @property
    def memory_bytes(self) -> int:
        """The device memory that it may use."""
        return max(self.memory_used_bytes, self.memory_limit_bytes)


FitsBeside = Callable[[Occupant, Occupant], bool]
"""Whether the first may move to the device of the second."""


class Parted(msgspec.Struct, frozen=True):
    """Two jobs that shared a device and were parted, in any order, and when."""

    jobs: tuple[JobId, JobId]
    parted_ms: int


class PairProposal(msgspec.Struct, frozen=True):
    """A proposal: `moves` leaves its device, which becomes free, and joins `stays`."""

    stays: JobId
    moves: JobId
    node: NodeName
    device: int
    freed_node: NodeName
    freed_device: int
    utilisation_milli: int
    """Of both together, when they do not disturb each other."""
    memory_bytes: int
    why: str


def to_join(
    running: Iterable[Occupant],
    parted: Iterable[Parted],
    settings: SharingSettings,
    *,
    now_ms: int,
    fits: FitsBeside | None = None,
) -> tuple[PairProposal, ...]:
    """Return which jobs to put together now, best first: lowest summed utilisation, then lower job numbers.

    Args:
        fits: whether a job may move beside another one for all that is not said of occupants, such as free CPUs.

    A job and a device are in at most one pair. Jobs that share a device already, or hold several, are left alone.
    In groups of up to `exact_jobs_max` jobs that could meet, the number of pairs is the highest possible and their
    summed headroom the highest for that number; larger groups are matched greedily, best pair first, which gives
    at least half as many pairs as possible.
    Source: dynamic programming over subsets, after Held and Karp 1962; greedy matching, Avis 1983.
    """
    resting = {_both(*p.jobs) for p in parted if now_ms - p.parted_ms < settings.cool_down_ms}
    alone = _alone_and_quiet(list(running), settings)
    ways: dict[Edge, _Way] = {}
    for i, j in combinations(range(len(alone)), 2):
        way = _way(alone[i], alone[j], settings, fits)
        if way is not None and (alone[i].job, alone[j].job) not in resting:
            ways[i, j] = way
    together = {edge: way.utilisation_milli for edge, way in ways.items()}
    chosen: list[Edge] = []
    for members in _groups(len(alone), together):
        match = _exact if len(members) <= settings.exact_jobs_max else _greedy
        chosen += match(members, together)
    chosen.sort(key=lambda edge: (together[edge], edge))
    return tuple(_pair(ways[edge], settings) for edge in chosen)


def _both(a: JobId, b: JobId) -> tuple[JobId, JobId]:
    return (a, b) if a <= b else (b, a)


def _alone_and_quiet(running: Sequence[Occupant], settings: SharingSettings) -> list[Occupant]:
    """Return the occupants that may be paired at all, by job number."""
    on_device = Counter((each.node, each.device) for each in running)
    of_job = Counter(each.job for each in running)
    quiet = [
        each
        for each in running
        if each.may_share
        and on_device[each.node, each.device] == 1
        and of_job[each.job] == 1
        and each.measured_ms >= settings.window_ms
        and each.utilisation_milli < settings.use_below_milli
    ]
    quiet.sort(key=lambda each: (each.utilisation_milli, each.job))
    return sorted(quiet[: settings.jobs_max], key=lambda each: each.job)


class _Way(NamedTuple):
    mover: Occupant
    stayer: Occupant

    @property
    def utilisation_milli(self) -> int:
        return self.mover.utilisation_milli + self.stayer.utilisation_milli

    @property
    def memory_bytes(self) -> int:
        return self.mover.memory_bytes + self.stayer.memory_bytes


def _way(a: Occupant, b: Occupant, settings: SharingSettings, fits: FitsBeside | None) -> _Way | None:
    """Return the mover and the stayer if `a` and `b` may be joined: the job that is cheaper to move, if it fits."""
    if a.model != b.model or (a.tenant != b.tenant and not settings.across_tenants):
        return None
    ways = [way for way in (_Way(a, b), _Way(b, a)) if way.mover.movable and _fits(way, settings)]
    ways = [way for way in ways if fits is None or fits(*way)]
    return min(ways, key=lambda w: (w.mover.moving_cost, w.mover.memory_bytes, -w.mover.job), default=None)


def _fits(way: _Way, settings: SharingSettings) -> bool:
    device = way.stayer.device_memory_bytes
    margin_kept = FULL_MILLI * (device - way.memory_bytes) >= settings.memory_margin_milli * device
    return margin_kept and way.utilisation_milli <= FULL_MILLI


def _pair(way: _Way, settings: SharingSettings) -> PairProposal:
    mover, stayer = way
    return PairProposal(
        stays=stayer.job,
        moves=mover.job,
        node=stayer.node,
        device=stayer.device,
        freed_node=mover.node,
        freed_device=mover.device,
        utilisation_milli=way.utilisation_milli,
        memory_bytes=way.memory_bytes,
        why=f"job {mover.job} at {_share(mover.utilisation_milli)} and job {stayer.job} at "
        f"{_share(stayer.utilisation_milli)} are both below {_share(settings.use_below_milli)}, and "
        f"{format_size(way.memory_bytes)} fit into {format_size(stayer.device_memory_bytes)} "
        f"with a margin of {_share(settings.memory_margin_milli)}",
    )


def _share(milli: int) -> str:
    return f"{milli // FULL_MILLI}.{milli % FULL_MILLI:03d}"


def _groups(count: int, edges: Iterable[Edge]) -> list[list[int]]:
    """Return the connected groups of at least two of the members 0 to count-1, each ascending."""
    group_of = list(range(count))
    for i, j in edges:
        joined, left = sorted((group_of[i], group_of[j]))
        if joined != left:
            group_of = [joined if g == left else g for g in group_of]
    groups = [[i for i in range(count) if group_of[i] == g] for g in sorted(set(group_of))]
    return [members for members in groups if len(members) > 1]


def _exact(members: Sequence[int], together: dict[Edge, int]) -> tuple[Edge, ...]:
    """Return a matching with the most pairs and, among those, the most summed headroom."""

    @cache
    def best(left: tuple[int, ...]) -> tuple[int, int, tuple[Edge, ...]]:
        if len(left) < 2:
            return 0, 0, ()
        first, rest = left[0], left[1:]
        found: list[tuple[int, int, tuple[Edge, ...]]] = []
        for other in rest:
            if (first, other) in together:
                count, headroom, matched = best(tuple(m for m in rest if m != other))
                found.append((count + 1, headroom + FULL_MILLI - together[first, other], ((first, other), *matched)))
        found.append(best(rest))
        return max(found, key=lambda f: f[:2])  # max keeps the first of equals: the lowest job numbers

    return best(tuple(members))[2]


def _greedy(members: Sequence[int], together: dict[Edge, int]) -> tuple[Edge, ...]:
    """Return a matching that takes the best pair that is still free, again and again."""
    free, chosen = set(members), []
    for edge in sorted(together, key=lambda e: (together[e], e)):
        if free.issuperset(edge):
            free.difference_update(edge)
            chosen.append(edge)
    return tuple(chosen)


class PairedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long one job's training step takes, alone and beside the other, as reported by the job."""

    job: JobId
    alone_us: int
    """Median step time before they met; 0 when it is not known."""
    together_us: int
    steps_together: int
    """Steps measured since they met."""
    movable: bool = True
    moving_cost: int = 0

    @property
    def slowdown_milli(self) -> int:
        """The step together in thousandths of the step alone, rounded up; `alone_us` must be known."""
        return -(-FULL_MILLI * self.together_us // self.alone_us)


class Together(msgspec.Struct, frozen=True):
    """Two jobs that share a device now, in any order."""

    node: NodeName
    device: int
    steps: tuple[PairedStep, PairedStep]
    use_milli: int = 0
    """For which part of the time their device was busy lately; 0 where that is not known."""


class Parting(msgspec.Struct, frozen=True):
    """An order to part: `leaves` is stopped and placed elsewhere; None when neither may be moved."""

    node: NodeName
    device: int
    jobs: tuple[JobId, JobId]
    leaves: JobId | None
    slowdown_milli: int
    """Of the job that suffers most; 0 where neither reports steps."""
    why: str


def to_part(sharing: Iterable[Together], settings: SharingSettings) -> tuple[Parting, ...]:
    """Return which pairs must be parted again, the worst slowdown first.

    A pair is parted when one of its jobs, measured for `steps` steps, takes more than
    `slowdown_milli` of its step time alone. Where no step of either is known, it is parted when the device is
    busy for more than `use_above_milli` of the time. The job that is cheaper to move leaves (equal: the later job).
    The caller records a `Parted` with the time, so that `to_join` leaves the two apart for the cool-down.
    """
    found = [parting for each in sharing if (parting := _parting(each, settings)) is not None]
    return tuple(sorted(found, key=lambda p: (-p.slowdown_milli, p.jobs)))


def _parting(pair: Together, settings: SharingSettings) -> Parting | None:
    known = [s for s in pair.steps if s.alone_us > 0]
    judged = [s for s in known if s.steps_together >= settings.steps]
    worst = max(judged, key=lambda s: (s.slowdown_milli, -s.job), default=None)
    if worst is not None and worst.slowdown_milli > settings.slowdown_milli:
        why = (
            f"a step of job {worst.job} takes {worst.together_us} us together and {worst.alone_us} us alone: "
            f"{_share(worst.slowdown_milli)} is above {_share(settings.slowdown_milli)}"
        )
    elif not known and pair.use_milli > settings.use_above_milli:
        why = f"their device is busy {_share(pair.use_milli)} of the time, above {_share(settings.use_above_milli)}"
    else:
        return None
    movable = sorted((s for s in pair.steps if s.movable), key=lambda s: (s.moving_cost, -s.job))
    return Parting(
        pair.node,
        pair.device,
        _both(pair.steps[0].job, pair.steps[1].job),
        movable[0].job if movable else None,
        worst.slowdown_milli if worst is not None else 0,
        why,
    )
