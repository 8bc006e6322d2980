"""Room that a cycle keeps for demand which is expected: which waiting jobs it holds back, and which may use it.

A job is held back where the devices that would be left are too few for the jobs of higher priority that are expected.
Never held back: jobs of that priority or above, critical ones, jobs that claim their queue's guarantee, that starve or
for which others leave, and jobs that will have ended when the room is needed. Elastic jobs may grow into the room: they
give it back first.
"""

from collections.abc import Iterable, Mapping, Sequence

from penstock.core.model.cluster import Settings
from penstock.core.model.expected import ExpectedDemand, Kept
from penstock.core.model.ids import PoolName
from penstock.core.model.jobs import RequestClass
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.order.walk import PendingJobs
from penstock.core.place.index import ClusterIndex
from penstock.core.state.demand import ahead_ms


class KeptRoom:
    """The room of one cycle."""

    def __init__(
        self,
        expected: Sequence[ExpectedDemand],
        waiting: Iterable[PendingJobs],
        settings: Settings,
        now_ms: int,
        cluster: ClusterIndex,
        totals: Mapping[PoolName, UsedAmounts],
    ) -> None:
        self._cluster, self._now_ms, self._settings = cluster, now_ms, settings
        self._by_pool: dict[PoolName, list[Kept]] = {}
        lowest: dict[PoolName, int] = {}
        for _, key, _ in waiting if expected else ():
            lowest[key.ask.pool] = min(key.priority, lowest.get(key.ask.pool, key.priority))
        for one in expected:
            if lowest.get(one.pool, one.priority) >= one.priority:
                continue  # nobody waits whom it could hold back
            if one.from_ms - ahead_ms(self._settings) <= now_ms < one.until_ms:
                most = totals.get(one.pool, UsedAmounts()).device_milli * self._settings.predictive_share_milli // 1000
                devices = _of_use(min(one.left, most // 1000), one)
                if devices:
                    self._by_pool.setdefault(one.pool, []).append(Kept(one, devices))
        self._room: dict[tuple[PoolName, int, int], tuple[int, int]] = {}
        """By pool, devices of a replica and devices wanted: the version of the cluster, and how many are of use."""

    def __bool__(self) -> bool:
        return bool(self._by_pool)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """What is kept, by pool and priority."""
        return tuple(kept for pool in sorted(self._by_pool) for kept in self._by_pool[pool])

    def told(self, strategy: str) -> str:
        """Return the words about the strategy of the cycle, with what is kept."""
        return "; ".join([strategy, *(one.text for one in self.kept)])

    @property
    def ends_ms(self) -> int:
        """When the first of it ends (unix ms); 0 where nothing is kept."""
        return min((one.until_ms for one, _ in self.kept), default=0)

    def concerns(self, key: RequestClass) -> bool:
        """Return whether jobs of the class may be held back."""
        if not self._by_pool or not key.ask.device_milli or key.priority >= self._settings.critical_priority:
            return False
        return any(one.priority > key.priority for one, _ in self._by_pool.get(key.ask.pool, ()))

    def before(self, key: RequestClass, end_ms: int) -> list[tuple[ExpectedDemand, int, int]]:
        """Return what binds a job of the class that ends by `end_ms`: each with its devices, and those of use now."""
        if not self.concerns(key):
            return []
        pool = key.ask.pool
        return [
            (one, devices, self._useful(pool, min(one.each, devices), devices))
            for one, devices in self._by_pool[pool]
            if one.priority > key.priority and end_ms > max(one.from_ms, self._now_ms)
        ]

    def cut(self, bound: list[tuple[ExpectedDemand, int, int]]) -> ExpectedDemand | None:
        """Return the demand whose room a placement cuts into, given what `before` returned before it; None: none."""
        for one, devices, had in bound:
            left = self._useful(one.pool, min(one.each, devices), devices)
            if left < devices and left < had:
                return one
        return None

    def _useful(self, pool: PoolName, each: int, devices: int) -> int:
        """Return how many of so many devices are free where they are of use: `each` of them, or a part, on one node.

        Nodes that have most of a replica's devices free count first: they are the ones to be cleared.
        """
        known = self._room.get((pool, each, devices))
        if known is not None and known[0] == self._cluster.version:
            return known[1]
        found = self._count(pool, each, devices) if each > 1 else self._free(pool, devices)
        self._room[pool, each, devices] = (self._cluster.version, found)
        return found

    def _free(self, pool: PoolName, devices: int) -> int:
        return min(devices, max(0, self._cluster.free_milli.get(pool, 0)) // 1000)

    def _count(self, pool: PoolName, each: int, devices: int) -> int:
        table, parts = self._cluster.table, [0] * (each + 1)
        for state in self._cluster.states_in_use(rich=True):
            if table.pools[state] == pool:
                replicas, rest = divmod(len(table.frees[state].whole), each)
                parts[each] += replicas * self._cluster.count(state)
                parts[rest] += self._cluster.count(state)
        wanted, found = devices // each, 0
        for size in range(each, 0, -1):
            taken = min(wanted, parts[size])
            wanted, found = wanted - taken, found + taken * size
        return found


def _of_use(devices: int, demand: ExpectedDemand) -> int:
    """Return the room for whole replicas of a demand; what is left of one of which a part has come counts as one."""
    return devices // demand.each * demand.each or (devices if devices == demand.left else 0)
