"""Walks the waiting jobs of a queue tree in order, looking only at the head of each request class.

Jobs of one class differ in age alone, and no builtin policy puts the younger of two such jobs first; so a class is a
sorted list, and the cost of a cycle grows with classes and placements, not with waiting jobs. A third-party policy
may use more attributes of a job: it is called for each. A start counts at once for the queues above it, so that
shares and quotas hold inside a cycle as well as between two.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import ClassId, JobId, QueueName, TenantName
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.model.plan import QuotaExceeded
from penstock.core.order.extension import EXTENSION_PREFIX, Policies
from penstock.core.order.policies import SCORE_SCALE, OrderKey, order_key
from penstock.core.order.queues import QueueNode, QueueTree

PendingJobs = tuple[ClassId, RequestClass, Sequence[Job]]


class ClassCursor:
    """One class of waiting jobs, and how far the walk has come in it."""

    __slots__ = ("alive", "at", "class_id", "decreasing", "demand", "job", "jobs", "key", "leaf", "milli", "plain")

    def __init__(self, class_id: ClassId, key: RequestClass, jobs: Sequence[Job], leaf: "QueueNode") -> None:
        self.class_id, self.key, self.jobs, self.leaf = class_id, key, jobs, leaf
        self.at = -1
        self.alive = True
        """Whether the walk is not yet done with the class."""
        self.job: Job = jobs[0]
        self.demand: tuple[int, ...] = ()
        self.milli = key.ask.device_milli
        """Devices a job of the class asks for, in thousandths: cached, for every step needs it."""
        self.decreasing = False
        """Whether its pool takes the larger of equally urgent jobs first."""
        self.plain: bool | None = None
        """Whether its jobs need only capacity; None before the first check."""


class JobQueue:
    """Gives waiting jobs one at a time; after each the caller reports the decision."""

    def __init__(
        self,
        config: ClusterConfig,
        tree: QueueTree,
        classes: Iterable[PendingJobs],
        now_ms: int,
        policies: Policies,
    ) -> None:
        self._settings, self.tree, self._now_ms, self._policies = config.settings, tree, now_ms, policies
        self._bonus = SCORE_SCALE * config.settings.wait_bonus_max
        self._horizon_ms = config.settings.wait_bonus_horizon_ms
        self._penalty = config.settings.size_penalty_per_device
        self.backing_off: list[tuple[ClassId, Job]] = []
        """Jobs passed over because they must not be tried yet."""
        self.broken: dict[str, str] = {}
        """Third-party policies that failed in this cycle, and how."""
        self.waiting = 0
        """Jobs that wait, in all classes."""
        self._path: list[QueueNode] = []
        decreasing = {pool.name for pool in config.pools if pool.placement == "first_fit_decreasing"}
        seats: dict[tuple[QueueName, TenantName], tuple[QueueNode, QueueNode, bool] | None] = {}
        for class_id, key, jobs in classes:
            where = (key.queue, key.tenant)
            if where not in seats:
                seats[where] = self._seat(*where)
            seat = seats[where]
            if seat is not None:
                node, account, foreign = seat
                self.waiting += len(jobs)
                for some in ((job,) for job in jobs) if foreign else (jobs,):  # its policy may look at any attribute
                    cursor = ClassCursor(class_id, key, some, account)
                    cursor.decreasing = key.ask.pool in decreasing
                    if self._step(cursor):
                        node.cursors.append(cursor)
        tree.sort_tenants()
        self._fill(tree.root)

    def _seat(self, queue: QueueName, tenant: TenantName) -> tuple[QueueNode, QueueNode, bool] | None:
        """Return where jobs of a tenant in a queue wait and count, and whether a third-party policy orders them."""
        branch, account = self.tree.branches.get(queue), self.tree.account(queue, tenant)
        if branch is None or account is None:
            return None
        return self.tree.node_of(branch, tenant), account, branch.policy.startswith(EXTENSION_PREFIX)

    def set_back(self, places: Iterable[tuple[ClassCursor, int]]) -> None:
        """Go back to these positions in these classes. Their use must have been released before."""
        for cursor, at in places:
            cursor.at, cursor.job, cursor.alive = at, cursor.jobs[at], True
        self._fill(self.tree.root)

    def _step(self, cursor: ClassCursor) -> bool:
        """Go to the next job of the class that may be tried now; return False at the end."""
        jobs, at, now_ms = cursor.jobs, cursor.at + 1, self._now_ms
        while at < len(jobs):
            job = jobs[at]
            if job.not_before_ms <= now_ms:
                cursor.at, cursor.job = at, job
                return True
            self.backing_off.append((cursor.class_id, job))
            at += 1
        return False

    def _fill(self, branch: QueueNode) -> None:
        for child in branch.children:
            self._fill(child)
        branch.heap = []
        for child in branch.children:
            if child.heap:
                branch.heap.append((self._child_key(branch, child), child.position, child))
        for cursor in branch.cursors:
            if not cursor.alive:
                continue
            key = self._key(branch.policy, cursor) if not branch.children else self._own_key(branch, cursor)
            branch.heap.append((key, -1 - cursor.class_id, cursor))
        heapq.heapify(branch.heap)

    def _key(self, policy: str, cursor: ClassCursor) -> OrderKey:
        if cursor.decreasing:
            return (-SCORE_SCALE * cursor.job.spec.priority, -cursor.milli, cursor.job.id)
        if policy == "priority":  # the most used and costliest: `priority_score_milli`, inlined
            job = cursor.job
            waited, horizon = self._now_ms - job.submitted_ms, self._horizon_ms
            bonus = self._bonus * (0 if waited < 0 else min(waited, horizon)) // (horizon or 1)
            return (self._penalty * cursor.milli - SCORE_SCALE * job.spec.priority - bonus, job.id)
        if policy.startswith(EXTENSION_PREFIX):
            return self._foreign_key(policy, cursor)
        return order_key(policy, cursor.job, cursor.key, self._settings, self._now_ms, self._policies)

    def _foreign_key(self, policy: str, cursor: ClassCursor) -> OrderKey:
        """Call a third-party policy. After a failure it orders by age for the rest of the cycle, and is named."""
        if policy not in self.broken:
            try:
                return order_key(policy, cursor.job, cursor.key, self._settings, self._now_ms, self._policies)
            except Exception as error:  # noqa: BLE001 - third-party code: scheduling goes on after any exception
                self.broken[policy] = f"{type(error).__name__}: {error}"
        return order_key("fifo", cursor.job, cursor.key, self._settings, self._now_ms, self._policies)

    def _own_key(self, branch: QueueNode, cursor: ClassCursor) -> OrderKey:
        """A job that waits in an inner queue itself goes before the children where these are ordered by shares."""
        if branch.policy in ("fair_share", "capacity"):
            return (-1, *self._key(branch.policy, cursor))
        return self._key(_static(branch.policy), cursor)

    def _child_key(self, branch: QueueNode, child: QueueNode) -> OrderKey:
        """Return how a queue with jobs left compares to its siblings."""
        if branch.policy == "fair_share":
            return (0, self.tree.share(child), child.position)
        if branch.policy == "capacity":
            return (*self.tree.guarantee_used(child), child.position)
        head: QueueNode | ClassCursor = child
        while isinstance(head, QueueNode):
            head = head.heap[0][2]
        return self._key(_static(branch.policy), head)

    def peek(self) -> ClassCursor | None:
        """Return the class whose head goes next, or None when all were looked at."""
        path, at = self._path, self.tree.root
        path.clear()
        while at.heap:
            path.append(at)
            below = at.heap[0][2]
            if isinstance(below, ClassCursor):
                return below
            at = below
        return None

    def _settle(self, cursor: ClassCursor | None, *, charged: bool = False) -> None:
        """Restore the heaps from the leaf up: the leaf's head is `cursor`'s next job, or gone.

        Where nothing was charged, queues that are compared by shares stay where they are.
        """
        leaf = self._path[-1]
        if cursor is None:
            leaf.heap[0][2].alive = False
            heapq.heappop(leaf.heap)
        else:
            key = self._key(leaf.policy, cursor) if not leaf.children else self._own_key(leaf, cursor)
            heapq.heapreplace(leaf.heap, (key, -1 - cursor.class_id, cursor))
        child, share = leaf, self.tree.share
        for branch in self._path[-2::-1]:
            policy = branch.policy
            if not child.heap:
                heapq.heappop(branch.heap)
            elif policy == "fair_share":  # the costliest: `_child_key`, inlined
                if charged:
                    at = child.position
                    heapq.heapreplace(branch.heap, ((0, share(child), at), at, child))
            elif len(branch.heap) == 1 and not self._policies:
                pass  # no sibling to compare with: no key needed (but a third-party policy is called: it may fail)
            elif charged or policy != "capacity":
                heapq.heapreplace(branch.heap, (self._child_key(branch, child), child.position, child))
            child = branch

    def demand(self, cursor: ClassCursor) -> tuple[int, ...]:
        if not cursor.demand:
            cursor.demand = self.tree.demand(cursor.key)
        return cursor.demand

    def exceeded(self, cursor: ClassCursor) -> QuotaExceeded | None:
        """Return the maximum that keeps the class from starting, or None."""
        return self.tree.exceeded(cursor.leaf, self.demand(cursor))

    def started(self, cursor: ClassCursor, demand: tuple[int, ...] | None = None) -> None:
        """Count the job that `peek` gave as started (`demand`: if it differs from its class's), and go on."""
        self.tree.charge(cursor.leaf, demand or self.demand(cursor))
        self._settle(cursor if self._step(cursor) else None, charged=True)

    def skip(self, cursor: ClassCursor, *, charged: bool = False) -> None:
        """Go on to the next job, which may be of the same class; `charged`: this one counts for its queues already."""
        self._settle(cursor if self._step(cursor) else None, charged=charged)

    def drop(self, cursor: ClassCursor) -> None:
        """Go on without the other jobs of this class: one that did not fit is not tried again."""
        assert self._path[-1].heap[0][2] is cursor
        self._settle(None)

    def leave_queue(self) -> None:
        """Drop the remaining classes of the queue (or of the tenant in it) at the head.

        For a look at the order, before `set_back`: a cycle drops classes one by one, as it gives each a verdict.
        """
        del self._path[-1].heap[1:]
        self._settle(None)

    def __iter__(self) -> Iterator[JobId]:
        """Yield every job in order as if each were started (consumes the order)."""
        while (cursor := self.peek()) is not None:
            yield cursor.job.id
            self.started(cursor)


def _static(policy: str) -> str:
    """Return the policy by which queues are compared.

    What a class has attained or is expected to take is known only where the job's own queue orders by it: queues are
    compared by the score of `priority` in place of `shortest_predicted`, and by age in place of the others.
    """
    if policy in ("priority", "fifo") or policy.startswith("ext:"):
        return policy
    return "priority" if policy == "shortest_predicted" else "fifo"
