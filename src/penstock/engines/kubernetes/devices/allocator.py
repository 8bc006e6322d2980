"""Devices for the claims of a whole gang, each on its node: all of them, or none and why.

It is a search with backtracking over claims, requests, alternatives and devices, in a bounded number of tries. Claims
on nodes that have no devices in common are searched for apart. No I/O.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import uuid4

from penstock.engines.kubernetes.devices.constraints import Constraint, constraints_of
from penstock.engines.kubernetes.devices.pools import CounterId, DeviceId, Inventory, Placed, PoolId, Reach
from penstock.engines.kubernetes.devices.requests import (
    RESULTS_MAX,
    Impossible,
    Wanted,
    consumption,
    matching,
    tolerated,
    wanted,
)
from penstock.engines.kubernetes.devices.results import Given, allocation_of
from penstock.engines.kubernetes.devices.use import Use, fits
from penstock.engines.kubernetes.objects.devices import Allocation, ClaimSpec, DeviceClass

TRIES_MAX = 10_000
"""Devices that are tried before a search is given up: some 50 ms. Claims that have no devices in common share them."""
TRIES_A_CLAIM = 16
"""Tries that each claim has beside those."""


class Ask(NamedTuple):
    """A claim that is to be allocated on a node."""

    claim: str
    spec: ClaimSpec
    node: str


class NoFit(NamedTuple):
    """Why there is no allocation."""

    claim: str
    node: str
    text: str
    given_up: bool = False
    """There may be one: the search was given up."""


class Cluster(NamedTuple):
    """What an allocation looks at."""

    inventory: Inventory
    classes: Mapping[str, DeviceClass]
    use: Use
    labels: Callable[[str], Mapping[str, str]]
    """Of a node, by its name."""

    def reach(self, node: str) -> Reach:
        return self.inventory.reach(node, self.labels(node))


class _Option(NamedTuple):
    """One alternative of a request, with the devices that match it."""

    wanted: Wanted
    devices: list[Placed]

    @property
    def number(self) -> int:
        return len(self.devices) if self.wanted.all else self.wanted.ask.count


class _Claim:
    """A claim while it is searched for."""

    def __init__(self, ask: Ask, requests: list[list[_Option]]) -> None:
        self.ask, self.requests = ask, requests
        self.constraints: list[Constraint] = constraints_of(ask.spec)
        self.given: list[Given] = []
        self.first: int = 0
        """Where the device that was taken first stands among those of its option."""


def allocate(
    asks: Sequence[Ask],
    cluster: Cluster,
    new_share: Callable[[], str] = lambda: str(uuid4()),
    tries_max: int | None = None,
) -> dict[str, Allocation] | NoFit:
    """Return an allocation for each claim, or why they cannot have one together.

    Args:
        asks: claims that have none yet, each once.
        new_share: gives the id of each share of a device.
        tries_max: `TRIES_MAX`, unless said; each claim has `TRIES_A_CLAIM` beside them.
    """
    reaches = {node: cluster.reach(node) for node in sorted({ask.node for ask in asks})}
    claims = []
    for ask in sorted(asks, key=lambda one: one.node):
        try:
            claims.append(_Claim(ask, _options(ask, reaches[ask.node], cluster)))
        except Impossible as error:
            return NoFit(ask.claim, ask.node, str(error))
        short = _short(claims[-1], reaches[ask.node], cluster.use)
        if short:
            return NoFit(ask.claim, ask.node, short)
    found: dict[str, Allocation] = {}
    left = TRIES_MAX if tries_max is None else tries_max
    for part in _apart(claims):
        search = _Search(part, cluster.use, left + TRIES_A_CLAIM * len(part))
        why = search.run()
        if why is not None:
            return why
        left -= max(0, search.tries - TRIES_A_CLAIM * len(part))
        for claim in part:
            found[claim.ask.claim] = allocation_of(claim.ask.spec, claim.given, claim.ask.node, new_share)
    return found


def _options(ask: Ask, reach: Reach, cluster: Cluster) -> list[list[_Option]]:
    healthy = [placed for placed in reach.devices if not placed.pool.problem]
    found = []
    for parts in wanted(ask.spec, cluster.classes):
        options = []
        for one in parts:
            if one.all and reach.broken:
                raise Impossible(f"it asks for all devices, and of pool {reach.broken[0]} {reach.broken[0].problem}")
            devices = matching(one, healthy)
            if one.all:
                devices = [placed for placed in devices if _has_left(one, placed, cluster.use)]
            options.append(_Option(one, devices))
        found.append(options)
    return found


def _short(claim: _Claim, reach: Reach, use: Use) -> str:
    """Return what a claim has too little of even alone, in words with numbers; '' where a search may find it."""
    for options in claim.requests:
        texts = []
        for option in options:
            free = [one for one in option.devices if may_have(option.wanted, one, use)]
            count, name = option.number, option.wanted.ask.device_class_name
            if option.wanted.all and (not count or len(free) < count):
                texts.append(f"all devices of class {name} wanted, {len(free)} of {count} free")
            elif len(free) < count:
                ill = sum(not tolerated(option.wanted, one) for one in option.devices)
                tainted = f", {ill} tainted" if ill else ""
                texts.append(f"{_devices(count)} of class {name} wanted, {len(free)} free{tainted}")
        if len(texts) == len(options):
            broken = "".join(f"; of pool {pool} {pool.problem}" for pool in reach.broken[:3])
            return " or ".join(texts) + broken
    return ""


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def may_have(one: Wanted, placed: Placed, use: Use) -> bool:
    """Return whether a request might have a device beside those that have it already."""
    if not tolerated(one, placed):
        return False
    if one.ask.admin_access:
        return True
    if use.taken(placed.id):
        return False
    return _has_left(one, placed, use) and (placed.spec.allow_multiple_allocations or not use.touched(placed.id))


def _has_left(one: Wanted, placed: Placed, use: Use) -> bool:
    """Return whether a device has what a request takes of it: one without is none of "all devices"."""
    takes = consumption(one, placed)
    if takes is None or not placed.spec.allow_multiple_allocations:
        return takes is not None
    return fits(placed, _plus(use.consumed(placed.id), takes))


def _plus(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in {**one, **other}}


def _apart(claims: Sequence[_Claim]) -> list[list[_Claim]]:
    """Return the claims in parts that have no pool of devices in common."""
    parts: dict[int, list[_Claim]] = {}
    part_of: dict[PoolId | str, int] = {}
    keys_of: dict[int, set[PoolId | str]] = {}
    for number, claim in enumerate(claims):
        keys: set[PoolId | str] = {claim.ask.node}
        for options in claim.requests:
            keys |= {one.pool.id for option in options for one in option.devices}
        joined = {part_of[key] for key in keys if key in part_of}
        part = max(joined, key=lambda one: len(keys_of[one]), default=number)
        its = parts.setdefault(part, [])
        for other in sorted(joined - {part}):
            its += parts.pop(other)
            keys |= keys_of.pop(other)
        its.append(claim)
        keys_of.setdefault(part, set()).update(keys)
        part_of.update(dict.fromkeys(keys, part))
    return list(parts.values())


_Ways = Iterator[Any]
"""Ways to go on, one after the other: each yields the ways to go on after it, or None at the end."""


class _Search:
    """A search for claims that have devices in common."""

    def __init__(self, claims: Sequence[_Claim], use: Use, tries_max: int) -> None:
        self._claims, self._use, self._tries_max = claims, use, tries_max
        self._taken: dict[DeviceId, int] = {}
        """Devices that are taken in this search, and how often: several times where they may be shared."""
        self._consumed: dict[DeviceId, dict[str, Fraction]] = {}
        self._counters: dict[PoolId, dict[CounterId, Fraction]] = {}
        """What is left in the pools looked at."""
        self.tries = 0
        self._deepest = 0

    def run(self) -> NoFit | None:
        """Give each claim its devices. Returns: why there is no way to, or None."""
        stack: list[_Ways] = [self._request(0, 0)]
        while stack:
            if self.tries > self._tries_max:
                ask = self._claims[min(self._deepest, len(self._claims) - 1)].ask
                text = f"no combination of devices was found in {self._tries_max:,} tries"
                return NoFit(ask.claim, ask.node, text, given_up=True)
            try:
                following = next(stack[-1])
            except StopIteration:
                stack.pop()
                continue
            if following is None:
                return None
            stack.append(following)
        claim = self._claims[min(self._deepest, len(self._claims) - 1)]
        return NoFit(claim.ask.claim, claim.ask.node, _no_combination(claim))

    def _request(self, at: int, number: int) -> _Ways:
        """Yield what follows each way to give a request its devices; they are given while it is followed."""
        self._deepest = max(self._deepest, at)
        if at == len(self._claims):
            yield None
            return
        claim = self._claims[at]
        if number == len(claim.requests):
            yield self._request(at + 1, 0)
            return
        for option in claim.requests[number]:
            if len(claim.given) + option.number <= RESULTS_MAX and (option.number or not option.wanted.all):
                yield self._device(at, number, option, 0, self._begin(at, number, option))

    def _begin(self, at: int, number: int, option: _Option) -> int:
        """Return where to begin: claims that are alike take their devices in order, so that no order is tried twice."""
        if not at or number or option.wanted.all:
            return 0
        claim, before = self._claims[at], self._claims[at - 1]
        alike = claim.ask.spec == before.ask.spec and claim.ask.node == before.ask.node
        return before.first if alike and len(claim.requests[0]) == 1 else 0

    def _device(self, at: int, number: int, option: _Option, taken: int, begin: int) -> _Ways:
        if taken == option.number:
            yield self._request(at, number + 1)
            return
        claim = self._claims[at]
        for index in range(taken if option.wanted.all else begin, len(option.devices)):
            if len(option.devices) - index < option.number - taken:
                return
            self.tries += 1
            placed = option.devices[index]
            takes = self._take(claim, option.wanted, placed)
            if takes is not None:
                if not number and not taken:
                    claim.first = index
                yield self._device(at, number, option, taken + 1, index + 1)
                self._give_back(claim, option.wanted, placed, takes)
            if option.wanted.all:
                return

    def _take(self, claim: _Claim, one: Wanted, placed: Placed) -> Mapping[str, Fraction] | None:
        """Take a device for a request. Returns: what it consumes of it; None where it cannot be had."""
        device, shared, admin = placed.id, placed.spec.allow_multiple_allocations, one.ask.admin_access
        if not self._may_take(claim, one, placed):
            return None
        takes = consumption(one, placed)
        if takes is None:
            return None
        if shared and not fits(placed, _plus(_plus(self._use.consumed(device), self._consumed.get(device, {})), takes)):
            return None
        counts = not admin and not self._taken.get(device) and not self._use.touched(device)
        if counts and not self._counted(placed, 1):
            return None
        for number, rule in enumerate(claim.constraints):
            if not rule.add(one, placed):
                for before in claim.constraints[:number]:
                    before.remove(one)
                if counts:
                    self._counted(placed, -1)
                return None
        if not admin:
            self._taken[device] = self._taken.get(device, 0) + 1
            if shared:
                self._consumed[device] = _plus(self._consumed.get(device, {}), takes)
        claim.given.append(Given(one, placed, takes if shared else None))
        return takes

    def _may_take(self, claim: _Claim, one: Wanted, placed: Placed) -> bool:
        if not tolerated(one, placed):
            return False
        if one.ask.admin_access:
            return all(given.placed.id != placed.id for given in claim.given)
        if self._use.taken(placed.id):
            return False
        if placed.spec.allow_multiple_allocations:
            return True
        return not self._taken.get(placed.id) and not self._use.touched(placed.id)

    def _give_back(self, claim: _Claim, one: Wanted, placed: Placed, takes: Mapping[str, Fraction]) -> None:
        device = placed.id
        claim.given.pop()
        for rule in claim.constraints:
            rule.remove(one)
        if one.ask.admin_access:
            return
        self._taken[device] -= 1
        if placed.spec.allow_multiple_allocations:
            less = {name: -number for name, number in takes.items()}
            self._consumed[device] = _plus(self._consumed[device], less)
        if not self._taken[device] and not self._use.touched(device):
            self._counted(placed, -1)

    def _counted(self, placed: Placed, sign: int) -> bool:
        """Take what a device consumes of the counters of its pool, or give it back; False where that is not left."""
        if not placed.counters:
            return True
        left = self._counters.get(placed.pool.id)
        if left is None:
            left = self._counters[placed.pool.id] = self._use.counters_left(placed.pool)
        if sign > 0 and any(left.get(key, Fraction(0)) < number for key, number in placed.counters.items()):
            return False
        for key, number in placed.counters.items():
            left[key] = left[key] - sign * number
        return True


def _no_combination(claim: _Claim) -> str:
    parts = []
    for options in claim.requests:
        texts = [f"{_devices(option.number)} of class {option.wanted.ask.device_class_name}" for option in options]
        parts.append(" or ".join(texts))
    rules = "".join(f", with {rule}" for rule in claim.constraints)
    return f"{', and '.join(parts)} wanted{rules}: no devices that are free together are enough"
