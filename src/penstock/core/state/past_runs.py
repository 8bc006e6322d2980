"""How replicas ended on each node: how many, and how many by the node's own fault.

Only the node's own word counts, as in `lifecycle/health.py`: a program may print anything. Older ends count less:
once a node has many, both counts are halved.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.node_faults import fault_of

HALVED_AT = 100
LEAST = 10
"""A node with fewer ends counts as if the others had been well: one failure alone says little."""
POINTS_MOST = 10


class NodeRuns(msgspec.Struct, frozen=True):
    """The replicas that ended on a node, and those that failed by its fault."""

    node: NodeName
    ended: int
    failed: int

    @property
    def points(self) -> int:
        """Past performance, 0 to 10: ten times the share of ends that were not the node's fault, to the nearest."""
        of = max(LEAST, self.ended)
        return (2 * POINTS_MOST * (of - self.failed) + of) // (2 * of)


class PastRuns:
    """Ends of replicas by node. One thread."""

    def __init__(self, known: Iterable[NodeRuns] = ()) -> None:
        self._known = {one.node: one for one in known}

    def add(self, node: NodeName, info: ExitInfo) -> None:
        """Count the end of a replica."""
        fault = fault_of(info)
        before = self._known.get(node, NodeRuns(node, 0, 0))
        ended, failed = before.ended + 1, before.failed + (fault is not None and fault.own)
        if ended >= HALVED_AT:
            ended, failed = ended // 2, failed // 2
        self._known[node] = NodeRuns(node, ended, failed)

    def points(self, node: NodeName) -> int:
        """Return the points of a node for past performance, 0 to 10."""
        known = self._known.get(node)
        return known.points if known is not None else POINTS_MOST

    def image(self) -> tuple[NodeRuns, ...]:
        """Return what a snapshot keeps, by node."""
        return tuple(one for _, one in sorted(self._known.items()))
