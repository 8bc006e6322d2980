"""Nodes that are closed for new work, and opened again."""

from msgspec.structs import replace

from penstock.core.model.cluster import CHECKED_BY, Node
from penstock.core.model.events import NodeDrainChanged
from penstock.core.model.ids import UserName


def drained(node: Node, event: NodeDrainChanged, time_ms: int) -> Node:
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
