"""One waiting job and the world it waits in: the input of every part of an explanation.

The world is the present one after all starts that a cycle would make now.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

from penstock.core.cycle.planner import Planner
from penstock.core.cycle.windows import has_to_stay, longest_stay_ms
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job, RequestClass
from penstock.core.model.plan import Plan, QuotaExceeded
from penstock.core.order.admission import over_reserve
from penstock.core.order.queues import QueueNode, QueueTree
from penstock.core.order.ranks import expected_ms, request_class
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.place.affinity import NearbyReplicas, is_ruled
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import Need, closed_refusal, needs_of, refusal
from penstock.core.place.gang import fits, replicas_possible
from penstock.core.place.index import ClusterIndex
from penstock.core.preempt.preemptor import GONE
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.usage import whole_total
from penstock.core.status.alerts import quota_blocks


class Scene:
    """One job and its world at one moment. Not for use by several threads at once: the planner is shared."""

    def __init__(self, snapshot: Snapshot, job: Job, now_ms: int, planner: Planner, base: Plan) -> None:
        self.snapshot, self.job, self.now_ms, self.planner, self.base = snapshot, job, now_ms, planner, base
        self.config, self.settings = snapshot.config, snapshot.config.settings
        self.key: RequestClass = request_class(job, snapshot.config)
        self.spec, self.gang, self.tenant = job.spec, self.key.ask, job.spec.tenant
        self.pool = next((p for p in snapshot.config.pools if p.name == self.gang.pool), None)
        own = ("grow", "idle", "elsewhere", "model", "rebalance")
        self.quiet = not base.starts and all(p.rule in own for p in base.preemptions)
        """Whether the cycle would change nothing: then no start of another job can interfere."""
        cluster = planner.cluster
        self._shown = [cluster.free_of(i) for i in range(len(cluster.names))]
        whole = whole_total(snapshot.free)
        self.tree = QueueTree(snapshot.config).load(snapshot.usage, whole, now_ms, snapshot.pool_powers)
        self.branch = self.tree.branches.get(job.spec.queue)
        """The queue it waits in, None when the tree does not have it."""
        self.leaf = self.account_of(job)
        self._stale, self._moved = True, False
        self._started = self._jobs_of(s.job_id for s in base.starts)
        self._charge_starts()

    def _jobs_of(self, job_ids: Iterable[JobId]) -> Mapping[JobId, Job]:
        wanted = set(job_ids)
        return {j.id: j for _, _, jobs in self.snapshot.classes for j in jobs if j.id in wanted} if wanted else {}

    def _charge_starts(self) -> None:
        for start in self.base.starts:
            account = self.account_of(self._started[start.job_id])
            if account is not None and start.job_id != self.job.id:
                self.tree.charge(account, self.tree.demand_of(start.ask, start.places, self.snapshot.nodes))

    def account_of(self, job: Job) -> QueueNode | None:
        """Return the account of a job, None when the tree does not have its queue."""
        return self.tree.account(job.spec.queue, job.spec.tenant)

    def started(self, job_id: JobId) -> Job:
        """Return a job that this cycle starts."""
        return self._started[job_id]

    def length_of(self, job_id: JobId) -> int:
        """Return how long a job that this cycle starts is expected to run (ms), 0 unknown."""
        return expected_ms(self._started[job_id])

    def held(self, job: Job) -> tuple[int, ...]:
        """Return the charge of a running job in the use of its queues."""
        assert job.attempt is not None
        places = [r.place if r.holds else GONE for r in job.attempt.replicas]
        return self.tree.demand_of(job.ask, places, self.snapshot.nodes)

    @cached_property
    def demand(self) -> tuple[int, ...]:
        return self.tree.demand(self.key)

    @property
    def starts(self) -> bool:
        """Whether the cycle would start the job now."""
        return any(s.job_id == self.job.id for s in self.base.starts)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan on an edited snapshot with the same nodes, by name, and the same configuration."""
        self._stale = True
        self._moved = self._moved or snapshot.free is not self.snapshot.free
        return self.planner.plan(snapshot, self.now_ms)

    def real(self) -> ClusterIndex:
        """Return the free capacity after this cycle's starts, reserved or not. Callers roll back their changes."""
        cluster = self.planner.cluster
        if self._stale:
            cluster.sync(self.snapshot.nodes, self.snapshot.free, None if self._moved else ())
            self._stale = self._moved = False
            for start in self.base.starts:
                if start.job_id != self.job.id:
                    cluster.take(start.ask, start.places)
            for window in self.config.reservations:
                if window.start_ms <= self.now_ms < window.end_ms:
                    for node in (cluster.index[n] for n in window.nodes if n in cluster.index):
                        cluster.change(node, cluster.free_of(node)._replace(kept_for=window.tenant))
        return cluster

    def fits(self, gang: GangAsk) -> bool:
        """Return whether the gang finds room if none is kept for others: else it cannot start."""
        return fits(gang, self.real(), self.tenant)

    def may_start(self, key: RequestClass) -> bool:
        """Return False where a cheap check shows that a class cannot start now: quota or room is short."""
        account = self.tree.account(key.queue, key.tenant)
        if account is None or quota_blocks(self.tree, account, self.tree.demand(key)):
            return False
        return any(fits(gang, self.real(), key.tenant) for gang in (key.ask, *key.alternatives))

    @property
    def quota_blocks(self) -> list[QuotaExceeded]:
        """Every maximum that the job would exceed, as far as its request tells; none when its queue is not there."""
        return quota_blocks(self.tree, self.leaf, self.demand) if self.leaf is not None else []

    def reserve_short(self, gang: GangAsk, preemptible: bool) -> int:
        """Return by how much (thousandths of devices) the gang would cut into its pool's reserve; 0 when it may."""
        pool = next((p for p in self.config.pools if p.name == gang.pool), None)
        free_milli, total_milli = self.real().free_milli.get(gang.pool, 0), self.pool_milli(gang.pool)
        return over_reserve(pool, gang.device_milli, free_milli, total_milli, preemptible=preemptible) or 0

    def pool_milli(self, pool: PoolName) -> int:
        """Return the devices of all open nodes of a pool, held or not (thousandths)."""
        return self.planner.totals(self.snapshot)[0].get(pool, UsedAmounts()).device_milli

    # Nodes.

    @cached_property
    def kept_nodes(self) -> list[tuple[int, NodeCapacity]]:
        """Nodes with room kept for others, and the capacity left there for a job that never ends."""
        own = {place.node for kept in self.base.reserved if kept.job_id == self.job.id for place in kept.places}
        own.update(place.node for place in self.base.held.get(self.job.id, ()))
        cluster = self.real()
        found = ((i, shown) for i, shown in enumerate(self._shown) if cluster.free_of(i) is not shown)
        return [(i, shown) for i, shown in found if cluster.free_of(i) != shown and cluster.names[i] not in own]

    @cached_property
    def needs(self) -> tuple[tuple[Need, int], ...]:
        stays = has_to_stay(self.key, longest_stay_ms(self.snapshot)) if self.snapshot.leaving else False
        return needs_of(self.gang, self.tenant, stays=stays)

    @cached_property
    def open_nodes(self) -> list[int]:
        """Nodes that may take the first group, by number."""
        cluster, need = self.real(), self.needs[0][0]
        known: dict[int, bool] = {}
        found = []
        nearby = NearbyReplicas(need, cluster) if is_ruled(need.each, cluster) else None
        for node, state in enumerate(cluster.state_of):
            if state not in known:
                known[state] = not closed_refusal(need, cluster.table.frees[state])
                known[state] = known[state] and not (nearby is not None and nearby.refusal(state))
            if known[state]:
                found.append(node)
        return found

    @cached_property
    def refusals(self) -> list[str]:
        """Why each node refuses a replica of the first group, '' where it takes one; by number."""
        cluster, need = self.real(), self.needs[0][0]
        known: dict[int, str] = {}
        found = []
        nearby = NearbyReplicas(need, cluster) if is_ruled(need.each, cluster) else None
        for state in cluster.state_of:
            reason = known.get(state)
            if reason is None:
                reason = refusal(need, cluster.table.frees[state]) or (nearby.refusal(state) if nearby else "")
                known[state] = reason
            found.append(reason)
        return found

    @cached_property
    def replicas_possible(self) -> int:
        """How many replicas of the first group find room."""
        return replicas_possible(self.gang, self.real(), self.tenant)

    def count_refused(self) -> dict[str, int]:
        """Return the counts of nodes by refusal, most frequent first; they add up to the number of nodes."""
        cluster, (need, *others) = self.real(), [need for need, _ in self.needs]
        kept = dict(self.kept_nodes)
        counts: dict[str, int] = {}
        for node, first in enumerate(self.refusals):
            reason = first or next((r for r in (refusal(n, cluster.free_of(node)) for n in others) if r), "")
            if not reason:
                lacks = node in kept and any(refusal(n, kept[node]) for n in (need, *others))
                reason = "kept_back" if lacks else "gang_short"
            counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
