"""Waiting jobs by their class: what asks for the same is looked at once."""

from bisect import bisect_left

from penstock.core.model.ids import ClassId, JobId, TenantName
from penstock.core.model.jobs import Job, RequestClass


class PendingClass:
    """Jobs of one request class that wait and have no unmet dependency, in submit order (job ids ascending)."""

    __slots__ = ("class_id", "jobs", "key", "shared")

    def __init__(self, class_id: ClassId, key: RequestClass) -> None:
        self.class_id, self.key = class_id, key
        self.jobs: list[Job] = []
        self.shared = False
        """A snapshot holds this list: copy it before it changes."""

    def put(self, job: Job) -> None:
        """Add a job, or replace it by its newer value."""
        jobs = self._own()
        if not jobs or jobs[-1].id < job.id:
            jobs.append(job)
            return
        at = bisect_left(jobs, job.id, key=_id_of)
        if at < len(jobs) and jobs[at].id == job.id:
            jobs[at] = job
        else:
            jobs.insert(at, job)

    def remove(self, job_id: JobId) -> None:
        jobs = self._own()
        del jobs[bisect_left(jobs, job_id, key=_id_of)]

    def _own(self) -> list[Job]:
        if self.shared:
            self.shared = False  # first: another thread may take a cut between these lines
            self.jobs = list(self.jobs)
        return self.jobs


class PendingClasses(dict[ClassId, PendingClass]):
    """A dictionary of pending classes that also knows those of each tenant; only `[]=` and `del` change it.

    All jobs of a class are of one tenant, which its key names.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_tenant: dict[TenantName, dict[ClassId, None]] = {}

    def __setitem__(self, class_id: ClassId, pending: PendingClass) -> None:
        super().__setitem__(class_id, pending)
        self._by_tenant.setdefault(pending.key.tenant, {})[class_id] = None

    def __delitem__(self, class_id: ClassId) -> None:
        tenant = self[class_id].key.tenant
        super().__delitem__(class_id)
        own = self._by_tenant[tenant]
        del own[class_id]
        if not own:
            del self._by_tenant[tenant]

    def by_tenant(self) -> dict[TenantName, set[ClassId]]:
        """Return the classes of each tenant that has any."""
        return {tenant: set(own) for tenant, own in self._by_tenant.items()}

    def of_tenant(self, tenant: TenantName) -> list[ClassId]:
        """Return the classes of a tenant, in any order. Any thread."""
        return list(self._by_tenant.get(tenant, ()))


def _id_of(job: Job) -> JobId:
    return job.id
