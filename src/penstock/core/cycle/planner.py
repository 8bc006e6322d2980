"""Plans one cycle after the other: keeps indexes in between, and hands each cycle its workspace.

The decisions depend on the snapshot and the time alone.
"""

from collections.abc import Sequence
from functools import partial

from penstock.core.cycle.bulk import SingleJobPlanner
from penstock.core.cycle.cycle import Cycle
from penstock.core.cycle.reservations import Openings
from penstock.core.cycle.strategy import StrategySettings, strategy_of, strategy_settings
from penstock.core.cycle.windows import has_to_stay, longest_stay_ms
from penstock.core.cycle.workspace import Speeds, Workspace
from penstock.core.model.cluster import ClusterConfig, Pool, Reservation
from penstock.core.model.ids import NodeName, PoolName, TenantName
from penstock.core.model.jobs import GangAsk, RequestClass
from penstock.core.model.plan import Plan
from penstock.core.order.extension import Policies
from penstock.core.order.queues import QueueTree
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.place.emptied import emptied
from penstock.core.place.gang import GangPlacer, fits
from penstock.core.place.holds import Holds
from penstock.core.place.index import ClusterIndex, PlacementStrategy
from penstock.core.place.workload_mix import Typical
from penstock.core.preempt.context import CycleContext
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.usage import pool_totals, whole_total

CLASSES_KEPT = 10_000
"""Classes whose shapes are kept ready from one cycle to the next."""


class Planner:
    """Plans cycles on successive snapshots of one state. Its indexes are a cache: a fresh planner decides the same."""

    def __init__(self, policies: Policies | None = None) -> None:
        self._policies: Policies = policies or {}
        self._config: ClusterConfig | None = None
        self._typical: Typical | None = None
        self.cluster = ClusterIndex()
        self.tree = QueueTree(ClusterConfig())
        self._thresholds = StrategySettings()
        self._single = SingleJobPlanner(ClusterConfig(), ())
        self._changes: tuple[Sequence[NodeName], int] = ((), 0)
        self._totals: tuple[object, dict[PoolName, UsedAmounts], UsedAmounts] = (None, {}, UsedAmounts())
        self._emptied: tuple[object, object, tuple[Reservation, ...], ClusterIndex] = (None, None, (), ClusterIndex())
        """The nodes as if nothing ran, and of which nodes, parts of devices and reservations."""
        self._placers: dict[tuple[GangAsk, TenantName, bool], GangPlacer] = {}
        """Shapes ready to be placed: classes that differ in length or queue alone have the same."""
        self._openings = Openings()
        self._latest: dict[int, tuple[RequestClass, list[GangPlacer]]] = {}
        """Shapes of classes by their identity, of the present generation of the index."""
        self._generation = -1
        self._stays_ms = 0
        self._speeds = Speeds()

    def plan(self, snapshot: Snapshot, now_ms: int) -> Plan:
        """Return the decisions of one cycle."""
        if snapshot.config is not self._config:
            self._config = snapshot.config
            self.tree = QueueTree(snapshot.config)
            self._thresholds = strategy_settings(snapshot.config.settings)
            self._single = SingleJobPlanner(snapshot.config, self.tree.branches.keys())
            self._typical = None
        if snapshot.typical is not self._typical:
            self._typical = snapshot.typical
            strategies = {p.name: _strategy(p) for p in snapshot.config.pools}
            self.cluster = ClusterIndex(strategies, snapshot.typical)
            self._changes = ((), 0)
            self._placers.clear()
            self._generation = -1
        self.cluster.sync(snapshot.nodes, snapshot.free, self._changed(snapshot))
        stays_ms = longest_stay_ms(snapshot)
        if (self.cluster.generation, stays_ms) != (self._generation, self._stays_ms) or len(
            self._latest
        ) > CLASSES_KEPT:
            self._generation, self._stays_ms = self.cluster.generation, stays_ms
            self._latest.clear()
        totals, whole = self.totals(snapshot)
        strategy = strategy_of(snapshot, totals, self.cluster.free_milli, self._thresholds)
        keeps = strategy.keeps_room and bool(snapshot.expected)
        found = None if keeps else self._single.plan(snapshot, now_ms, self._shapes, strategy)
        if found is not None:
            return found
        tree = self.tree.load(snapshot.usage, whole, now_ms, snapshot.pool_powers)
        context = CycleContext(snapshot, now_ms, self.cluster, tree, Holds(self.cluster))
        could_start = partial(self._could_start, snapshot, now_ms)
        parts = (context, self._shapes, totals, self._policies, self._openings, could_start, self._speeds)
        workspace = Workspace(*parts, keeps_room=keeps)
        return Cycle(workspace, strategy).run()

    def _changed(self, snapshot: Snapshot) -> Sequence[NodeName] | None:
        """Return the nodes that changed since the last snapshot, or None when that is not known."""
        changes, seen = self._changes
        self._changes = (snapshot.changes, snapshot.changes_count)
        return snapshot.changes[seen : snapshot.changes_count] if changes is snapshot.changes else None

    def totals(self, snapshot: Snapshot) -> tuple[dict[PoolName, UsedAmounts], UsedAmounts]:
        """Return the capacity of the open nodes, by pool and in all; counted anew only when a node changed."""
        if self._totals[0] is not snapshot.nodes:
            self._totals = (snapshot.nodes, pool_totals(snapshot.free), whole_total(snapshot.free))
        return self._totals[1], self._totals[2]

    def _could_start(self, snapshot: Snapshot, now_ms: int, key: RequestClass) -> bool:
        """Return whether a job of the class fits where nothing runs, on nodes that take work, or will in a moment."""
        windows = tuple(w for w in snapshot.config.reservations if w.start_ms <= now_ms < w.end_ms)
        nodes, parts, kept, cluster = self._emptied
        if nodes is not snapshot.nodes or parts != snapshot.config.sharing or kept != windows:
            cluster = emptied(snapshot.nodes, snapshot.free, windows, opened=("node_joining",))
            self._emptied = (snapshot.nodes, snapshot.config.sharing, windows, cluster)
        return any(fits(ask, cluster, key.tenant) for ask in (key.ask, *key.alternatives))

    def _shapes(self, key: RequestClass) -> list[GangPlacer]:
        """Return the shapes that jobs of the class accept, in order, ready to be placed."""
        known = self._latest.get(id(key))
        if known is None or known[0] is not key:
            stays = has_to_stay(key, self._stays_ms)
            shapes = [self._shape(ask, key.tenant, stays=stays) for ask in (key.ask, *key.alternatives)]
            known = self._latest[id(key)] = (key, shapes)
        return known[1]

    def _shape(self, ask: GangAsk, tenant: TenantName, *, stays: bool) -> GangPlacer:
        known = self._placers.get((ask, tenant, stays))
        if known is None or known.generation != self.cluster.generation:
            known = self._placers[ask, tenant, stays] = GangPlacer(ask, self.cluster, tenant, stays=stays)
        return known


def plan(snapshot: Snapshot, now_ms: int, policies: Policies | None = None) -> Plan:
    """Return the decisions of one cycle, planned afresh.

    Beneficiaries of victims that already leave come first, so that no other job takes their room; then starving
    jobs; then every job in the order of the queue tree. A class whose head does not fit is not tried again in
    this cycle. The result depends only on the arguments.
    """
    return Planner(policies).plan(snapshot, now_ms)


def _strategy(pool: Pool) -> PlacementStrategy:
    return PlacementStrategy(pool.placement, pool.speeds)
