"""Free capacity of nodes as replicas of one job come and go: alike nodes share one value."""

from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.resources import ReplicaAsk
from penstock.core.place.capacity import NodeCapacity


class SharedCapacity:
    """What is left after replicas of one job: nodes that share one value share the next one, too."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[NodeCapacity, NodeCapacity]] = {}
        """By the identity of a capacity and of an ask: both live as long as this does."""

    def without(self, free: NodeCapacity, each: ReplicaAsk, place: ReplicaPlace, times: int) -> NodeCapacity:
        """Return the capacity left after a replica took its place (`times` -1: put it back)."""
        if each.devices is not None or each.selected or each.affinity:
            change = free.take if times > 0 else free.put_back
            return change(each, place.devices, place.slots)
        known = self._known.get((id(free), id(each)))
        if known is None:
            known = self._known[id(free), id(each)] = (free, free.without_host(each.host, times))
        return known[1]
