"""Free capacity during one planning cycle: a tentative copy that placements are taken from and put back to."""

from collections.abc import Iterable

from penstock.core.derived import Load
from penstock.core.model.cluster import Node, NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.model.resources import LINK_KINDS, Device, DeviceAsk, LinkKind, ReplicaAsk, Resources
from penstock.core.state import State

Groups = tuple[tuple[int, ...], ...]


class FreeNode:
    """What is free on one node after everything already planned in this cycle."""

    __slots__ = ("_groups", "closed", "devices", "host", "incarnation", "spec")

    def __init__(self, node: Node, load: Load | None) -> None:
        self.spec: NodeSpec = node.spec
        self.incarnation = node.incarnation
        self.closed = _closed(node)
        self.host: Resources = node.spec.capacity - load.host if load else node.spec.capacity
        held = load.devices if load else {}
        self.devices: set[int] = {d.index for d in node.spec.devices if d.index not in held}
        self._groups: dict[LinkKind, Groups] = {}

    def emptied(self) -> "FreeNode":
        """Return this node as if it held nothing."""
        copy = FreeNode.__new__(FreeNode)
        copy.spec, copy.incarnation, copy.closed = self.spec, self.incarnation, self.closed
        copy.host, copy.devices, copy._groups = self.spec.capacity, {d.index for d in self.spec.devices}, self._groups
        return copy

    def eligible(self, ask: DeviceAsk) -> list[int]:
        """Return indexes of free devices that pass every filter of `ask`, ascending."""
        return [d.index for d in self.spec.devices if d.index in self.devices and ask.accepts(d) is None]

    def groups(self, kind: LinkKind) -> Groups:
        """Return the node's devices parted into sets that are joined by links of `kind` or closer."""
        found = self._groups.get(kind)
        if found is None:
            found = self._groups[kind] = _join(self.spec.devices, kind)
        return found

    def take(self, ask: ReplicaAsk, devices: Iterable[int]) -> None:
        self.host = self.host - ask.host
        self.devices.difference_update(devices)

    def put_back(self, ask: ReplicaAsk, devices: Iterable[int]) -> None:
        self.host = self.host + ask.host
        self.devices.update(devices)


class FreeCluster:
    """All nodes of a snapshot by name, with tentative changes."""

    def __init__(self, nodes: Iterable[FreeNode]) -> None:
        self.nodes: dict[NodeName, FreeNode] = {n.spec.name: n for n in sorted(nodes, key=lambda n: n.spec.name)}

    def take(self, ask: GangAsk, places: Iterable[ReplicaPlace]) -> None:
        for place in places:
            self.nodes[place.node].take(ask.each, place.devices)

    def put_back(self, ask: GangAsk, places: Iterable[ReplicaPlace]) -> None:
        for place in places:
            self.nodes[place.node].put_back(ask.each, place.devices)


def free_cluster(state: State) -> FreeCluster:
    """Return what is free now: capacity less everything held by attempts."""
    loads = state.derived.loads
    return FreeCluster(FreeNode(node, loads.get(name)) for name, node in state.nodes.items())


def empty_cluster(state: State) -> FreeCluster:
    """Return every known node as if it were ready and held nothing: what could ever fit."""
    nodes = [FreeNode(node, None) for node in state.nodes.values()]
    for node in nodes:
        node.closed = ""
    return FreeCluster(nodes)


def emptied(cluster: FreeCluster) -> FreeCluster:
    """Return the same nodes, open or closed as they are, as if they held nothing."""
    return FreeCluster(node.emptied() for node in cluster.nodes.values())


def _closed(node: Node) -> str:
    if node.state == "lost":
        return "node_lost"
    if node.state == "joining":
        return "node_joining"
    return "node_draining" if node.draining else ""


def _join(devices: tuple[Device, ...], kind: LinkKind) -> Groups:
    """Union of devices over links of `kind` or closer; one NUMA node counts as link kind `numa`."""
    reach = LINK_KINDS.index(kind)
    root = {d.index: d.index for d in devices}

    def find(index: int) -> int:
        while root[index] != index:
            index = root[index]
        return index

    for device in devices:
        for link in device.links:
            if LINK_KINDS.index(link.kind) <= reach and link.peer in root:
                a, b = sorted((find(device.index), find(link.peer)))
                root[b] = a
    if reach >= LINK_KINDS.index("numa"):
        first: dict[int, int] = {}
        for device in devices:
            numa = 0 if kind == "node" else device.numa_node
            a, b = sorted((find(first.setdefault(numa, device.index)), find(device.index)))
            root[b] = a
    groups: dict[int, list[int]] = {}
    for device in devices:
        groups.setdefault(find(device.index), []).append(device.index)
    return tuple(tuple(sorted(group)) for _, group in sorted(groups.items()))
