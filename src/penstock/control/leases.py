"""Leases of nodes: how long the server considers a silent node alive. Volatile by design."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from penstock.core.messages.orders import Addressed
from penstock.core.messages.reports import NodeReport
from penstock.core.model.cluster import Node
from penstock.core.model.ids import Incarnation, NodeName

CHECK_WAIT_MS = 90_000
"""A node that has not answered by then is asked again to check itself."""


class Lease(msgspec.Struct):
    """Times are of the server's monotonic clock (ms)."""

    incarnation: Incarnation
    deadline_ms: int
    heard_ms: int
    """When the node was last heard, or the lease began."""
    ttl_ms: int = 0
    """For how long after a report it lasts, as its agent was told in its last hello: a setting that is shortened holds
    for agents from their next hello on, which the old one outlives until then. 0: it has said none yet."""
    last_seq: int = 0
    """Number of the last report that counted."""


class Leases:
    """The leases of all nodes."""

    def __init__(self) -> None:
        self._of: dict[NodeName, Lease] = {}
        self._quiet_until_ms = 0
        """No lease is over before."""

    def reset(self, nodes: Mapping[NodeName, Node], deadline_ms: int, now_ms: int) -> None:
        """Keep the leases of unchanged incarnations, and give the other nodes time to say hello."""
        former, self._of = self._of, {}
        self._quiet_until_ms = 0
        for name, node in nodes.items():
            if node.state != "lost":
                known = former.get(name)
                same = known is not None and known.incarnation == node.incarnation
                self._of[name] = known if known and same else Lease(node.incarnation, deadline_ms, now_ms)

    def begin(self, name: NodeName, incarnation: Incarnation, ttl_ms: int, now_ms: int) -> None:
        """Begin a lease for an agent that has said hello, unless it has one: that lasts as it did until it reports."""
        known = self._of.get(name)
        if known is None or known.incarnation != incarnation:
            known = self._of[name] = Lease(incarnation, now_ms + ttl_ms, now_ms)
            self._quiet_until_ms = min(self._quiet_until_ms, self._ends_ms(known))
        known.ttl_ms = ttl_ms

    def prolong(self, nodes: Iterable[tuple[NodeName, Incarnation]], deadline_ms: int, now_ms: int) -> None:
        """Prolong the leases of nodes that were heard, where their incarnation has one."""
        for name, incarnation in nodes:
            lease = self._of.get(name)
            if lease is not None and lease.incarnation == incarnation:
                lease.deadline_ms, lease.heard_ms = deadline_ms, now_ms
                self._quiet_until_ms = min(self._quiet_until_ms, self._ends_ms(lease))

    def of(self, report: NodeReport) -> Lease | None:
        """Return the lease of the agent that reports, None where it has none."""
        lease = self._of.get(report.node)
        return lease if lease is not None and lease.incarnation == report.incarnation else None

    def silent_ms(self, name: NodeName, now_ms: int) -> int | None:
        """Return for how long a node was not heard, None where it has no lease."""
        lease = self._of.get(name)
        return max(0, now_ms - lease.heard_ms) if lease else None

    def expire(self, now_ms: int) -> Iterator[tuple[NodeName, Lease]]:
        """End the leases that are over, and yield their nodes."""
        if now_ms < self._quiet_until_ms:
            return
        over = [(name, lease) for name, lease in self._of.items() if self._ends_ms(lease) <= now_ms]
        for name, lease in over:
            del self._of[name]
            yield name, lease
        self._quiet_until_ms = min(map(self._ends_ms, self._of.values()), default=0)

    def _ends_ms(self, lease: Lease) -> int:
        return lease.deadline_ms

    def left_ms(self, name: NodeName, now_ms: int) -> int:
        """Return how long until a node counts as lost, 0 when it has no lease."""
        lease = self._of.get(name)
        return max(0, lease.deadline_ms - now_ms) if lease else 0


class NodeChecks:
    """Which nodes were asked to check themselves, and when (monotonic)."""

    def __init__(self) -> None:
        self._asked: dict[NodeName, int] = {}

    def due(self, wanted: list[Addressed], now_ms: int) -> list[Addressed]:
        """Return the orders for nodes that were not asked lately, and note that they are now."""
        due = [one for one in wanted if now_ms - self._asked.get(one[0], -CHECK_WAIT_MS) >= CHECK_WAIT_MS]
        self._asked.update((name, now_ms) for name, _ in due)
        return due
