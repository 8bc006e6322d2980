"""The layout of MIG instances that gives what is wanted with the fewest re-partitions, and default layouts.

Theory. To re-partition is to destroy an instance or to make one. Of two layouts the better one destroys fewer
instances, then makes fewer, then touches fewer devices, then leaves more open (`mig.openness`, summed over devices).
An instance in use stays where it is. An instance that nobody uses stays as well unless it is in the way: the next job
of its profile needs no step at all. Each device has a table: what it can give (how many of each wanted profile) and
the cheapest way to it, by search over the idle instances that stay and the starts of new ones. The tables are joined
device by device, keeping of equal remainders the cheapest: exact, as all five costs are sums.

Steps of a plan destroy before they make, device by device. Part of a legal layout is legal: a plan that stops half-way
leaves a legal state.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import msgspec

from penstock.core.model.resources import DividingStrategy
from penstock.core.place.mig import (
    Geometry,
    Instance,
    Used,
    addable,
    grown,
    illegal,
    nearest_profiles,
    open_starts,
    openness,
    used_by,
)

Strategy = DividingStrategy
STRATEGIES: tuple[Strategy, ...] = ("training", "inference", "balanced")
WORK_MAX = 1_000_000
"""Combinations of a remainder and a device's choice that one plan looks at; beyond them only the cheapest go on."""


class PresentInstance(NamedTuple):
    """An instance that is on a device."""

    profile: str
    start: int
    in_use: bool = False
    """It is given out, or a process has it open: it stays."""

    @property
    def instance(self) -> Instance:
        return Instance(self.profile, self.start)


class CutDevice(msgspec.Struct, frozen=True):
    """A device of a node that may be divided, as it is."""

    index: int
    geometry: Geometry
    instances: tuple[PresentInstance, ...] = ()


class Step(NamedTuple):
    """One change of one device."""

    device: int
    action: Literal["destroy", "create"]
    instance: Instance


class MigPlan(msgspec.Struct, frozen=True):
    """How to get from what is to what is wanted. All tuples by device, ascending."""

    steps: tuple[Step, ...]
    """In the order in which they can be done."""
    wanted: tuple[tuple[int, Instance], ...]
    """Where each wanted instance lies, by device."""
    layouts: tuple[tuple[int, tuple[Instance, ...]], ...]
    """All instances of each device afterwards, ascending by start."""
    destroyed: int
    created: int
    touched: int
    """Devices that the steps change."""
    exact: bool = True
    """No other layout needs fewer; False: `WORK_MAX` was reached, and there may be one."""


class NoLayout(msgspec.Struct, frozen=True):
    """What is wanted cannot be had beside what is in use."""

    reason: str


_Cost = tuple[int, int, int, int, int]
"""Destroyed, made, devices touched, and what is left open (both parts negative): the lowest is the best."""


class _Choice(NamedTuple):
    """One way to change a device."""

    cost: _Cost
    made: tuple[Instance, ...]
    kept: tuple[Instance, ...]
    gives: tuple[int, ...]
    """How many of each wanted profile it has for the caller."""


def plan(
    devices: Sequence[CutDevice],
    wanted: Collection[str] = (),
    wanted_at: Mapping[int, Collection[Instance]] | None = None,
) -> MigPlan | NoLayout:
    """Return the plan with the fewest re-partitions, or why there is no layout.

    Args:
        devices: at most one of each index, any order; only these are changed.
        wanted: profiles, each as often as it is wanted beside what is in use, on any of the devices.
        wanted_at: instances wanted at given places, by device, beside `wanted`.
    Raises: ValueError for a device whose instances cannot lie there together.
    """
    counts = Counter(wanted)
    kinds = tuple(sorted(counts))
    limits = tuple(counts[kind] for kind in kinds)
    ordered = sorted(devices, key=lambda device: device.index)
    places = {index: frozenset(at) for index, at in (wanted_at or {}).items()}
    refused = _unknown(ordered, kinds, places)
    if refused:
        return NoLayout(refused)
    tables: list[tuple[_Choice, ...]] = []
    alike: dict[tuple[str, frozenset[PresentInstance], frozenset[Instance]], tuple[_Choice, ...]] = {}
    for device in ordered:
        at = places.get(device.index, frozenset())
        key = (device.geometry.name, frozenset(device.instances), at)
        if key not in alike:
            alike[key] = _table(device, kinds, limits, at)
        if not alike[key]:
            return NoLayout(_taken(device, at))
        tables.append(alike[key])
    joined, exact = _join(tables, limits)
    if joined is None:
        return NoLayout(_short(tables, kinds, limits, exact=exact))
    return _as_plan(ordered, joined, kinds, limits, places, exact=exact)


def _unknown(devices: Sequence[CutDevice], kinds: Iterable[str], places: Mapping[int, Collection[Instance]]) -> str:
    """Return why what is wanted is nothing that these devices have, or ''."""
    if missing := sorted(places.keys() - {device.index for device in devices}):
        return f"device {missing[0]} is none of those that may be divided"
    names = {profile.name for device in devices for profile in device.geometry.profiles}
    for kind in kinds:
        if kind not in names:
            known = [f"{d.geometry.name}: {', '.join(nearest_profiles(d.geometry, kind))}" for d in devices]
            return f"no device has the profile {kind}; nearest are {'; '.join(dict.fromkeys(known)) or 'none'}"
    for device in devices:
        if reason := illegal(device.geometry, places.get(device.index, ())):
            return f"device {device.index}: {reason}"
    return ""


def _taken(device: CutDevice, at: Collection[Instance]) -> str:
    used = ", ".join(f"{one.profile} at {one.start}" for one in device.instances if one.in_use)
    asked = ", ".join(f"{one.profile} at {one.start}" for one in sorted(at))
    return f"device {device.index} has no room for {asked} beside what is in use there ({used})"


def _short(tables: Sequence[tuple[_Choice, ...]], kinds: Sequence[str], limits: Sequence[int], *, exact: bool) -> str:
    for at, kind in enumerate(kinds):
        most = sum(max(choice.gives[at] for choice in table) for table in tables)
        if most < limits[at]:
            return f"{limits[at]} of {kind} are wanted, {most} fit beside what is in use"
    each = ", ".join(f"{limit} of {kind}" for kind, limit in zip(kinds, limits, strict=True))
    return f"no layout has {each} together beside what is in use" + ("" if exact else " among those looked at")


def _table(
    device: CutDevice, kinds: tuple[str, ...], limits: tuple[int, ...], at: frozenset[Instance]
) -> tuple[_Choice, ...]:
    """Return the choices of a device of which none is worse than another in all that matters; none without room."""
    fixed = [one.instance for one in device.instances if one.in_use]
    idle = sorted(one.instance for one in device.instances if not one.in_use)
    used_by(device.geometry, [*fixed, *idle])  # what is there must be legal, for every part of it to be
    fills = _Fills(device.geometry, kinds)
    best: dict[tuple[int, ...], _Choice] = {}
    for count in range(len(idle), -1, -1):
        for kept in combinations(idle, count):
            placed = tuple(sorted(at.difference(kept)))
            used = used_by(device.geometry, [*fixed, *kept])
            if any(one in fixed for one in placed) or not _fit(device.geometry, used, placed):
                continue
            used = used_by(device.geometry, [*fixed, *kept, *placed])
            held = Counter(one.profile for one in kept if one not in at)
            own = tuple(min(held[kind], limit) for kind, limit in zip(kinds, limits, strict=True))
            for added, (left, made) in fills.of(used).items():
                gives = tuple(map(int.__add__, own, added))
                if any(given > limit for given, limit in zip(gives, limits, strict=True)):
                    continue
                gone, new = len(idle) - count, len(placed) + len(made)
                cost = (gone, new, int(gone + new > 0), -left[0], -left[1])
                choice = _Choice(cost, tuple(sorted((*placed, *made))), kept, gives)
                if gives not in best or choice < best[gives]:
                    best[gives] = choice
    return _undominated(best.values())


def _fit(geometry: Geometry, used: Used, placed: Iterable[Instance]) -> bool:
    for name, start in placed:
        profile = geometry.profile(name)
        if profile is None or start not in open_starts(geometry, used, profile):
            return False
        used = grown(used, profile, start)
    return True


def _undominated(choices: Iterable[_Choice]) -> tuple[_Choice, ...]:
    """Return choices, cheapest first, without those that cost as much as another and give no more."""
    kept: list[_Choice] = []
    for choice in sorted(choices):
        if not any(all(a >= b for a, b in zip(other.gives, choice.gives, strict=True)) for other in kept):
            kept.append(choice)
    return tuple(kept)


_Filled = dict[tuple[int, ...], tuple[tuple[int, int], tuple[Instance, ...]]]
"""By how many of each kind are added: what is left open then, and where they lie."""


class _Fills:
    """Every set of wanted profiles that can still be added to a state, each where it leaves the most open."""

    def __init__(self, geometry: Geometry, kinds: tuple[str, ...]) -> None:
        self._geometry = geometry
        self._kinds = [geometry.profile(kind) for kind in kinds]
        self._known: dict[tuple[Used, int], _Filled] = {}

    def of(self, used: Used, first: int = 0) -> _Filled:
        """Return the sets of kinds from number `first` on."""
        known = self._known.get((used, first))
        if known is not None:
            return known
        if first == len(self._kinds):
            nothing = (0,) * first
            return self._known.setdefault((used, first), {nothing: (openness(self._geometry, used), ())})
        filled = dict(self.of(used, first + 1))
        profile = self._kinds[first]
        for start in open_starts(self._geometry, used, profile) if profile is not None else ():
            assert profile is not None
            for counts, (left, made) in self.of(grown(used, profile, start), first).items():
                more = (*counts[:first], counts[first] + 1, *counts[first + 1 :])
                lies = tuple(sorted((Instance(profile.name, start), *made)))
                other = filled.get(more)
                if other is None or (left, _reversed(other[1])) > (other[0], _reversed(lies)):
                    filled[more] = (left, lies)
        return self._known.setdefault((used, first), filled)


def _reversed(made: tuple[Instance, ...]) -> tuple[int, ...]:
    """Return what makes the lowest starts the greatest."""
    return tuple(-start for _, start in made)


class _Joined(NamedTuple):
    cost: _Cost
    choices: tuple[_Choice, ...]


def _join(tables: Sequence[tuple[_Choice, ...]], limits: tuple[int, ...]) -> tuple[_Joined | None, bool]:
    """Return the cheapest choice of all devices that gives everything, and whether none can have been overlooked."""
    most = [[max(choice.gives[at] for choice in table) for table in tables] for at in range(len(limits))]
    states: dict[tuple[int, ...], _Joined] = {limits: _Joined((0, 0, 0, 0, 0), ())}
    allowed, exact = WORK_MAX // max(1, len(tables)), True
    for number, table in enumerate(tables):
        later = [sum(of[number + 1 :]) for of in most]
        ranked = sorted(states.items(), key=lambda item: (sum(item[0]), item[1].cost, item[0]))
        if len(ranked) * len(table) > allowed:
            exact = False
            del ranked[max(1, allowed // len(table)) :]
        following: dict[tuple[int, ...], _Joined] = {}
        for rest, so_far in ranked:  # those with the least left first: equal plans fall to the first devices
            for choice in table:
                left = tuple(max(0, a - b) for a, b in zip(rest, choice.gives, strict=True))
                if any(a > b for a, b in zip(left, later, strict=True)):
                    continue
                a, b = so_far.cost, choice.cost
                cost = (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4])
                other = following.get(left)
                if other is None or cost < other.cost:
                    following[left] = _Joined(cost, (*so_far.choices, choice))
        states = following
    return states.get((0,) * len(limits)), exact


def _as_plan(
    devices: Sequence[CutDevice],
    joined: _Joined,
    kinds: Sequence[str],
    limits: Sequence[int],
    places: Mapping[int, Collection[Instance]],
    *,
    exact: bool,
) -> MigPlan:
    left = dict(zip(kinds, limits, strict=True))
    steps: list[Step] = []
    wanted: list[tuple[int, Instance]] = []
    layouts: list[tuple[int, tuple[Instance, ...]]] = []
    for device, choice in zip(devices, joined.choices, strict=True):
        idle = [one.instance for one in device.instances if not one.in_use]
        steps += [Step(device.index, "destroy", one) for one in sorted(idle) if one not in choice.kept]
        steps += [Step(device.index, "create", one) for one in choice.made]
        at = places.get(device.index, ())
        for one in (*choice.made, *choice.kept):
            if one in at or left.get(one.profile, 0):
                wanted.append((device.index, one))
                left[one.profile] = left.get(one.profile, 0) - (one not in at)
        fixed = [one.instance for one in device.instances if one.in_use]
        layouts.append((device.index, _by_start([*fixed, *choice.kept, *choice.made])))
    destroyed, created, touched, *_ = joined.cost
    return MigPlan(tuple(steps), tuple(sorted(wanted)), tuple(layouts), destroyed, created, touched, exact)


def _by_start(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    return tuple(sorted(instances, key=lambda one: (one.start, one.profile)))


def default_layout(geometry: Geometry, strategy: Strategy) -> tuple[str, ...]:
    """Return the profiles into which a strategy divides an empty device, largest first.

    `training`: two halves of the memory (3g of seven compute slices, 2g of four). `inference`: as many of the smallest
    profile as fit. `balanced`: large and small together, all of the memory: 3g, 2g and two 1g of seven compute slices,
    2g and two 1g of four. Source of the last: `all-balanced` of NVIDIA's mig-parted, the same on all these models.
    Profiles that add or leave out media or graphics engines are used by none.
    """
    plain = sorted(
        (p for p in geometry.profiles if p.name.endswith("gb")), key=lambda p: (p.memory_slices, p.compute_slices)
    )
    small = plain[0]
    half = next(p for p in plain if p.count_max == 2)
    if strategy == "training":
        return (half.name,) * half.count_max
    if strategy == "inference":
        return (small.name,) * small.count_max
    quarter = [p for p in plain if 1 < p.compute_slices < half.compute_slices]
    return (half.name, *(p.name for p in quarter), small.name, small.name)


def strategy_plan(device: CutDevice, strategy: Strategy) -> MigPlan:
    """Return the plan that divides a device by a strategy.

    Beside what is in use as much of the strategy's layout as fits, largest first; instances in use count towards it.
    """
    best = plan([device], wanted_beside(device, strategy))
    assert isinstance(best, MigPlan), "each of them fits"
    return best


def wanted_beside(device: CutDevice, strategy: Strategy) -> list[str]:
    """Return as much of a strategy's layout as fits beside what is in use, without what is in use itself."""
    held = Counter(one.profile for one in device.instances if one.in_use)
    used = used_by(device.geometry, [one.instance for one in device.instances if one.in_use])
    wanted: list[str] = []
    for name in default_layout(device.geometry, strategy):
        if held[name]:
            held[name] -= 1
        elif addable(device.geometry, used, [*wanted, name]):
            wanted.append(name)
    return wanted


def is_divided(device: CutDevice, strategy: Strategy) -> bool:
    """Return whether the plan of a strategy has no steps. Much cheaper than the plan."""
    idle = Counter(one.profile for one in device.instances if not one.in_use)
    return Counter(wanted_beside(device, strategy)) <= idle
