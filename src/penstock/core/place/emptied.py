"""Nodes as if nothing ran on them: what could ever be placed, under closures and reservations."""

from collections.abc import Collection, Iterable, Mapping

from penstock.core.model.cluster import Node, Reservation
from penstock.core.model.ids import NodeName
from penstock.core.place.capacity import NodeCapacity, empty
from penstock.core.place.index import ClusterIndex


def emptied(
    nodes: Mapping[NodeName, Node],
    free: Mapping[NodeName, NodeCapacity],
    windows: Iterable[Reservation] = (),
    *,
    opened: Collection[str] = (),
) -> ClusterIndex:
    """Return the nodes, empty, each closed and shut to tenants as in `free`.

    Args:
        windows: reservations in force: their nodes are kept for their tenants.
        opened: reasons for which a node may be closed that do not count here.
    """
    found = {n: empty(f.shape, "" if f.closed in opened else f.closed, f.shut_to) for n, f in free.items()}
    for window in windows:
        found.update({n: found[n]._replace(kept_for=window.tenant) for n in window.nodes if n in found})
    cluster = ClusterIndex()
    cluster.sync(nodes, found)
    cluster.holds_nothing = True
    return cluster
