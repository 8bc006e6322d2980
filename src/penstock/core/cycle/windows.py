"""Nodes that others get or take back at a known time: which jobs may be placed there before.

A reservation keeps nodes for a tenant. Other nodes go, since they were lent.

A job that may be moved is asked to save and leave before its node goes, so it may be there. One that must not be
preempted has to have ended by then. So has one whose length is known and that would fit into the time for which such a
node stays in all: it would be moved for nothing.
"""

from penstock.core.model.jobs import RequestClass
from penstock.core.place.holds import CapacityHold, Holds
from penstock.core.place.index import ClusterIndex
from penstock.core.state.snapshot import Snapshot


def longest_stay_ms(snapshot: Snapshot) -> int:
    """Return for how long the nodes that go stay in all, at the longest; 0 where all nodes stay."""
    return max((max(1, snapshot.nodes[name].stays_ms) for name in snapshot.leaving), default=0)


def has_to_stay(key: RequestClass, stays_ms: int) -> bool:
    """Return whether jobs of the class have to have ended before their node goes.

    Args:
        stays_ms: as `longest_stay_ms`.
    """
    return stays_ms > 0 and (not key.preemptible or 0 < key.length_ms <= stays_ms)


def keep_windows(snapshot: Snapshot, now_ms: int, cluster: ClusterIndex, holds: Holds) -> None:
    """Keep the nodes of reservations: in the window for its tenant alone, before it from jobs that run into it."""
    for kept in snapshot.config.reservations:
        if kept.end_ms <= now_ms:
            continue
        for name in kept.nodes:
            node = cluster.index.get(name)
            if node is None:
                continue
            theirs = cluster.free_of(node)._replace(kept_for=kept.tenant)
            if kept.start_ms <= now_ms:
                cluster.change(node, theirs)
            else:
                holds.claim(node, CapacityHold(kept.start_ms, theirs, None))
    if snapshot.leaving:
        _keep_until_they_go(snapshot, cluster, holds)


def _keep_until_they_go(snapshot: Snapshot, cluster: ClusterIndex, holds: Holds) -> None:
    """Claim the nodes that go, each from then on, where a waiting job has to have ended by then."""
    stays_ms = longest_stay_ms(snapshot)
    if not any(has_to_stay(key, stays_ms) for _, key, _ in snapshot.waiting):
        return
    for name in snapshot.leaving:
        node, leaves_ms = cluster.index.get(name), snapshot.nodes[name].leaves_ms
        if node is None:
            continue
        holds.claim(node, CapacityHold(leaves_ms, cluster.free_of(node)._replace(leaving=True), None))
