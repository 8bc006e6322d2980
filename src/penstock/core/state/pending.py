"""Waiting jobs by their class: what asks for the same is looked at once."""

from bisect import bisect_left

from penstock.core.model.ids import ClassId, JobId
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


def _id_of(job: Job) -> JobId:
    return job.id
