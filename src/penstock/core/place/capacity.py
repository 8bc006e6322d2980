"""Free capacity of a node as a value: nodes that are alike and equally free share one, so work is done once for all.

`NodeShape` is the constant part of a node, `NodeCapacity` its free capacity now. Both are values with a hash, and
independent of the order in which capacity was taken and put back.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from penstock.core.model.affinity import Repels, RepelTally, Tally
from penstock.core.model.cluster import Node
from penstock.core.model.ids import PoolName, TenantName
from penstock.core.model.resources import (
    LINK_KINDS,
    WHOLE_DEVICE_MILLI,
    Device,
    DeviceAsk,
    Extended,
    LinkKind,
    ReplicaAsk,
    Resources,
    Sharing,
)
from penstock.core.model.selectors import Taint

_NOTHING = Resources()
_PLAIN = Sharing()
Counted = TypeVar("Counted", str, Repels)

Groups = tuple[tuple[int, ...], ...]
Instances = tuple[tuple[str, int], ...]
"""MIG instances of a device: (profile, first memory slice), ascending by slice."""


class SharedDevice(NamedTuple):
    """A device of which fractions are given out."""

    device: int
    memory_left: int
    """Of its memory (bytes); below 0 where more is promised than it has."""
    strict: int = 0
    """Fractions of it that do not allow that."""


class NodeShape:
    """Common attributes of nodes that are alike: pool, labels, capacity, devices and how these may be divided.

    Compared by value.
    """

    __slots__ = ("_groups", "_hash", "_meshed", "_near", "capacity", "devices", "key", "label_map", "labels", "pool",
                 "sharing", "storage", "taints", "virtualization")  # fmt: skip

    def __init__(
        self,
        pool: PoolName,
        labels: tuple[tuple[str, str], ...],
        capacity: Resources,
        devices: tuple[Device, ...],
        sharing: Sharing = _PLAIN,
        taints: tuple[Taint, ...] = (),
        storage: str = "",
    ) -> None:
        self.pool, self.labels, self.capacity, self.devices = pool, labels, capacity, devices
        self.label_map, self.taints = dict(labels), taints
        self.sharing, self.virtualization, self.storage = sharing, sharing.virtualization, storage
        self.key: tuple[Any, ...] = (
            pool,
            labels,
            (capacity.cpu_milli, capacity.memory_bytes, capacity.storage_bytes, capacity.bandwidth_bps),
            capacity.extended,
            tuple(_device_key(d) for d in devices),
            sharing,
            taints,
            storage,
        )
        self._hash = hash(self.key)
        self._groups: dict[LinkKind, Groups] = {}
        self._near: dict[LinkKind, tuple[frozenset[int], ...]] = {}
        self._meshed: dict[LinkKind, bool] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, NodeShape) and self._hash == other._hash and self.key == other.key)

    def __lt__(self, other: "NodeShape") -> bool:
        return bool(self.key < other.key)

    def near(self, kind: LinkKind) -> tuple[frozenset[int], ...]:
        """Return for each device the devices joined to it directly by a link of `kind` or closer, itself included."""
        found = self._near.get(kind)
        if found is None:
            found = self._near[kind] = _neighbours(self.devices, kind)
        return found

    def groups(self, kind: LinkKind) -> Groups:
        """Return the devices as connected components over links of `kind` or closer."""
        found = self._groups.get(kind)
        if found is None:
            found = self._groups[kind] = _parts(self.near(kind))
        return found

    def meshed(self, kind: LinkKind) -> bool:
        """Return whether in each group of `kind` every device reaches every other directly."""
        found = self._meshed.get(kind)
        if found is None:
            near = self.near(kind)
            found = all(near[i] == frozenset(group) for group in self.groups(kind) for i in group)
            self._meshed[kind] = found
        return found


class NodeCapacity(NamedTuple):
    """Free capacity of a node of one shape.

    `devices` has one entry a device in thousandths: 1000 free, 0 held whole, cut into MIG instances or out of order,
    between them the rest of a device that is given out in fractions. `shared` has such devices, `mig` the instances of
    each device that is cut up; both ascending by device.
    """

    shape: NodeShape
    closed: str
    """Why the node takes no work (a reason code), or empty."""
    kept_for: TenantName
    """The tenant it is reserved for at present, or empty."""
    cpu_milli: int
    memory_bytes: int
    storage_bytes: int
    bandwidth_bps: int
    devices: tuple[int, ...]
    shared: tuple[SharedDevice, ...] = ()
    mig: tuple[tuple[int, Instances], ...] = ()
    shut_to: tuple[TenantName, ...] = ()
    """Tenants whose work it does not take, ascending."""
    extended: Extended = ()
    """What is left of each extended resource that the node has, 0 included."""
    selected: Tally = ()
    """How many of the replicas there each selector in use selects."""
    repels: RepelTally = ()
    """Whom the rules of replicas there keep off this node, or its domain."""
    load: tuple[int, ...] = ()
    """How its host is really used (`HostLoad.key`); empty where that is not noted."""
    present: tuple[tuple[int, Instances], ...] = ()
    """The MIG instances that are on each device, held or idle; ascending by device."""
    leaving: bool = False
    """The node will have gone: nothing may be there that has to stay."""

    @property
    def host(self) -> Resources:
        return Resources(self.cpu_milli, self.memory_bytes, self.storage_bytes, self.bandwidth_bps, self.extended)

    @property
    def whole(self) -> list[int]:
        """Indexes of wholly free devices, ascending."""
        return [i for i, milli in enumerate(self.devices) if milli == WHOLE_DEVICE_MILLI]

    def instances(self, index: int) -> Instances:
        """Return the MIG instances of a device, none when it is not cut up."""
        return next((found for i, found in self.mig if i == index), ())

    def shared_device(self, index: int) -> SharedDevice:
        """Return the memory and the holders of a device, as of one that no fraction holds where it is not shared."""
        known = next((one for one in self.shared if one.device == index), None)
        return known or SharedDevice(index, self.shape.devices[index].memory_bytes)

    def memory_left(self, index: int, *, oversubscribe: bool = False) -> int:
        """Return the device memory that a fraction may still be promised (bytes); below 0 on a device that has promised
        more than it has.

        Args:
            oversubscribe: of a fraction that allows that; it gets more only beside others that allow it, too.
        """
        known = self.shared_device(index)
        if not oversubscribe or known.strict:
            return known.memory_left
        more = self.shape.sharing.oversubscription_milli - WHOLE_DEVICE_MILLI
        return known.memory_left + self.shape.devices[index].memory_bytes * more // WHOLE_DEVICE_MILLI

    def take(self, ask: ReplicaAsk, devices: Iterable[int] = (), slots: tuple[int, ...] = ()) -> "NodeCapacity":
        """Return the capacity left after one replica took its host share and these devices (slots: of MIG profiles)."""
        return self._change(ask, devices, slots, -1)

    def put_back(self, ask: ReplicaAsk, devices: Iterable[int] = (), slots: tuple[int, ...] = ()) -> "NodeCapacity":
        """Return the capacity free once one replica has left: the inverse of `take`."""
        return self._change(ask, devices, slots, 1)

    def without_host(self, host: Resources, times: int) -> "NodeCapacity":
        """Return the capacity left after `times` replicas took this host share (below 0: put it back)."""
        return self._replace(
            cpu_milli=self.cpu_milli - times * host.cpu_milli,
            memory_bytes=self.memory_bytes - times * host.memory_bytes,
            storage_bytes=self.storage_bytes - times * host.storage_bytes,
            bandwidth_bps=self.bandwidth_bps - times * host.bandwidth_bps,
            extended=_shifted(self.extended, host.extended, -times),
        )

    def _change(self, ask: ReplicaAsk, devices: Iterable[int], slots: tuple[int, ...], sign: int) -> "NodeCapacity":
        host, wanted = ask.host, ask.devices
        milli, shared, mig = self.devices, self.shared, self.mig
        if wanted is not None:
            if wanted.whole:
                level = 0 if sign < 0 else WHOLE_DEVICE_MILLI
                changed = list(milli)
                for index in devices:
                    changed[index] = level if self.shape.devices[index].healthy else 0
                milli = tuple(changed)
            elif wanted.profile:
                for index, slot in zip(devices, slots, strict=True):
                    milli, mig = self._cut(milli, mig, index, (wanted.profile, slot), sign)
            else:
                for index in devices:
                    milli, shared = self._fraction(milli, shared, index, wanted, sign)
        return NodeCapacity(
            self.shape,
            self.closed,
            self.kept_for,
            self.cpu_milli + sign * host.cpu_milli,
            self.memory_bytes + sign * host.memory_bytes,
            self.storage_bytes + sign * host.storage_bytes,
            self.bandwidth_bps + sign * host.bandwidth_bps,
            milli,
            shared,
            mig,
            self.shut_to,
            _shifted(self.extended, host.extended, sign),
            tallied(self.selected, ask.selected, -sign),
            tallied(self.repels, ask.repels, -sign) if ask.affinity else self.repels,
            self.load,
            self.present,
            self.leaving,
        )

    def _fraction(
        self, milli: tuple[int, ...], shared: tuple[SharedDevice, ...], index: int, ask: DeviceAsk, sign: int
    ) -> tuple[tuple[int, ...], tuple[SharedDevice, ...]]:
        device = self.shape.devices[index]
        if not device.healthy:
            return milli, shared
        level = milli[index] + sign * ask.share_milli
        known = next((one for one in shared if one.device == index), SharedDevice(index, device.memory_bytes))
        others = [one for one in shared if one.device != index]
        if level != WHOLE_DEVICE_MILLI:
            left = known.memory_left + sign * ask.memory_of(device)
            others.append(SharedDevice(index, left, known.strict if ask.oversubscribe else known.strict - sign))
        return (*milli[:index], level, *milli[index + 1 :]), tuple(sorted(others))

    def _cut(
        self,
        milli: tuple[int, ...],
        mig: tuple[tuple[int, Instances], ...],
        index: int,
        one: tuple[str, int],
        sign: int,
    ) -> tuple[tuple[int, ...], tuple[tuple[int, Instances], ...]]:
        cut = dict(mig)
        rest = [instance for instance in cut.pop(index, ()) if instance != one]
        if sign < 0:
            rest.append(one)
        if rest:
            cut[index] = tuple(sorted(rest, key=lambda instance: (instance[1], instance[0])))
        level = 0 if rest or not self.shape.devices[index].healthy else WHOLE_DEVICE_MILLI
        return (*milli[:index], level, *milli[index + 1 :]), tuple(sorted(cut.items()))


def shape_of(node: Node, pools: Mapping[PoolName, Sharing] = MappingProxyType({})) -> NodeShape:
    """Return the shape of a node; `pools` say how they share devices, where they say anything."""
    spec = node.spec
    sharing = pools.get(spec.pool, _PLAIN)
    devices = _given_out(spec.devices, sharing)
    return NodeShape(spec.pool, spec.labels, spec.capacity, devices, sharing, spec.taints, spec.storage)


def _given_out(devices: tuple[Device, ...], sharing: Sharing) -> tuple[Device, ...]:
    """Return devices with the isolation that fractions of them reach in their pool."""
    if any(device.isolation == "driver" for device in devices):
        return tuple(device.isolated_within(sharing.virtualization) for device in devices)
    return devices


def opened_shape(node: Node, shape: NodeShape) -> NodeShape:
    """Return the shape of a node, given as it is, as if none of its devices was closed."""
    if not node.devices_closed:
        return shape
    devices = _given_out(node.spec_said.devices, shape.sharing)
    return _with_devices(shape, devices)


def _with_devices(shape: NodeShape, devices: tuple[Device, ...]) -> NodeShape:
    return NodeShape(shape.pool, shape.labels, shape.capacity, devices, shape.sharing, shape.taints, shape.storage)


def without_mig_mode(free: NodeCapacity) -> NodeCapacity:
    """Return the capacity of a node as if MIG mode were off on all its devices."""
    shape = free.shape
    devices = tuple(replace(one, mig_mode=False) for one in shape.devices)
    return free._replace(shape=_with_devices(shape, devices))


def empty(shape: NodeShape, closed: str = "", shut_to: tuple[TenantName, ...] = ()) -> NodeCapacity:
    """Return a node of this shape that holds nothing."""
    has = shape.capacity
    devices = tuple(WHOLE_DEVICE_MILLI if d.healthy else 0 for d in shape.devices)
    host = (has.cpu_milli, has.memory_bytes, has.storage_bytes, has.bandwidth_bps)
    return NodeCapacity(shape, closed, TenantName(""), *host, devices, shut_to=shut_to, extended=has.extended)


def unheld(node: Node, shape: NodeShape) -> NodeCapacity:
    """Return what a node of this shape has for jobs when it runs none: all but what others hold.

    Host amounts are below 0 where they hold more than there is.
    """
    free = empty(shape, closed_reason(node), node.shut_to)
    if load := node.load.key:
        free = free._replace(load=load)
    if node.instances:
        free = free._replace(present=tuple((one.index, one.instances) for one in node.instances if one.instances))
    held = node.others
    if held.selected or held.repels:
        free = free._replace(selected=held.selected, repels=tuple((one, 1) for one in held.repels))
    if not held.devices:
        return free.without_host(held.host, 1) if held.host != _NOTHING else free
    devices = tuple(0 if index in held.devices else milli for index, milli in enumerate(free.devices))
    return free.without_host(held.host, 1)._replace(devices=devices)


def tallied(
    counts: tuple[tuple[Counted, int], ...], more: Iterable[Counted], times: int
) -> tuple[tuple[Counted, int], ...]:
    """Return counts by name after each of these was counted `times` more."""
    if not more:
        return counts
    found = dict(counts)
    for one in more:
        found[one] = found.get(one, 0) + times
    return tuple(sorted((one, number) for one, number in found.items() if number))


def _shifted(free: Extended, host: Extended, times: int) -> Extended:
    """Return what is left after `times` such amounts were added; a resource that the node does not have stays so."""
    if not host:
        return free
    amounts = dict(host)
    return tuple([(name, left + times * amounts.get(name, 0)) for name, left in free])


def closed_reason(node: Node) -> str:
    """Return why a node takes no new work even with enough capacity free, or ''."""
    if node.state == "lost":
        return "node_lost"
    if node.state == "joining":
        return "node_joining"
    return "node_draining" if node.draining else ""


def _device_key(device: Device) -> tuple[Any, ...]:
    links = tuple((link.peer, link.kind) for link in device.links)
    facts = (device.vendor, device.model, device.memory_bytes, device.capability, device.numa_node)
    return (*facts, device.healthy, device.mig, device.mig_mode, device.isolation, links)


def _neighbours(devices: tuple[Device, ...], kind: LinkKind) -> tuple[frozenset[int], ...]:
    """Links count in both directions; two devices of one NUMA node are joined by a link of kind `numa`."""
    reach = LINK_KINDS.index(kind)
    if kind == "node":
        return (frozenset(range(len(devices))),) * len(devices)
    near = [{i} for i in range(len(devices))]
    for device in devices:
        for link in device.links:
            if LINK_KINDS.index(link.kind) <= reach and link.peer < len(devices):
                near[device.index].add(link.peer)
                near[link.peer].add(device.index)
        if kind == "numa":
            near[device.index].update(d.index for d in devices if d.numa_node == device.numa_node)
    return tuple(map(frozenset, near))


def _parts(near: tuple[frozenset[int], ...]) -> Groups:
    left, groups = set(range(len(near))), []
    while left:
        todo = [min(left)]
        group: set[int] = set()
        while todo:
            index = todo.pop()
            if index not in group:
                group.add(index)
                todo.extend(near[index])
        left -= group
        groups.append(tuple(sorted(group)))
    return tuple(groups)
