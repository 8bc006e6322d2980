"""Nodes as the events of the log change them."""

from msgspec.structs import replace

from penstock.core.lifecycle import tables
from penstock.core.model import events as ev
from penstock.core.model.cluster import CHECKED_BY, STRIKES_KEPT, Node, Strike
from penstock.core.model.ids import UserName


def registered(node: Node | None, event: ev.NodeRegistered, time_ms: int) -> Node:
    """Return a node that has come, or come again. Raises: BrokenInvariant when it may not now."""
    tables.node_step(node.state if node else None, "registered")
    fresh = node or Node(event.spec, event.incarnation)
    fresh = replace(fresh, spec=event.spec, incarnation=event.incarnation, state="joining", lost_ms=0)
    return replace(fresh, registered_ms=time_ms)


def changed(node: Node, event: ev.NodeReady | ev.NodeDrainChanged | ev.NodeStruck, time_ms: int) -> Node:
    """Return the node after an event that leaves what runs there alone. Raises: BrokenInvariant."""
    match event:
        case ev.NodeReady():
            return replace(node, state=tables.node_step(node.state, "ready"))
        case ev.NodeDrainChanged():
            return _drained(node, event, time_ms)
        case ev.NodeStruck():
            return replace(node, strikes=(*node.strikes, Strike(time_ms, event.job_id))[-STRIKES_KEPT:])


def _drained(node: Node, event: ev.NodeDrainChanged, time_ms: int) -> Node:
    """Return the node closed or opened; what spoke against it is forgotten with that, by a person for good."""
    if not event.draining:
        opened = replace(node, draining=False, drain_reason=event.reason, closed_by=UserName(""), strikes=())
        return replace(opened, evict_at_ms=0, checks_failed=0, closures=node.closures if event.by == CHECKED_BY else 0)
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
