"""Planning on edited snapshots: the only proof that an edit helps.

A plan contains only the jobs that can matter, so that more edits can be tried. When a cycle would change nothing, few
waiting jobs can come between a job and its start: those with a hold, the starving one of its pool, and the first
blocked ones of its pool, which get reservations. The heads of queues decide when each of them comes, so all jobs below
the same child of the root belong to it. All others wait for room that is not there, and change nothing. When a cycle
would start a job, or the edit makes room, every job is in the plan.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.cycle.planner import Planner
from penstock.core.explain.rights import may_ask_others
from penstock.core.explain.scene import Scene
from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.ids import ClassId, JobId, NodeName, QueueName
from penstock.core.model.jobs import Job, JobSpec
from penstock.core.model.plan import Plan
from penstock.core.order.extension import Policies
from penstock.core.order.ranks import request_class
from penstock.core.order.starvation import Backlog, starvation_bound_ms
from penstock.core.order.walk import PendingJobs
from penstock.core.place.backfill import held_places
from penstock.core.place.capacity import NodeCapacity
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.usage import charge_of
from penstock.core.status.alerts import quota_blocks

PLANS_MAX = 40
"""Plans made for one explanation."""
WORK_MAX = 20_000
"""Work of all of them: the items read, weighed so that one unit is about a microsecond."""
FEW_WORK_MAX = 5_000
"""Cost of a plan up to which edits are tried that seldom help in a long queue: ends of jobs, more nodes."""
_CLASS_WORK, _QUEUE_WORK, _NODE_WORK, _VICTIM_WORK = 25, 10, 6, 20
_EDITED = ClassId(1 << 40)


class TrialOutcome(NamedTuple):
    """A plan's effect on the job: it starts, or these victims leave for it, or nothing."""

    started: bool
    victims: tuple[JobId, ...] = ()


_NOTHING = TrialOutcome(False)


class Trials:
    """Plans made for one explanation, counted and bounded. Once the bound is reached every answer is nothing."""

    def __init__(self, scene: Scene, policies: Policies) -> None:
        self._scene, self._policies = scene, policies
        self.plans = self._work = 0
        self.spent = False
        """Some edit was not tried because of the bound."""
        self._weighed = len(scene.snapshot.running) if may_ask_others(scene) else 0
        self._others: dict[str, tuple[PendingJobs, ...]] = {}
        self._all: tuple[PendingJobs, ...] | None = None
        self._between: set[str] | None = None

    def few(self) -> bool:
        """Return whether a plan of all jobs is cheap enough for edits that seldom help; note an omission."""
        snapshot = self._scene.snapshot
        cheap = self._work_of(snapshot, len(snapshot.nodes)) <= FEW_WORK_MAX
        self.spent = self.spent or not cheap
        return cheap

    # The request.

    def with_spec(self, spec: JobSpec) -> TrialOutcome:
        """Plan with another request of the job."""
        scene = self._scene
        job = replace(scene.job, spec=spec)
        if not scene.quiet:
            return self._plan(self._with(self._rest(), job))
        found = self._plan(self._with(self._relevant(spec.queue), job))
        if found.victims:  # a cycle's search for victims depends on the number of waiting jobs
            return self._plan(self._with(self._rest(), job))
        return found

    def _with(self, others: tuple[PendingJobs, ...], job: Job) -> Snapshot:
        """Return the snapshot in which these jobs and the edited one wait, in its own class or a known one."""
        snapshot = self._scene.snapshot
        key = request_class(job, snapshot.config)
        at, class_id = next(((i, c) for i, (c, known, _) in enumerate(others) if known == key), (len(others), _EDITED))
        edited = replace(job, class_id=class_id)
        alike = others[at][2] if at < len(others) else ()
        together = (class_id, key, sorted([*alike, edited], key=lambda j: j.id))
        beneficiaries = tuple(edited if other.id == job.id else other for other in snapshot.beneficiaries)
        classes = (*others[:at], together, *others[at + 1 :])
        return replace(snapshot, classes=classes, beneficiaries=beneficiaries)

    def _rest(self) -> tuple[PendingJobs, ...]:
        """Return all waiting jobs but this one."""
        if self._all is None:
            self._all = tuple(_without(self._scene.snapshot.classes, self._scene.job))
        return self._all

    def _relevant(self, queue: QueueName) -> tuple[PendingJobs, ...]:
        """Return the classes that matter for a job in a queue."""
        top = self._top(queue)
        if top not in self._others:
            if self._between is None:
                self._between = {self._top(key.queue) for _, key, _ in self._ahead()}
            near, tenant = self._between | {top}, self._scene.spec.tenant
            capped = tenant in self._scene.tree.tenant_limits  # then its jobs of any queue may be in the way
            self._others[top] = tuple(
                e for e in self._rest() if self._top(e[1].queue) in near or (capped and e[1].tenant == tenant)
            )
        return self._others[top]

    def _top(self, queue: QueueName) -> str:
        """Return the queue right below the root that a queue belongs to."""
        branch = self._scene.tree.branches.get(queue)
        path = [at.name for at in branch.path()] if branch is not None else [queue]
        return path[-2] if len(path) > 1 else path[0]

    def _ahead(self) -> Iterator[PendingJobs]:
        """Yield the classes of jobs that may come between the job and its start."""
        scene = self._scene
        held = scene.base.held  # some without a victim: they take room that ends anyway
        wanted = {job.class_id for job in scene.snapshot.beneficiaries}
        wanted.update(c for c, _, jobs in scene.snapshot.classes if held and any(j.id in held for j in jobs))
        wanted.update(self._starving())
        keys = {class_id: key for class_id, key, _ in scene.snapshot.classes}
        conservative = scene.pool is not None and scene.pool.backfill == "conservative"
        depth = scene.settings.backfill_depth_max if conservative else 1
        blocked = (
            class_id
            for class_id, verdict in scene.base.verdicts.items()
            if class_id in keys and class_id not in wanted and verdict.code in ("no_fit", "kept_back")
            if keys[class_id].ask.pool == scene.gang.pool
        )
        wanted.update(islice(blocked, depth + 1))  # one more, for the job itself may be among them
        return (entry for entry in scene.snapshot.classes if entry[0] in wanted)

    def _starving(self) -> Iterator[ClassId]:
        """Yield the class of the starving job that the cycle serves first, this job left out."""
        scene = self._scene
        least_ms = scene.now_ms - scene.settings.starvation_after_ms
        backlog = Backlog(scene.snapshot.waiting, scene.planner.totals(scene.snapshot)[0])
        found = []
        for class_id, key, jobs in self._rest():
            if key.ask.pool == scene.gang.pool and jobs[0].submitted_ms <= least_ms:
                ready = (j for j in jobs if j.not_before_ms <= scene.now_ms and j.id not in scene.base.held)
                head = next(ready, None)
                if head is None:
                    continue
                bound_ms = starvation_bound_ms(head, scene.settings, backlog.beside_milli(key.ask))
                if head.submitted_ms + bound_ms <= scene.now_ms:
                    found.append((head.submitted_ms + bound_ms, head.id, class_id, key))
        for _, _, class_id, key in sorted(found, key=lambda entry: entry[:2]):
            account = scene.tree.account(key.queue, key.tenant)
            if account is not None and not quota_blocks(scene.tree, account, scene.tree.demand(key)):
                yield class_id
                return

    # The cluster.

    def with_config(self, config: ClusterConfig) -> TrialOutcome:
        """Plan with another configuration."""
        return self._plan_elsewhere(replace(self._scene.snapshot, config=config))

    def with_node(self, node: Node, free: NodeCapacity) -> TrialOutcome:
        """Plan with another value of a known node."""
        name, snapshot = node.spec.name, self._scene.snapshot
        nodes, frees = {**snapshot.nodes, name: node}, {**snapshot.free, name: free}
        return self._plan(replace(snapshot, nodes=nodes, free=frees, changes=[]), len(nodes))

    def with_more_nodes(self, more: Mapping[NodeName, tuple[Node, NodeCapacity]]) -> TrialOutcome:
        """Plan with additional nodes."""
        snapshot = self._scene.snapshot
        nodes = {**snapshot.nodes, **{name: node for name, (node, _) in more.items()}}
        free = {**snapshot.free, **{name: empty for name, (_, empty) in more.items()}}
        nodes, free = dict(sorted(nodes.items())), dict(sorted(free.items()))
        return self._plan_elsewhere(replace(snapshot, nodes=nodes, free=free, changes=[]))

    def without(self, job: Job) -> TrialOutcome:
        """Plan as if a running job had ended."""
        snapshot = self._scene.snapshot
        return self._plan(without_running(snapshot, job, self._scene.now_ms), len(snapshot.nodes))

    # Plans.

    def _plan(self, snapshot: Snapshot, nodes_anew: int = 0) -> TrialOutcome:
        return self._outcome(self._scene.plan(snapshot)) if self._may(snapshot, nodes_anew) else _NOTHING

    def _plan_elsewhere(self, snapshot: Snapshot) -> TrialOutcome:
        """Plan with separate indexes: other nodes or another configuration would invalidate the shared ones."""
        if not self._may(snapshot, len(snapshot.nodes)):
            return _NOTHING
        return self._outcome(Planner(self._policies).plan(snapshot, self._scene.now_ms))

    def _work_of(self, snapshot: Snapshot, nodes_anew: int) -> int:
        work = _CLASS_WORK * len(snapshot.classes) + _NODE_WORK * nodes_anew + 100
        work += _QUEUE_WORK * (len(snapshot.config.queues) + len(snapshot.usage))
        return work + _VICTIM_WORK * self._weighed

    def _may(self, snapshot: Snapshot, nodes_anew: int) -> bool:
        work = self._work_of(snapshot, nodes_anew)
        if self.plans >= PLANS_MAX or self._work + work > WORK_MAX:
            self.spent = True
            return False
        self.plans += 1
        self._work += work
        return True

    def _outcome(self, plan: Plan) -> TrialOutcome:
        job_id = self._scene.job.id
        victims = tuple(sorted(p.victim for p in plan.preemptions if p.beneficiary == job_id))
        return TrialOutcome(any(start.job_id == job_id for start in plan.starts), victims)


def _without(classes: tuple[PendingJobs, ...], job: Job) -> Iterator[PendingJobs]:
    for class_id, key, jobs in classes:
        rest = [j for j in jobs if j.id != job.id] if class_id == job.class_id else jobs
        if rest:
            yield class_id, key, rest


def without_running(snapshot: Snapshot, job: Job, now_ms: int) -> Snapshot:
    """Return the snapshot as if a running job had ended."""
    free = dict(snapshot.free)
    for rank, place in held_places(job):
        free[place.node] = free[place.node].put_back(job.ask.each_of(rank), place.devices, place.slots)
    use = (job.spec.queue, job.spec.tenant)
    half_life_ms = snapshot.config.settings.fair_share_half_life_ms
    charge = charge_of(job, snapshot.nodes).of_pool(job.placed.pool, snapshot.config.counted_pools)
    share = snapshot.usage[use].changed(charge.negative(), now_ms, half_life_ms)
    kind = (job.spec.ask.pool, job.spec.priority)
    evictable = dict(snapshot.evictable)
    if job.spec.preemptible:
        evictable[kind] -= 1
    return replace(
        snapshot,
        free=free,
        changes=[],
        running={i: other for i, other in snapshot.running.items() if i != job.id},
        stopping={i: whom for i, whom in snapshot.stopping.items() if i != job.id},
        usage={**snapshot.usage, use: share},
        ends=[end for end in snapshot.ends if end[1] != job.id],
        unending=[begun for begun in snapshot.unending if begun[1] != job.id],
        evictable={k: count for k, count in evictable.items() if count},
        elastic=tuple(i for i in snapshot.elastic if i != job.id),
    )
