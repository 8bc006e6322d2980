"""Checks a plan again at commit: `verify` returns the decisions that still hold on a newer state.

The decisions are made in `cycle.py`.
"""

from collections.abc import Callable, Sequence

import msgspec

from penstock.core.model.batching import REBALANCE
from penstock.core.model.ids import JobId, NodeName, PoolName, TenantName
from penstock.core.model.jobs import Job, ReplicaPlace
from penstock.core.model.plan import MAY_GO_ON, BatchChange, Plan, Preemption, Resume, Start
from penstock.core.order.queues import QueueTree
from penstock.core.place.affinity import has_wide_rules
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import place_free
from penstock.core.state.state import State


def verify(proposed: Plan, state: State) -> Plan:
    """Return the part of `proposed` that still holds on `state`: checked at commit, on real free capacity and use.

    A job that was edited since the plan was made is left to the next one. A start holds when its job still waits, not
    held, with the same attempt number, every place is free on an open node in the
    same incarnation, and no queue above it exceeds a maximum. Preemptions hold together: if one victim of a beneficiary
    is gone, or a node that it was to start on takes no more work, none of them is asked.
    """
    check = _Check(state, proposed.seq)
    starts = tuple(s for s in proposed.starts if check.start_holds(s))
    resumes = tuple(r for r in proposed.resumes if check.resume_holds(r))
    kept = len(starts) + len(resumes) == len(proposed.starts) + len(proposed.resumes)
    batches = tuple(b for b in proposed.batches if check.batch_holds(b))
    if kept and len(batches) == len(proposed.batches) and not proposed.preemptions and not proposed.dropped:
        return proposed
    closed = {job_id for job_id, places in proposed.held.items() if not all(_open(p, job_id, state) for p in places)}
    others = (p for p in proposed.preemptions if p.rule != REBALANCE)
    broken = closed | {p.beneficiary for p in others if not _preemption_holds(p, state, proposed.seq)}
    rounds = _broken_rounds(proposed, state)
    preemptions = tuple(p for p in proposed.preemptions if _kept(p, broken, rounds, state))
    decided = len(proposed.starts) + len(proposed.resumes) + len(proposed.preemptions) + len(proposed.batches)
    dropped = decided - len(starts) - len(resumes) - len(preemptions) - len(batches)
    parts = {"starts": starts, "resumes": resumes, "preemptions": preemptions, "batches": batches}
    return msgspec.structs.replace(proposed, **parts, dropped=dropped)


def _broken_rounds(proposed: Plan, state: State) -> set[PoolName | None]:
    """Return the pools of which a re-allocation does not hold any more: of one round all orders hold, or none."""
    orders = [p for p in proposed.preemptions if p.rule == REBALANCE]
    return {
        _pool_of(p, state)
        for p in orders
        if not _preemption_holds(p, state, proposed.seq)
        or not all(_open(place, room.job_id, state) for room in p.rooms for place in room.places)
        or not all(_may_come(room.job_id, p.victim, state) for room in p.rooms)
    }


def _pool_of(preemption: Preemption, state: State) -> PoolName | None:
    victim = state.jobs.get(preemption.victim)
    return victim.spec.ask.pool if victim is not None else None


def _may_come(job_id: JobId, victim: JobId, state: State) -> bool:
    job = state.jobs.get(job_id)
    return job is not None and (job_id == victim or (job.state == "waiting" and job.ready))


def _kept(preemption: Preemption, broken: set[JobId], rounds: set[PoolName | None], state: State) -> bool:
    if preemption.rule != REBALANCE:
        return preemption.beneficiary not in broken
    return None not in rounds and _pool_of(preemption, state) not in rounds


class _Check:
    """The state with the starts that were found to hold so far."""

    def __init__(self, state: State, basis: int) -> None:
        self._state, self._basis = state, basis
        self._free: dict[NodeName, NodeCapacity] = {}
        self._tree: QueueTree | None = None
        config = state.config
        limited = config.power_limits or any(tenant.max for tenant in config.tenants)
        if limited or any(q.max or q.lend is not None for q in config.queues):
            self._tree = state.queue_tree()

    def start_holds(self, start: Start) -> bool:
        job = self._state.jobs.get(start.job_id)
        if job is None or job.state != "waiting" or not job.ready or job.cancel_requested:
            return False
        if job.edited_seq > self._basis:
            return False
        if self._held(job.spec.tenant):
            return False
        if job.last_attempt + 1 != start.attempt or self._crowded(start):
            return False
        if not self._within_quota(job, lambda tree: tree.demand_of(start.ask, start.places, self._state.nodes)):
            return False
        return self._take(start, job.spec.tenant)

    def _crowded(self, start: Start) -> bool:
        """Return whether more stands now of what the gang's rules look at, beyond the nodes that it takes.

        What the plan itself puts there is counted in it; places are checked one by one.
        """
        if self._state.indexes.nearby_seq <= self._basis:
            return False
        asks = (start.ask.each, *(group.each for group in start.ask.others))
        return any(each.selected or has_wide_rules(each) for each in asks)

    def _held(self, tenant: TenantName) -> bool:
        return tenant in self._state.money.holds()

    def batch_holds(self, change: BatchChange) -> bool:
        """Return whether the attempt still runs, and is not asked to leave."""
        job = self._state.jobs.get(change.job_id)
        attempt = job.attempt if job is not None else None
        return attempt is not None and attempt.number == change.attempt and attempt.stop is None

    def resume_holds(self, resume: Resume) -> bool:
        """Return whether the attempt is still suspended and the CPUs that it had are free at its places."""
        job = self._state.jobs.get(resume.job_id)
        attempt = job.attempt if job is not None else None
        if job is None or attempt is None or attempt.number != resume.attempt:
            return False
        if not attempt.suspended_ms or attempt.stop is not None:
            return False
        if not self._within_quota(job, lambda tree: tree.cpus_of(job.placed)):
            return False
        ask, after = job.placed.only_cpus(), dict[NodeName, NodeCapacity]()
        for replica in attempt.replicas:
            if replica.holds:
                name, each = replica.place.node, ask.each_of(replica.rank)
                free = after.get(name) or self._free.get(name) or self._state.indexes.free[name]
                if each.host.shortage(free.host) or free.closed not in MAY_GO_ON:
                    return False
                after[name] = free.take(each, (), ())
        self._free.update(after)
        return True

    def _within_quota(self, job: Job, demand: Callable[[QueueTree], Sequence[int]]) -> bool:
        """Count the job's demand where that exceeds no maximum; return whether it was counted."""
        if self._tree is None:
            return True
        account = self._tree.account(job.spec.queue, job.spec.tenant)
        return account is not None and self._tree.charge_within(account, demand(self._tree))

    def _take(self, start: Start, tenant: TenantName) -> bool:
        """Take every place of a start, or none of them."""
        ask, after = start.ask, dict[NodeName, NodeCapacity]()
        for each, place in zip(map(ask.each_of, range(ask.replica_total)), start.places, strict=True):
            free = after.get(place.node) or self._free.get(place.node) or self._state.indexes.free.get(place.node)
            if free is None or free.closed or self._state.nodes[place.node].incarnation != place.incarnation:
                return False
            if free.shut_to and tenant in free.shut_to:
                return False
            if not place_free(each, free, (place.devices, place.slots)):
                return False
            parts = free.shape.virtualization
            if parts != "any" and each.devices is not None and not each.devices.given_by(parts):
                return False
            after[place.node] = free.take(each, place.devices, place.slots)
        self._free.update(after)
        return True


def _open(place: ReplicaPlace, job_id: JobId, state: State) -> bool:
    """Return whether the node of a place takes work of the job."""
    node, job = state.nodes.get(place.node), state.jobs.get(job_id)
    if node is None or node.incarnation != place.incarnation or node.state != "ready" or node.draining:
        return False
    return job is None or job.spec.tenant not in node.shut_to


def _preemption_holds(preemption: Preemption, state: State, basis: int) -> bool:
    victim, beneficiary = state.jobs.get(preemption.victim), state.jobs.get(preemption.beneficiary)
    if victim is None or victim.attempt is None or victim.attempt.number != preemption.attempt:
        return False
    if victim.protected or victim.attempt.stop is not None or beneficiary is None:
        return False
    if preemption.suspend and not victim.can_suspend:
        return False
    if beneficiary.spec.tenant in state.money.holds() or beneficiary.hold is not None:
        return False
    if max(victim.edited_seq, beneficiary.edited_seq) > basis:
        return False
    return beneficiary.state == "waiting" or beneficiary.id == victim.id or preemption.rule == REBALANCE
