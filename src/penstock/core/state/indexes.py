"""Indexes derived from jobs and nodes: free capacity, waiting jobs, use of queues, dependants.

A cache, nothing more: `invariants.py` recounts each part of it from the jobs and nodes. Containers that a snapshot
has been given are copied before they change next, so that taking a snapshot copies no unchanged part.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.ids import ClassId, JobId, NodeName, PoolName, QueueName, Rank, TenantName
from penstock.core.model.jobs import GangAsk, Job, Replica, RequestClass
from penstock.core.model.resources import Sharing
from penstock.core.order.queues import QueueTree
from penstock.core.order.ranks import request_class
from penstock.core.order.usage_over_time import UsageOverTime, UsedAmounts
from penstock.core.order.walk import PendingJobs
from penstock.core.place.capacity import Counted, NodeCapacity, NodeShape, shape_of, unheld
from penstock.core.place.index import ClusterIndex
from penstock.core.place.workload_mix import Requests
from penstock.core.state.arrays import ArrayTurns
from penstock.core.state.charges import Charges
from penstock.core.state.copy_on_write import ByJob, ByNode, Moments
from penstock.core.state.dependants import Dependants
from penstock.core.state.idleness import is_marked
from penstock.core.state.kind_steps import StepsByKind
from penstock.core.state.model_speeds import ModelSpeeds
from penstock.core.state.past_runs import PastRuns
from penstock.core.state.pending import PendingClass, PendingClasses
from penstock.core.state.powers import Powers
from penstock.core.state.replicas import ports_of
from penstock.core.state.shared_capacity import SharedCapacity
from penstock.core.state.usage import charge_of, expected_end_ms, models_of

UsageKey = tuple[QueueName, TenantName]
PastUse = tuple[QueueName, TenantName, int, int]
"""Queue, tenant, average of past use, and as of when: see `UsageOverTime`."""


CHANGES_MAX = 1_000_000
CLASSES_KEPT = 20_000
"""Request classes that are known, whether or not a job of them lives; more only where most have one."""
_PLAIN = ClusterConfig()
_UNUSED = UsageOverTime()


class Load(msgspec.Struct):
    """The load of one node: its replicas, and the holders of each device (several where it is given out in parts)."""

    devices: dict[int, list[JobId]]
    replicas: set[tuple[JobId, Rank]]


class Indexes:
    """Indexes that follow from jobs and nodes; rebuilt from them when a state is loaded."""

    def __init__(self) -> None:
        self.class_ids: dict[RequestClass, ClassId] = {}
        self.pending = PendingClasses()
        self.nodes: dict[NodeName, Node] = {}
        """In the order of names; a new one for each change, so that it can be given out."""
        self.free: ByNode[NodeCapacity] = ByNode()
        """In the same order."""
        self.loads: dict[NodeName, Load] = {}
        self.evicted_later: set[NodeName] = set()
        """Closed nodes whose jobs are asked to move at a time that was said."""
        self.leaving: set[NodeName] = set()
        self.with_closed: set[NodeName] = set()
        """Nodes with closed devices."""
        self.dependants, self.arrays = Dependants(), ArrayTurns()
        self.stopping: dict[JobId, JobId | None] = {}
        self.waiting_by_queue: dict[str, int] = {}
        self.active: ByJob[Job] = ByJob()
        self.beneficiaries: set[JobId] = set()
        self.ports: set[tuple[NodeName, int]] = set()
        self.wait_limited: set[JobId] = set()
        self.time_limited: set[JobId] = set()
        """Attempts whose time is limited."""
        self.usage: dict[UsageKey, UsageOverTime] = {}
        self.charges = Charges()
        self.bound: frozenset[PoolName] = frozenset()
        """Pools whose use is also counted separately."""
        self.sharing: Mapping[PoolName, Sharing] = {}
        self.ends = Moments()
        """When attempts are expected to end, where that is known."""
        self.unending = Moments()
        """When attempts of unknown length were allocated; those that are suspended do not count."""
        self.evictable: dict[tuple[PoolName, int], int] = {}
        self.elastic: set[JobId] = set()
        self.shareable: set[JobId] = set()
        """Attempts whose devices may be shared with other jobs."""
        self.suspended: set[JobId] = set()
        """Suspended attempts: they have given their CPUs back."""
        self.idle: set[JobId] = set()
        """Attempts whose last note says that they are idle."""
        self.seq = 0
        """The record that is being folded, or was last."""
        self.nearby_seq = 0
        """The last record after which more stood on some node of what rules about replicas near each other look at."""
        self.changes: list[NodeName] = []
        self.requests = Requests()
        self.powers, self.past_runs, self.model_speeds, self.steps = Powers(), PastRuns(), ModelSpeeds(), StepsByKind()
        self.never_fits: dict[GangAsk, tuple[tuple[str, int], ...]] = {}
        """Requests that no known node could hold even when empty; forgotten when a node registers."""
        self.apart: dict[GangAsk | None, str] = {}
        """How the nodes that could hold a request are divided by storage; forgotten with these."""
        self.shapes_tried = 0
        """How often a request was tried on the empty cluster because the answer was not kept."""
        self.emptied: ClusterIndex | None = None
        """All known nodes as if they held nothing; made anew when one registers."""
        self.trees: tuple[QueueTree, ...] = ()
        """Two trees of one configuration: one to load with the present use, one that stays empty."""
        self.trees_config: ClusterConfig | None = None
        self._keys: dict[ClassId, RequestClass] = {}
        self._class_numbers, self._classes_most = count(), CLASSES_KEPT
        self._shapes: dict[NodeShape, NodeShape] = {}

    def intern(self, key: RequestClass) -> ClassId:
        """Return the number of the class, giving it one when it is new."""
        if (found := self.class_ids.get(key)) is None:
            found = ClassId(next(self._class_numbers))
            self.class_ids[key], self._keys[found] = found, key
        return found

    def forget_classes(self, jobs: Mapping[JobId, Job]) -> None:
        """Forget the classes of jobs that have ended, once there are many: requests can make any number of classes."""
        if len(self.class_ids) <= self._classes_most:
            return
        used = {job.class_id for job in jobs.values()}
        self.class_ids = {key: class_id for key, class_id in self.class_ids.items() if class_id in used}
        self._keys = {class_id: key for key, class_id in self.class_ids.items()}
        self._classes_most = max(CLASSES_KEPT, 2 * len(used))

    def rebuild(
        self,
        jobs: Mapping[JobId, Job],
        nodes: Iterable[Node],
        past: Iterable[PastUse] = (),
        config: ClusterConfig = _PLAIN,
    ) -> None:
        """Derive everything anew from jobs and nodes; `past` is the past use, which only the log has."""
        self.bound, self.sharing = config.counted_pools, config.sharing
        self._begin_with(nodes)
        self.arrays.rebuild(jobs[job_id] for job_id in sorted(jobs))
        for job in (jobs[job_id] for job_id in sorted(jobs)):
            if job.state == "waiting":
                self.job_waits(job, jobs)
                if job.room_made:
                    self.beneficiaries.add(job.id)
            if job.attempt is not None:
                self.attempt_begins(job, 0, 0)
                if job.attempt.stop is not None:
                    self.stopping[job.id] = job.attempt.stop.beneficiary
        for queue, tenant, average, since_ms in past:
            known = self.usage.get((queue, tenant), UsageOverTime())
            self.usage[queue, tenant] = UsageOverTime(known.now, average, since_ms)

    def give_out_classes(self) -> tuple[PendingJobs, ...]:
        """Return the waiting jobs by class; a list that is given out is copied before it changes."""
        found = []
        for class_id, pending in sorted(self.pending.items()):
            pending.shared = True
            found.append((class_id, pending.key, pending.jobs))
        return tuple(found)

    def past(self) -> list[PastUse]:
        """Return the past use, which cannot be derived from jobs and nodes."""
        return [(*key, share.average, share.since_ms) for key, share in sorted(self.usage.items()) if share.since_ms]

    # Jobs that wait.

    def job_waits(self, job: Job, jobs: Mapping[JobId, Job]) -> None:
        queue = job.spec.queue
        self.waiting_by_queue[queue] = self.waiting_by_queue.get(queue, 0) + 1
        if job.spec.max_wait_ms:
            self.wait_limited.add(job.id)
        if job.unmet:
            self.dependants.add(job, jobs)
        elif job.ready:
            self.becomes_ready(job)

    def becomes_ready(self, job: Job) -> None:
        pending = self.pending.get(job.class_id)
        if pending is None:
            pending = self.pending[job.class_id] = PendingClass(job.class_id, self._keys[job.class_id])
        pending.put(job)

    def job_changed(self, job: Job) -> None:
        """Take over the newer value of a job whose place in the indexes stays the same."""
        if job.attempt is not None:
            self.active.set(job.id, job)
        elif job.state == "waiting" and job.ready:
            self.pending[job.class_id].put(job)

    def job_predicted(self, old: Job, new: Job) -> None:
        """Apply a new expected length of a job, and with it a new class while it waits."""
        if old.attempt is not None:
            self._count_active(old, -1)
            self._count_active(new, 1)
            self.active.set(new.id, new)
        elif old.ready:
            self._leave_class(old)
            self.becomes_ready(new)

    def job_left_queue(self, job: Job) -> None:
        self.waiting_by_queue[job.spec.queue] -= 1
        self.wait_limited.discard(job.id)
        self.beneficiaries.discard(job.id)
        if job.unmet:
            self.dependants.remove(job)
        elif job.ready:
            self._leave_class(job)

    def job_edited(self, old: Job, new: Job) -> None:
        """Take over a job that was held, released or edited: its state and its dependencies stay."""
        if new.attempt is not None:
            self._count_active(old, -1)
            self._count_active(new, 1)
            self.active.set(new.id, new)
            return
        self.waiting_by_queue[old.spec.queue] -= 1
        self.waiting_by_queue[new.spec.queue] = self.waiting_by_queue.get(new.spec.queue, 0) + 1
        (self.wait_limited.add if new.spec.max_wait_ms else self.wait_limited.discard)(new.id)
        if not new.room_made:
            self.beneficiaries.discard(new.id)
        if old.ready:
            self._leave_class(old)
        if new.ready:
            self.becomes_ready(new)

    def _leave_class(self, job: Job) -> None:
        pending = self.pending[job.class_id]
        pending.remove(job.id)
        if not pending.jobs:
            del self.pending[job.class_id]

    def classify_anew(self, jobs: dict[JobId, Job], config: ClusterConfig) -> None:
        """Sort every waiting job into its class under a changed configuration, and count the pools that it names."""
        if config.counted_pools != self.bound:
            self._bind(config.counted_pools)
        if config.sharing != self.sharing:
            self._share_anew(config.sharing)
        for pending in list(self.pending.values()):
            for job in list(pending.jobs):
                class_id = self.intern(request_class(job, config))
                if class_id != job.class_id:
                    pending.remove(job.id)
                    moved = jobs[job.id] = replace(job, class_id=class_id)
                    self.becomes_ready(moved)
            if not pending.jobs:
                del self.pending[pending.class_id]

    def _bind(self, pools: frozenset[PoolName]) -> None:
        """Count the use of these pools separately from now on, and of no others."""
        self.bound = pools
        self.usage = {key: share._replace(now=share.now._replace(pools=())) for key, share in self.usage.items()}
        for job_id, charge in self.charges.items():
            job = self.active[job_id]
            key = (job.spec.queue, job.spec.tenant)
            share, part = self.usage[key], charge.of_pool(job.placed.pool, pools).pools
            self.usage[key] = share._replace(now=share.now.plus(UsedAmounts(pools=part)))

    def _share_anew(self, pools: Mapping[PoolName, Sharing]) -> None:
        """Apply how pools share their devices from now on; existing allocations stay."""
        self.sharing, self.emptied = pools, None
        self.never_fits.clear()
        self.apart.clear()
        for name, node in self.nodes.items():
            shape = shape_of(node, pools)
            self._set_free(name, self.free[name]._replace(shape=self._shapes.setdefault(shape, shape)))

    # Jobs that hold places.

    def attempt_begins(self, job: Job, now_ms: int, half_life_ms: int) -> None:
        attempt = job.attempt
        assert attempt is not None
        self.active.set(job.id, job)
        self.ports.update(ports_of(attempt))
        self._hold(job, [replica for replica in attempt.replicas if replica.holds])
        charge = charge_of(job, self.nodes)
        self.charges.put(job, charge)
        self._use(job, charge, now_ms, half_life_ms)
        self._count_active(job, 1)

    def attempt_ends(self, job: Job, now_ms: int, half_life_ms: int) -> None:
        attempt = job.attempt
        assert attempt is not None
        self.active.remove(job.id)
        self.stopping.pop(job.id, None)
        self.ports.difference_update(ports_of(attempt))
        self._use(job, self.charges.pop(job.id), now_ms, half_life_ms, -1)
        self._count_active(job, -1)

    def attempt_holds(self, old: Job, new: Job, now_ms: int, half_life_ms: int) -> None:
        """Apply the new amounts that an attempt holds at its places from now on."""
        assert new.attempt is not None
        for replica in new.attempt.replicas:
            if replica.holds:
                place = replica.place
                given, kept = old.ask.each_of(replica.rank), new.ask.each_of(replica.rank)
                free = self.free[place.node].put_back(given, place.devices, place.slots)
                self._set_free(place.node, free.take(kept, place.devices, place.slots))
        self._use(old, self.charges[old.id], now_ms, half_life_ms, -1)
        charge = charge_of(new, self.nodes)
        self.charges.put(new, charge)
        self._use(new, charge, now_ms, half_life_ms)
        self._count_active(old, -1)
        self._count_active(new, 1)
        self.active.set(new.id, new)

    def _count_active(self, job: Job, sign: int) -> None:
        if job.spec.adapts:
            (self.elastic.add if sign > 0 else self.elastic.discard)(job.id)
        if job.spec.shareable:
            (self.shareable.add if sign > 0 else self.shareable.discard)(job.id)
        attempt = job.attempt
        assert attempt is not None
        if attempt.suspended_ms:
            (self.suspended.add if sign > 0 else self.suspended.discard)(job.id)
        if is_marked(job):
            (self.idle.add if sign > 0 else self.idle.discard)(job.id)
        if job.spec.preemptible:
            key = (job.spec.ask.pool, job.spec.priority)
            self.evictable[key] = self.evictable.get(key, 0) + sign
            if not self.evictable[key]:
                del self.evictable[key]
        if job.spec.time_limit_ms:
            (self.time_limited.add if sign > 0 else self.time_limited.discard)(job.id)
        end_ms = expected_end_ms(job)
        if end_ms:
            (self.ends.add if sign > 0 else self.ends.remove)((end_ms, job.id))
        elif not attempt.suspended_ms:
            (self.unending.add if sign > 0 else self.unending.remove)((attempt.allocated_ms, job.id))

    def _use(self, job: Job, charge: UsedAmounts, now_ms: int, half_life_ms: int, times: int = 1) -> None:
        key = (job.spec.queue, job.spec.tenant)
        if self.bound:
            charge = charge.of_pool(job.placed.pool, self.bound)
        share = self.usage.get(key, _UNUSED).changed(charge, now_ms, half_life_ms, times)
        if share == _UNUSED:
            self.usage.pop(key, None)
        else:
            self.usage[key] = share

    def load(self, node: NodeName) -> Load:
        found = self.loads.get(node)
        if found is None:
            found = self.loads[node] = Load({}, set())
        return found

    def _hold(self, job: Job, replicas: Sequence[Replica]) -> None:
        ask, frees = job.ask, SharedCapacity()
        for replica in replicas:
            place, each = replica.place, ask.each_of(replica.rank)
            load = self.load(place.node)
            load.replicas.add((job.id, replica.rank))
            whole = each.devices is None or each.devices.whole
            for index in place.devices:
                holders = load.devices.setdefault(index, [])
                if holders and whole:
                    raise BrokenInvariant(f"device {index} of {place.node} given to job {job.id}, held by {holders[0]}")
                holders.append(job.id)
            left = frees.without(self.free[place.node], each, place, 1)
            self._set_free(place.node, left)
            if not whole and any(left.devices[index] < 0 for index in place.devices):
                raise BrokenInvariant(f"job {job.id} was given more of {place.node} {place.devices} than is free")

    def release(self, job: Job, replicas: Sequence[Replica], now_ms: int, half_life_ms: int) -> None:
        """Give back the places of replicas that have ended."""
        ask, charged, frees, given = job.ask, job.charged, SharedCapacity(), UsedAmounts()
        for replica in replicas:
            place, each = replica.place, ask.each_of(replica.rank)
            if each.devices is not None or each.claimed:
                given = given.plus(models_of(charged, replica, self.nodes))
            load = self.load(place.node)
            load.replicas.discard((job.id, replica.rank))
            for index in place.devices:
                load.devices[index].remove(job.id)
                if not load.devices[index]:
                    del load.devices[index]
            self._set_free(place.node, frees.without(self.free[place.node], each, place, -1))
        self.charges.put(job, self.charges[job.id].plus(given, -1))
        self._use(job, given, now_ms, half_life_ms, -1)

    def _set_free(self, node: NodeName, free: NodeCapacity) -> None:
        old = self.free.get(node)
        if old is not None and (_more(old.selected, free.selected) or _more(old.repels, free.repels)):
            self.nearby_seq = self.seq
        self.free.set(node, free)
        if len(self.changes) >= CHANGES_MAX:
            self.changes = []  # a new list makes each follower of the old one look at every node
        self.changes.append(node)

    # Nodes.

    def _begin_with(self, nodes: Iterable[Node]) -> None:
        """Take in all nodes at once: each that came alone would have all of them copied."""
        self.nodes = {node.spec.name: node for node in sorted(nodes, key=lambda node: node.spec.name)}
        self.free = ByNode((name, unheld(node, self._shape_of(node))) for name, node in self.nodes.items())
        self.evicted_later = {name for name, node in self.nodes.items() if node.draining and node.evict_at_ms > 0}
        self.leaving = {name for name, node in self.nodes.items() if _leaves(node)}
        self.with_closed = {name for name, node in self.nodes.items() if node.devices_closed}

    def _shape_of(self, node: Node) -> NodeShape:
        shape = shape_of(node, self.sharing)
        return self._shapes.setdefault(shape, shape)

    def node_changed(self, node: Node, jobs: Mapping[JobId, Job]) -> None:
        """Apply a node's newer value, and recount its free capacity."""
        name = node.spec.name
        if name not in self.nodes or self.nodes[name].spec != node.spec:
            self.emptied = None
            self.never_fits.clear()
            self.apart.clear()
        nodes = dict(self.nodes)
        known = name in nodes
        last = not nodes or name > next(reversed(nodes))
        nodes[name] = node
        self.nodes = nodes if known or last else dict(sorted(nodes.items()))
        free = unheld(node, self._shape_of(node))
        for job_id, rank in sorted(self.loads[name].replicas) if name in self.loads else ():
            job = jobs[job_id]
            assert job.attempt is not None
            place = job.attempt.replicas[rank].place
            free = free.take(job.ask.each_of(rank), place.devices, place.slots)
        if not known and last:
            self.free = self.free.with_last(name, free)
        elif not known:
            self.free = ByNode((n, self.free.get(n, free)) for n in self.nodes)
        self._set_free(name, free)
        (self.evicted_later.add if node.draining and node.evict_at_ms > 0 else self.evicted_later.discard)(name)
        (self.leaving.add if _leaves(node) else self.leaving.discard)(name)
        (self.with_closed.add if node.devices_closed else self.with_closed.discard)(name)


def _leaves(node: Node) -> bool:
    return node.leaves_ms > 0 and node.state != "lost"


def _more(old: tuple[tuple[Counted, int], ...], new: tuple[tuple[Counted, int], ...]) -> bool:
    """Return whether any of these counts has grown."""
    if old == new:
        return False
    known = dict(old)
    return any(number > known.get(one, 0) for one, number in new)
