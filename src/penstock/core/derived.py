"""What follows from jobs and nodes, kept at hand: loads of nodes, waiting jobs by class, who waits for whom.

A cache, nothing more: `invariants.py` recounts each part of it from the jobs.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

import msgspec

from penstock.core.errors import BrokenInvariant
from penstock.core.model.ids import ClassId, JobId, NodeName, Rank
from penstock.core.model.jobs import GangAsk, Job, JobSpec, Replica, RequestClass
from penstock.core.model.resources import Resources


class Load(msgspec.Struct):
    """What is held on one node: host resources, which device indexes, and by whom."""

    host: Resources
    devices: dict[int, JobId]
    replicas: set[tuple[JobId, Rank]]


class PendingClass(msgspec.Struct):
    """Jobs of one request class that wait and have no unmet dependency, in submit order (job ids ascending)."""

    key: RequestClass
    jobs: list[JobId]


class Derived:
    """Indexes that follow from jobs and nodes; rebuilt from them when a state is loaded."""

    def __init__(self) -> None:
        self.class_ids: dict[RequestClass, ClassId] = {}
        self.pending: dict[ClassId, PendingClass] = {}
        self.loads: dict[NodeName, Load] = {}
        self.dependants: dict[JobId, list[JobId]] = {}
        self.stopping: dict[JobId, JobId | None] = {}
        self.waiting_by_queue: dict[str, int] = {}
        self.active: set[JobId] = set()
        self.beneficiaries: set[JobId] = set()
        self.ports: set[tuple[NodeName, int]] = set()
        self.wait_limited: set[JobId] = set()
        self.never_fits: dict[GangAsk, tuple[tuple[str, int], ...]] = {}
        """Requests that no known node could hold even when empty; forgotten when a node registers."""
        self._keys: list[RequestClass] = []

    def intern(self, key: RequestClass) -> ClassId:
        """Return the number of the class, giving it one when it is new."""
        found = self.class_ids.get(key)
        if found is None:
            found = ClassId(len(self._keys))
            self.class_ids[key] = found
            self._keys.append(key)
        return found

    def rebuild(self, jobs: Iterable[Job]) -> None:
        """Derive everything anew from the jobs."""
        for job in sorted(jobs, key=lambda j: j.id):
            if job.state == "waiting":
                self.job_waits(job)
                if job.room_made:
                    self.beneficiaries.add(job.id)
            if job.attempt is not None:
                self.attempt_begins(job)
                if job.attempt.stop is not None:
                    self.stopping[job.id] = job.attempt.stop.beneficiary

    def job_waits(self, job: Job) -> None:
        queue = job.spec.queue
        self.waiting_by_queue[queue] = self.waiting_by_queue.get(queue, 0) + 1
        if job.spec.max_wait_ms:
            self.wait_limited.add(job.id)
        if job.unmet:
            for dependency in job.unmet:
                self.dependants.setdefault(dependency, []).append(job.id)
        else:
            self.becomes_ready(job)

    def becomes_ready(self, job: Job) -> None:
        pending = self.pending.get(job.class_id)
        if pending is None:
            pending = self.pending[job.class_id] = PendingClass(self._keys[job.class_id], [])
        insort(pending.jobs, job.id)

    def job_left_queue(self, job: Job) -> None:
        self.waiting_by_queue[job.spec.queue] -= 1
        self.wait_limited.discard(job.id)
        self.beneficiaries.discard(job.id)
        if job.unmet:
            for dependency in job.unmet:
                self.dependants[dependency].remove(job.id)
            return
        pending = self.pending[job.class_id]
        del pending.jobs[bisect_left(pending.jobs, job.id)]
        if not pending.jobs:
            del self.pending[job.class_id]

    def job_gone(self, job: Job) -> list[JobId]:
        """Forget a finished job; return who was waiting for it, in order."""
        return sorted(self.dependants.pop(job.id, []))

    def attempt_begins(self, job: Job) -> None:
        attempt = job.attempt
        assert attempt is not None
        self.active.add(job.id)
        if attempt.port:
            self.ports.add((attempt.replicas[0].place.node, attempt.port))
        for replica in attempt.replicas:
            if replica.holds:
                self.hold(job, replica)

    def attempt_ends(self, job: Job) -> None:
        attempt = job.attempt
        assert attempt is not None
        self.active.discard(job.id)
        self.stopping.pop(job.id, None)
        self.ports.discard((attempt.replicas[0].place.node, attempt.port))

    def load(self, node: NodeName) -> Load:
        found = self.loads.get(node)
        if found is None:
            found = self.loads[node] = Load(Resources(), {}, set())
        return found

    def hold(self, job: Job, replica: Replica) -> None:
        load = self.load(replica.place.node)
        load.host = load.host + job.spec.ask.each.host
        load.replicas.add((job.id, replica.rank))
        for index in replica.place.devices:
            if index in load.devices:
                raise BrokenInvariant(
                    f"device {index} of {replica.place.node} given to job {job.id}, held by {load.devices[index]}"
                )
            load.devices[index] = job.id

    def release(self, job: Job, replica: Replica) -> None:
        load = self.load(replica.place.node)
        load.host = load.host - job.spec.ask.each.host
        load.replicas.discard((job.id, replica.rank))
        for index in replica.place.devices:
            del load.devices[index]


def class_of(spec: JobSpec) -> RequestClass:
    """Return the request class of a job: everything the scheduler looks at but its age."""
    return RequestClass(spec.queue, spec.tenant, spec.priority, spec.ask)
