"""What drivers publish: slices to pools, and the devices that a node can reach. No I/O.

Only the highest generation of a pool counts, and only once all its slices are there. Source: KEP-4381, KEP-4815.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from penstock.core.model.selectors import accepted
from penstock.engines.kubernetes.asks import terms_of
from penstock.engines.kubernetes.cel.evaluating import Domains
from penstock.engines.kubernetes.cel.values import Quantity, quantity, version
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.objects.devices import (
    Attribute,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
    Scalar,
)
from penstock.engines.kubernetes.objects.pods import NodeSelector

DEVICES_MAX = 128
"""Of one slice, as the API server allows them."""
VERDICTS_MAX = 1_000
"""Expressions of which a device keeps whether it matches them."""


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class PoolId(NamedTuple):
    driver: str
    pool: str


CounterId = tuple[str, str]
"""Counter set, and counter in it."""


def amount(value: Scalar) -> Fraction:
    """Return a quantity as a number; 0 for one that cannot be read."""
    try:
        return quantity(str(value)).number
    except ValueError:
        return Fraction(0)


class Placed:
    """A device in its pool, and where it can be used."""

    def __init__(self, pool: "Pool", made: ResourceSlice, spec: Device) -> None:
        chosen: Device | Any = spec if made.spec.per_device_node_selection else made.spec
        self.id = DeviceId(pool.id.driver, pool.id.pool, spec.name)
        self.pool, self.spec = pool, spec
        self.node: str = chosen.node_name
        self.selector: NodeSelector | None = chosen.node_selector
        self.everywhere: bool = chosen.all_nodes
        self.counters: dict[CounterId, Fraction] = {}
        for used in spec.consumes_counters:
            for name, counter in used.counters.items():
                key = used.counter_set, name
                self.counters[key] = self.counters.get(key, Fraction(0)) + amount(counter.value)
        self.verdicts: dict[str, bool | str] = {}
        """Whether it matches each expression; a text: why that cannot be said."""
        self.taints: tuple[DeviceTaint, ...] = spec.taints
        self._told: dict[str, Any] | None = None

    @property
    def local(self) -> bool:
        """Whether it is of one node alone."""
        return bool(self.node)

    def reaches(self, node: str, labels: Mapping[str, str]) -> bool:
        """Return whether pods on a node can use it."""
        if self.node:
            return self.node == node
        return self.everywhere or (self.selector is not None and selects(self.selector, node, labels))

    def told(self) -> dict[str, Any]:
        """Return what expressions see of it, as their variables."""
        if self._told is None:
            attributes, capacity = Domains(), Domains()
            for name, one in self.spec.attributes.items():
                _put(attributes, self.id.driver, name, _value(one))
            for name, has in self.spec.capacity.items():
                _put(capacity, self.id.driver, name, Quantity(amount(has.value)))
            shared = self.spec.allow_multiple_allocations
            device = {
                "driver": self.id.driver,
                "attributes": attributes,
                "capacity": capacity,
                "allowMultipleAllocations": shared,
            }
            self._told = {"device": device}
        return self._told

    def attribute(self, name: str) -> frozenset[tuple[str, Any]] | None:
        """Return the values of an attribute by its full name, with their type; None where it has none."""
        domain, _, short = name.partition("/")
        found = self.spec.attributes.get(name)
        if found is None and domain == self.id.driver:
            found = self.spec.attributes.get(short)
        values = _values(found) if found is not None else ()
        return frozenset(values) or None


class Pool:
    """The slices of a pool's highest generation.

    Attributes:
        problem: why nothing may be taken from it now; '' if it may.
        steps: of expressions that were evaluated on its devices.
    """

    def __init__(self, pool_id: PoolId, slices: list[ResourceSlice]) -> None:
        self.id = pool_id
        newest = max(one.spec.pool.generation for one in slices)
        current = sorted(
            (one for one in slices if one.spec.pool.generation == newest), key=lambda one: one.metadata.name
        )
        self.devices: dict[str, Placed] = {}
        self.counters: dict[CounterId, Fraction] = {}
        self.problem, self.steps = "", 0
        expected = current[0].spec.pool.resource_slice_count
        if len(current) != expected:
            self.problem = f"only {len(current)} of its {expected} slices are there"
        for one in current:
            self._take(one)
        lacking = [key for placed in self.devices.values() for key in placed.counters if key not in self.counters]
        if lacking and not self.problem:
            self.problem = f"it has no counter {'/'.join(lacking[0])}"
        self.of_one_node = len({placed.node for placed in self.devices.values()}) == 1
        """All its devices are of the same node: what is taken of them changes nothing for others."""
        self.binds_late = any(placed.spec.binding_conditions for placed in self.devices.values())

    def _take(self, one: ResourceSlice) -> None:
        for counters in one.spec.shared_counters:
            for name, counter in counters.counters.items():
                if (counters.name, name) in self.counters and not self.problem:
                    self.problem = f"it has two counter sets {counters.name}"
                self.counters[counters.name, name] = amount(counter.value)
        for spec in one.spec.devices[:DEVICES_MAX]:
            if spec.name in self.devices and not self.problem:
                self.problem = f"it has two devices {spec.name}"
            self.devices[spec.name] = Placed(self, one, spec)

    def __str__(self) -> str:
        return "/".join(self.id)


class Reach(NamedTuple):
    """What pods on a node can use: pools that can be taken from, in order, and others with what is wrong with them."""

    devices: tuple[Placed, ...]
    broken: tuple[Pool, ...]


class Inventory:
    """All pools, by slices that come and go."""

    def __init__(self) -> None:
        self._slices: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._pools: dict[PoolId, Pool] = {}
        self._wide: set[PoolId] = set()
        """Pools with devices that are not of one node alone."""
        self._local: dict[str, set[PoolId]] = {}
        """Pools with devices of a node."""
        self._rules: tuple[DeviceTaintRule, ...] = ()

    def put(self, one: ResourceSlice) -> set[str] | None:
        """Take in a slice. Returns: the nodes for which this changes something; None for all."""
        pool_id = PoolId(one.spec.driver, one.spec.pool.name)
        self._slices.setdefault(pool_id, {})[one.metadata.name] = one
        return self._rebuild(pool_id)

    def drop(self, one: ResourceSlice) -> set[str] | None:
        """Forget a slice. Returns: as `put`."""
        pool_id = PoolId(one.spec.driver, one.spec.pool.name)
        slices = self._slices.get(pool_id, {})
        slices.pop(one.metadata.name, None)
        if not slices:
            self._slices.pop(pool_id, None)
        return self._rebuild(pool_id)

    def taint(self, rules: Iterable[DeviceTaintRule]) -> None:
        """Apply these rules, and no others."""
        before, self._rules = self._rules, tuple(sorted(rules, key=lambda one: one.metadata.name))
        known, now = set(map(id, before)), set(map(id, self._rules))
        changed = [rule for rule in (*before, *self._rules) if id(rule) not in known & now]
        for pool in self._pools.values():
            if any(_picks_of(rule, pool.id) for rule in changed):
                self._taint(pool)

    def _taint(self, pool: Pool) -> None:
        rules = [rule for rule in self._rules if _picks_of(rule, pool.id)]
        for placed in pool.devices.values():
            added = tuple(rule.spec.taint for rule in rules if _picks(rule, placed.id))
            placed.taints = (*placed.spec.taints, *added)

    def _rebuild(self, pool_id: PoolId) -> set[str] | None:
        nodes = {name for name, pools in self._local.items() if pool_id in pools}
        wide = pool_id in self._wide
        self._wide.discard(pool_id)
        for name in nodes:
            self._local[name].discard(pool_id)
        slices = self._slices.get(pool_id)
        if slices is None:
            self._pools.pop(pool_id, None)
            return None if wide else nodes
        pool = self._pools[pool_id] = Pool(pool_id, list(slices.values()))
        self._taint(pool)
        for placed in pool.devices.values():
            if placed.node:
                self._local.setdefault(placed.node, set()).add(pool_id)
                nodes.add(placed.node)
            else:
                self._wide.add(pool_id)
        return None if wide or pool_id in self._wide else nodes

    @property
    def all_local(self) -> bool:
        """Whether each device is of one node alone."""
        return not self._wide

    def of_node(self, node: str) -> list[DeviceId]:
        """Return the devices that are of one node alone."""
        pools = [self._pools[one] for one in sorted(self._local.get(node, ()))]
        return [placed.id for pool in pools for placed in pool.devices.values() if placed.node == node]

    def pool(self, pool_id: PoolId) -> Pool | None:
        return self._pools.get(pool_id)

    def device(self, device: DeviceId) -> Placed | None:
        pool = self._pools.get(PoolId(device.driver, device.pool))
        return pool.devices.get(device.device) if pool is not None else None

    def reach(self, node: str, labels: Mapping[str, str]) -> Reach:
        """Return what pods on a node can use: pools by name, those that become ready only after a while last."""
        pools = [self._pools[one] for one in sorted(self._local.get(node, set()) | self._wide)]
        found: list[Placed] = []
        broken = []
        for pool in sorted(pools, key=lambda one: one.binds_late):
            devices = [one for one in pool.devices.values() if one.reaches(node, labels)]
            if pool.problem and (devices or pool.id in self._local.get(node, set())):
                broken.append(pool)
            elif devices:
                found += devices
        return Reach(tuple(found), tuple(broken))


def selects(selector: NodeSelector, node: str, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects a node with these labels."""
    return accepted(terms_of(selector.node_selector_terms), {**labels, NAME_FIELD: node})


def _picks_of(rule: DeviceTaintRule, pool: PoolId) -> bool:
    """Return whether a rule may select devices of a pool."""
    one = rule.spec.device_selector
    if one is None or one.device_class_name or one.selectors:
        return False
    return one.driver in (None, pool.driver) and one.pool in (None, pool.pool)


def _picks(rule: DeviceTaintRule, device: DeviceId) -> bool:
    """Return whether a rule that may select devices of a pool selects this one of it."""
    one = rule.spec.device_selector
    return one is not None and one.device in (None, device.device)


def _put(domains: Domains, driver: str, name: str, value: Any) -> None:
    domain, _, short = name.rpartition("/")
    domains.setdefault(domain or driver, {})[short] = value


def _value(one: Attribute) -> Any:
    """Return an attribute as expressions see it."""
    for scalar in (one.bool_, one.int_, one.string):
        if scalar is not None:
            return scalar
    if one.version is not None:
        return _version(one.version)
    return [*one.bools, *one.ints, *one.strings, *map(_version, one.versions)]


def _version(text: str) -> Any:
    try:
        return version(text)
    except ValueError:
        return text


def _values(one: Attribute) -> Iterable[tuple[str, Any]]:
    scalars: tuple[tuple[str, Any], ...] = (
        ("bool", one.bool_),
        ("int", one.int_),
        ("string", one.string),
        ("version", one.version),
    )
    yield from ((kind, value) for kind, value in scalars if value is not None)
    lists: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("bool", one.bools),
        ("int", one.ints),
        ("string", one.strings),
        ("version", one.versions),
    )
    for kind, values in lists:
        yield from ((kind, value) for value in values)
