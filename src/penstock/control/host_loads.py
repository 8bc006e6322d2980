"""How the hosts of nodes are really used, and when it is noted in the log for placement by `host_load`.

Volatile, like measured use (`uses.py`): means over a minute. A note follows where they differ from the last one by more
than rounding to its steps explains, so that steady nodes write nothing, and nodes that are used alike share a state.
"""

import msgspec

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import HostFigures, NodeReport
from penstock.core.model.cluster import ClusterConfig, HostLoad, Node
from penstock.core.model.events import HostLoadNoted
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.state.state import State

NOTE_EVERY_MS = 60_000
STEP_MILLI = 100
STAYS_MILLI = 75
"""A mean this near to what is noted changes nothing: half a step is rounding, the rest keeps it from alternating."""
_AMOUNTS = ("cpu_milli", "memory_milli", "bandwidth_milli")


class _Window(msgspec.Struct):
    """Sums of what was measured of one node beyond what was given out, since a time (monotonic ms)."""

    since_ms: int
    sums: list[int]
    counts: list[int]

    def add(self, beyond: tuple[int | None, ...]) -> None:
        for at, amount in enumerate(beyond):
            if amount is not None:
                self.sums[at] += amount
                self.counts[at] += 1


class HostLoads:
    """What is measured of each node, until it is noted."""

    def __init__(self) -> None:
        self._windows: dict[NodeName, _Window] = {}

    def note(self, tx: Transaction, report: NodeReport, now_ms: int) -> None:
        """Take in what a node measures of its host; emit what has changed, at most once a minute.

        Args:
            now_ms: monotonic ms.
        """
        host, node = report.figures.host if report.figures is not None else None, tx.state.nodes.get(report.node)
        if host is None or node is None:
            return
        if not by_host_load(tx.state.config, node.spec.pool):
            self._windows.pop(report.node, None)
            if node.load != HostLoad():
                tx.emit(HostLoadNoted(report.node, HostLoad()))
            return
        window = self._windows.setdefault(report.node, _Window(now_ms, [0, 0, 0], [0, 0, 0]))
        window.add(_beyond(tx.state, node, host))
        if now_ms - window.since_ms < NOTE_EVERY_MS:
            return
        del self._windows[report.node]
        amounts = {
            name: _stepped(total // count, getattr(node.load, name)) if count else 0
            for name, total, count in zip(_AMOUNTS, window.sums, window.counts, strict=True)
        }
        load = HostLoad(**amounts, performance=tx.state.indexes.past_runs.points(report.node))
        if load != node.load:
            tx.emit(HostLoadNoted(report.node, load))


def by_host_load(config: ClusterConfig, pool: PoolName) -> bool:
    """Return whether jobs of a pool are placed by how hosts are used."""
    found = config.pool_by_name.get(pool)
    return found is not None and found.placement == "host_load"


def _beyond(state: State, node: Node, host: HostFigures) -> tuple[int | None, ...]:
    """Return what is used beyond what is given out, of CPUs, memory and bandwidth; None where it is not measured."""
    has, free = node.spec.capacity, state.indexes.free[node.spec.name]
    network = host.network_bps
    if network is not None:
        network = min(1000, 1000 * network // has.bandwidth_bps) if has.bandwidth_bps else None
    used = (host.cpu_milli, host.memory_milli, network)
    amounts = (
        (has.cpu_milli, free.cpu_milli),
        (has.memory_bytes, free.memory_bytes),
        (has.bandwidth_bps, free.bandwidth_bps),
    )
    given = [1000 * (all_of_it - left) // all_of_it if all_of_it else 0 for all_of_it, left in amounts]
    return tuple(None if one is None else one - out for one, out in zip(used, given, strict=True))


def _stepped(mean: int, known: int) -> int:
    """Return what is to be noted for a mean, where `known` is noted."""
    if abs(mean - known) <= STAYS_MILLI:
        return known
    return max(-1000, min(1000, (mean + STEP_MILLI // 2) // STEP_MILLI * STEP_MILLI))
