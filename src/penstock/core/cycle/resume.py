"""Suspended attempts in a cycle: which of them get their CPUs back.

An attempt resumes right before the first waiting job of its pool without a higher priority: it holds its memory
already. The others take the rest once every waiting job was considered. Capacity kept for others is never touched.

Where attempts of lower priority have its CPUs it has no right to them, for it does not wait. It then leaves as if
moved: it saves, and comes first wherever it can get a place, theirs included.
"""

from collections.abc import Collection

from penstock.core.cycle.workspace import Workspace
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.model.plan import MAY_GO_ON, Preemption, Resume
from penstock.core.place.holds import FOREVER_MS
from penstock.core.preempt.victims import shrink_cost


class Resumer:
    """Gives CPUs of one cycle to suspended attempts: `resumes` go on, `preemptions` go elsewhere."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._snapshot = workspace, workspace.snapshot
        running = self._snapshot.running
        jobs = (running[job_id] for job_id in self._snapshot.suspended)
        self.left = sorted(
            (job for job in jobs if job.attempt is not None and job.attempt.stop is None),
            key=lambda job: (-job.spec.priority, job.id),
        )
        """Suspended jobs, highest priority first."""
        self.resumes: list[Resume] = []
        self.preemptions: list[Preemption] = []
        self._tried: dict[PoolName, tuple[int, int]] = {}
        """The version of the cluster in which attempts of a pool did not fit, and down to which priority."""
        self._lower: dict[NodeName, list[tuple[int, int]]] | None = None

    def before(self, pool: PoolName, priority: int, leaving: Collection[JobId]) -> None:
        """Resume attempts of the pool that come before a waiting job of this priority."""
        if not self.left:
            return
        version = self._workspace.cluster.version
        known = self._tried.get(pool)
        if known is not None and known[0] == version and known[1] <= priority:
            return
        for job in [j for j in self.left if j.placed.pool == pool and j.spec.priority >= priority]:
            if job.id not in leaving and not self._resume(job) and self._outranks(job):
                self._go_elsewhere(job)
        self._tried[pool] = (self._workspace.cluster.version, priority)

    def resume_rest(self, leaving: Collection[JobId]) -> None:
        """Resume attempts whose CPUs no job took."""
        for job in [j for j in self.left if j.id not in leaving]:
            if not self._resume(job) and self._outranks(job):
                self._go_elsewhere(job)

    def _resume(self, job: Job) -> bool:
        workspace, attempt = self._workspace, job.attempt
        assert attempt is not None
        held = [(r.rank, r.place) for r in attempt.replicas if r.holds]
        gang, account = job.placed.only_cpus(), workspace.tree.account(job.spec.queue, job.spec.tenant)
        if account is None or any(self._short(job).values()):
            return False
        if not workspace.tree.charge_within(account, workspace.tree.cpus_of(gang)):
            return False
        for rank, place in held:
            single, bare = GangAsk(1, gang.each_of(rank)), (ReplicaPlace(place.node, place.incarnation),)
            workspace.cluster.take(single, bare)
            workspace.holds.taken(single, bare, FOREVER_MS)
        self.left.remove(job)
        self.resumes.append(Resume(job.id, attempt.number))
        return True

    def _short(self, job: Job) -> dict[NodeName, int]:
        """Return by node how many CPUs are missing, in thousandths; all of them where it may not go on."""
        attempt = job.attempt
        assert attempt is not None
        short: dict[NodeName, int] = {}
        for replica in attempt.replicas:
            if replica.holds:
                name = replica.place.node
                short[name] = short.get(name, 0) + job.placed.each_of(replica.rank).host.cpu_milli
        for name in short:
            free = self._workspace.cluster.free_of(self._workspace.cluster.index[name])
            if free.closed in MAY_GO_ON and free.kept_for in ("", job.spec.tenant):
                short[name] = max(0, short[name] - free.cpu_milli)
        return short

    def _outranks(self, job: Job) -> bool:
        """Return whether the attempts that have its CPUs would have to leave for it if it waited.

        Priority alone has to decide that: where queues have guarantees, or jobs take turns, others may have a right to
        them, and the job stays suspended until its CPUs are free or its time is over.
        """
        tree, short = self._workspace.tree, self._short(job)
        rule = tree.rules.get(job.spec.queue)
        if rule is None or rule.preemption != "lower_priority" or rule.policy == "least_attained" or tree.promises:
            return False
        lower = self._lower_priority()
        return any(short.values()) and all(
            milli <= sum(held for priority, held in lower.get(name, ()) if priority < job.spec.priority)
            for name, milli in short.items()
        )

    def _lower_priority(self) -> dict[NodeName, list[tuple[int, int]]]:
        """Return priority and CPUs of running attempts that may be asked to leave, by node."""
        if self._lower is None:
            self._lower = {}
            for job in self._snapshot.running.values():
                attempt = job.undisturbed
                if attempt is None or not job.evictable:
                    continue
                for replica in attempt.replicas:
                    if replica.holds:
                        held = (job.spec.priority, job.ask.each_of(replica.rank).host.cpu_milli)
                        self._lower.setdefault(replica.place.node, []).append(held)
        return self._lower

    def _go_elsewhere(self, job: Job) -> None:
        assert job.attempt is not None
        cost = shrink_cost(job, self._workspace.settings)
        self.left.remove(job)
        self.preemptions.append(Preemption(job.id, job.attempt.number, job.id, cost, "elsewhere"))
