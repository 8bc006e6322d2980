"""Nodes as the events of the log change them."""

from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.cluster import AGENT, CHECKED_BY, SHUT_TO_MAX, STRIKES_KEPT, HostLoad, Node, OthersLoad, Strike
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.ids import NodeName, UserName
from penstock.core.state import devices, tables
from penstock.core.state.copy_on_write import ByNode
from penstock.core.state.indexes import Indexes


def registered(node: Node | None, event: ev.NodeRegistered, time_ms: int) -> Node:
    """Return a node after it registered. Raises: BrokenInvariant when its state does not allow it."""
    tables.node_step(node.state if node else None, "registered")
    fresh = node or Node(event.spec, event.incarnation)
    fresh = replace(fresh, spec=event.spec, incarnation=event.incarnation, state="joining", lost_ms=0)
    fresh = replace(fresh, others=OthersLoad(), load=HostLoad(performance=fresh.load.performance))  # its reports say
    fresh = replace(fresh, instances=None)
    fresh = replace(fresh, registered_ms=time_ms, devices_closed=(), devices_opened=())
    return fresh if node is None else devices.carried_over(fresh, node)


NodeChange = (
    ev.NodeReady | ev.NodeDrainChanged | ev.NodeStruck | ev.NodeShut | ev.NodeChecked | ev.OthersLoadChanged
    | ev.NodeLeaveNoted | ev.HostLoadNoted | ev.DeviceClosed | ev.DeviceCleared | ev.DeviceOpened | ev.InstancesChanged
)  # fmt: skip


def changed(node: Node, event: NodeChange, time_ms: int) -> Node:
    """Return the node after an event that does not touch its replicas. Raises: BrokenInvariant."""
    match event:
        case ev.NodeReady():
            return replace(node, state=tables.node_step(node.state, "ready"))
        case ev.NodeDrainChanged():
            return _drained(node, event, time_ms)
        case ev.NodeStruck():
            own = event.own or event.job_id is None
            strike = Strike(time_ms, event.job_id, own, event.tenant, event.user)
            return replace(node, strikes=_kept((*node.strikes, strike)))
        case ev.NodeShut():
            return replace(node, shut_to=tuple(sorted({*node.shut_to, event.tenant}))[:SHUT_TO_MAX])
        case ev.NodeChecked():
            return _checked(node, event, time_ms)
        case ev.OthersLoadChanged():
            return replace(node, others=event.load)
        case ev.NodeLeaveNoted():
            return replace(node, leaves_ms=event.leaves_ms, stays_ms=event.stays_ms)
        case ev.HostLoadNoted():
            return replace(node, load=event.load)
        case ev.InstancesChanged():
            return replace(node, instances=event.instances)
        case ev.DeviceClosed():
            return devices.closed(node, event, time_ms)
        case ev.DeviceCleared():
            return devices.cleared(node, event, time_ms)
        case ev.DeviceOpened():
            return devices.opened(node, event, time_ms)


def removed(nodes: dict[NodeName, Node], indexes: Indexes, event: ev.NodeRemoved) -> None:
    """Forget a lost node. Raises: BrokenInvariant when it is not lost, or holds something."""
    name, load = event.node, indexes.loads.get(event.node)
    if nodes[name].state != "lost" or (load is not None and load.replicas):
        raise BrokenInvariant(f"node {name} is removed: it is {nodes[name].state}, and holds {load}")
    del nodes[name]
    indexes.loads.pop(name, None)
    indexes.nodes = {known: node for known, node in indexes.nodes.items() if known != name}
    indexes.free = ByNode((known, indexes.free[known]) for known in indexes.nodes)
    for names in (indexes.evicted_later, indexes.leaving, indexes.with_closed):
        names.discard(name)
    indexes.emptied = None
    indexes.never_fits.clear()
    indexes.apart.clear()
    indexes.changes = []  # each follower of the former list looks at every node


def _kept(strikes: tuple[Strike, ...]) -> tuple[Strike, ...]:
    """Return the latest strikes; claims are dropped first, so that no claim displaces the node's own words."""
    if len(strikes) <= STRIKES_KEPT:
        return strikes
    oldest = next((i for i, strike in enumerate(strikes) if not strike.own), 0)
    return (*strikes[:oldest], *strikes[oldest + 1 :])


def _checked(node: Node, event: ev.NodeChecked, time_ms: int) -> Node:
    """Return the node after a check that claims led to; a node that passes is cleared of them."""
    theirs = tuple(sorted({*node.shut_to, *(strike.tenant for strike in node.strikes if not strike.own)}))
    node = replace(node, checked_ms=time_ms, checked_for=theirs)
    if not event.passed:
        return node
    return replace(node, strikes=tuple(strike for strike in node.strikes if strike.own), shut_to=())


def _drained(node: Node, event: ev.NodeDrainChanged, time_ms: int) -> Node:
    """Return the node closed or opened; opening clears its strikes, and by a person also the count of closures. A node
    that its agent had closed keeps its strikes."""
    if not event.draining:
        opened = replace(node, draining=False, drain_reason=event.reason, closed_by=UserName(""), evict_at_ms=0)
        if event.by == AGENT:  # says nothing of its failures
            return opened
        opened = replace(opened, strikes=(), shut_to=())
        return replace(opened, checks_failed=0, closures=node.closures if event.by == CHECKED_BY else 0)
    again = node.draining and node.closed_by == event.by == CHECKED_BY
    return replace(
        node,
        draining=True,
        drain_reason=event.reason,
        closed_by=event.by,
        closed_ms=time_ms,
        closures=node.closures + (event.by == CHECKED_BY and not again),
        checks_failed=node.checks_failed + again,
        evict_at_ms=event.evict_at_ms,
    )
