"""What nodes have of devices, counted anew when something changes that it depends on. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.amounts import Sums
from penstock.engines.kubernetes.devices.claimed import Claimed
from penstock.engines.kubernetes.devices.extended import Extended
from penstock.engines.kubernetes.devices.planned import Planned
from penstock.engines.kubernetes.devices.pools import DeviceId
from penstock.engines.kubernetes.devices.tidying import Starting
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod

NODES_A_TURN, WORK_A_TURN = 100, 500
"""Nodes of which the devices are counted in one turn of the loop, and the work of that: some 20 ms."""
NAMES_MAX = 200
"""Names of one node that the core is told of."""


class Counting:
    """Counts nodes.

    Args:
        nodes: the copy of the nodes, by namespace (empty) and name.
        standing: gives the pods that are counted on a node.
    """

    def __init__(
        self,
        claimed: Claimed,
        planned: Planned,
        extended: Extended,
        starting: Starting,
        nodes: Mapping[tuple[str, str], Node],
        standing: Callable[[NodeName], Iterable[Pod]],
    ) -> None:
        self._claimed, self._planned, self._extended, self._starting = claimed, planned, extended, starting
        self._nodes, self._standing = nodes, standing
        self._free: dict[NodeName, Sums] = {}
        """What was free on each node when it was counted last."""
        self._uncounted: dict[NodeName, None] = {}
        """Nodes that have to be counted anew."""
        self._doubted: set[NodeName] = set()
        """Nodes that turned out to have less than was counted."""
        self._under_way: tuple[NodeName, Iterator[None]] | None = None
        self._found: Sums = {}
        """The node that is being counted, and what was found so far."""
        self._ahead = 0
        """Work that was done beyond that of a turn."""
        self._told_labels: dict[NodeName, Mapping[str, str]] = {}

    def offered(self, node: Node) -> Sums:
        """Return what a node had when it was counted last; one that is new or described anew is counted soon."""
        name, labels = NodeName(node.metadata.name), node.metadata.labels
        if self._told_labels.get(name) != labels:
            self._told_labels[name], self._uncounted[name] = labels, None
        return self._free.get(name, {})

    def node(self, name: NodeName) -> None:
        """Count a node anew, soon."""
        self._uncounted[name] = None

    def doubt(self, name: NodeName) -> None:
        """Note that a node has less than was counted: what it has next is something else, though it were as much."""
        self._doubted.add(name)

    def all(self) -> None:
        self._uncounted.update(dict.fromkeys(NodeName(name) for _, name in self._nodes))

    def reaching(self, devices: Iterable[DeviceId]) -> None:
        """Count the nodes anew that reach these devices."""
        for device in sorted(devices):
            placed = self._claimed.inventory.device(device)
            pool = placed.pool if placed is not None else None
            if placed is None or not placed.local or (pool is not None and pool.counters and not pool.of_one_node):
                self.all()
                return
            self._uncounted[NodeName(placed.node)] = None

    @property
    def due(self) -> bool:
        return bool(self._uncounted or self._under_way is not None)

    def turn(self) -> tuple[NodeName, ...]:
        """Count as far as a turn of the loop has time for. Returns: the nodes that have something else by now.

        What one turn did too much is taken off the next ones, so that counting takes no more than half of the loop.
        """
        allowed = WORK_A_TURN - self._ahead
        if allowed <= 0:
            self._ahead -= WORK_A_TURN
            return ()
        changed, begun = [], self._planned.work
        for _ in range(NODES_A_TURN):
            name = self._count_until(begun + allowed)
            if name is None:
                break
            if self._has_changed(name):
                changed.append(name)
        self._ahead = max(0, self._planned.work - begun - allowed)
        return tuple(changed)

    def _count_until(self, work: int) -> NodeName | None:
        """Go on counting a node, or begin with the next one. Returns: the node, once its devices are counted."""
        if self._under_way is None:
            if not self._uncounted or self._planned.work >= work:
                return None
            name = next(iter(self._uncounted))
            del self._uncounted[name]
            self._found = {}
            self._under_way = name, self._planned.counting(name, self._found)
        name, pieces = self._under_way
        for _ in pieces:
            if self._planned.work >= work:
                return None
        self._under_way = None
        return name

    def _has_changed(self, name: NodeName) -> bool:
        free = self._counted(name, self._found)
        known, self._free[name] = self._free.get(name, {}), free
        doubted = name in self._doubted
        self._doubted.discard(name)
        return free != known or doubted

    def _counted(self, name: NodeName, found: Sums) -> Sums:
        node = self._nodes.get(("", name))
        extended = self._extended.free(node) if node is not None else {}
        found |= extended
        counted = list(self._standing(name))
        there = {pod.key for pod in counted}
        counted += [pod for pod, node in self._starting.all() if node == name and pod.key not in there]
        for pod in counted:
            for resource, number in self._extended.asked(pod).items() if extended else ():
                if resource in extended:
                    found[resource] = found[resource] + number
            signature = self._claimed.signature(pod) if pod.spec.resource_claims else None
            if signature is not None and signature.name in self._planned.signatures:
                found[signature.name] = found.get(signature.name, 0) + signature.number
        return dict(sorted(found.items())[:NAMES_MAX])
