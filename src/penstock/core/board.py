"""The tentative world of one cycle: free capacity, use and what was decided so far. It places; it does not choose."""

from collections.abc import Callable

from penstock.core.ahead import Ahead
from penstock.core.extension import Policies
from penstock.core.faults import planted
from penstock.core.model.ids import AttemptNumber, ClassId, JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace, RequestClass
from penstock.core.order.shares import Charge
from penstock.core.order.tree import QueueTree, QuotaBlock
from penstock.core.order.walk import JobOrder
from penstock.core.place.gang import Prepared
from penstock.core.place.index import FreeCluster
from penstock.core.place.shadow import FOREVER_MS, Shadows
from penstock.core.plan import Start
from penstock.core.snapshot import Snapshot

Placed = tuple[int, GangAsk, tuple[ReplicaPlace, ...]]
"""Which of a class's shapes was placed (0 its ask, k an alternative), the shape, and where."""
Shapes = Callable[[ClassId, RequestClass], list[Prepared]]


class Board:
    """Free capacity shrinks and use grows here as decisions are made."""

    def __init__(
        self,
        snapshot: Snapshot,
        now_ms: int,
        cluster: FreeCluster,
        tree: QueueTree,
        shapes: Shapes,
        totals: dict[PoolName, Charge],
        policies: Policies,
    ) -> None:
        self.snapshot, self.now_ms, self.cluster, self.tree, self.totals = snapshot, now_ms, cluster, tree, totals
        self.settings = snapshot.config.settings
        self.pools = {pool.name: pool for pool in snapshot.config.pools}
        self._placement = {pool.name: pool.placement for pool in snapshot.config.pools}
        self.shapes = shapes
        """Returns the shapes that jobs of a class accept, in order, ready to be placed."""
        self.order = JobOrder(snapshot.config, tree, snapshot.classes, now_ms, policies)
        self.shadows = Shadows(cluster)
        self.ahead = Ahead(cluster, self.shadows, snapshot, now_ms)
        self.starts: list[Start] = []
        self.handled: set[JobId] = set()
        """Jobs that were decided about outside the walk, or by it."""
        self.over: QuotaBlock | None = None
        self.elastic: dict[JobId, Job] = {}
        """Elastic jobs among those that start."""

    @property
    def full(self) -> bool:
        """Whether the cycle has started as many jobs as one cycle may."""
        return len(self.starts) >= self.settings.starts_per_cycle_max

    def end_ms(self, key: RequestClass) -> int:
        """Return by when a job of the class that starts now has ended."""
        return self.now_ms + key.length_ms if key.length_ms else FOREVER_MS

    def may_start(self, job: Job, key: RequestClass) -> bool:
        """Return whether no maximum keeps the job from starting."""
        branch = self.tree.branches.get(job.spec.queue)
        return branch is not None and self.tree.block(branch, self.tree.demand(key)) is None

    def place(self, class_id: ClassId, key: RequestClass) -> Placed | None:
        """Take places for a job of the class: its ask, or the first alternative that fits and exceeds no maximum.

        `over` says afterwards which maximum kept it from places that were free for it.
        """
        self.over = None
        for choice, prepared in enumerate(self.shapes(class_id, key)):
            mark = self.cluster.mark()
            places = prepared.put()
            if places is None:
                continue
            ask = prepared.gang.sized(prepared.gang.replicas)
            block = None
            if self.counts_places(choice):
                leaf = self.tree.part(self.tree.branches[key.queue], key.tenant)
                block = self.tree.block(leaf, self.tree.demand_of(ask, places, self.snapshot.nodes))
            if block is None:
                return choice, ask, places
            self.cluster.rollback(mark)
            self.over = self.over or block
        return None

    def place_alike(self, class_id: ClassId, key: RequestClass, times: int) -> list[Placed] | None:
        """Take places for so many jobs of a class that count for what they ask; take no more when one does not fit."""
        prepared = self.shapes(class_id, key)[0]
        ask = prepared.gang.sized(prepared.gang.replicas)
        found = prepared.put_alike(times)
        return [(0, ask, places) for places in found] if len(found) == times else None

    def counts_places(self, choice: int) -> bool:
        """Return whether what a job counts for is known only once it has places: models, or another shape."""
        return choice > 0 or self.tree.counts_models

    def begin(self, job: Job, found: Placed, end_ms: int) -> None:
        """Start a job outside the walk: count it, and note what it takes of what is kept."""
        choice, ask, places = found
        part = self.tree.part(self.tree.branches[job.spec.queue], job.spec.tenant)
        self.tree.charge(part, self.tree.demand_of(ask, places, self.snapshot.nodes))
        self.shadows.taken(ask, places, end_ms)
        self.ahead.started(job, ask, places, end_ms)
        self.note_start(job, ask, places, choice)

    def note_start(self, job: Job, ask: GangAsk, places: tuple[ReplicaPlace, ...], choice: int) -> None:
        if planted("gang_checked_one_by_one"):
            self.cluster.put_back(ask, enumerate(places))
        waited_ms = max(0, self.now_ms - job.waiting_since_ms)
        number = AttemptNumber(job.last_attempt + 1)
        rule = ask.placement or self._placement.get(ask.pool, "")
        self.starts.append(Start(job.id, number, ask, places, waited_ms, choice, rule))
        self.handled.add(job.id)
        if job.spec.ask.elastic:
            self.elastic[job.id] = job
