"""Dependencies between live jobs, and how the end of a job changes its dependants.

A dependency on an array is one value, a run of jobs. For each run that has dependants the live jobs are counted. So the
end of a job touches dependants only when it is the last of a run, or when it makes it impossible that they ever start.
The waiting members of one array are one entry, by the number of the array: an array of N jobs that waits for one of M
costs N + M.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from penstock.core.model.dependencies import Dependency, DependencyKind, JobRun
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job

EXACT_MAX = 32
"""Up to this many dependencies of a job, ended ones are taken out of `unmet` at once."""
OVER_KEPT = 10_000
"""Runs that are known to have ended as a whole: a forgotten run is counted again."""


class Waiting(msgspec.Struct):
    """Jobs that wait for one run: a job alone, or those of an array; the key of it is the first number."""

    end: int
    """One past the last of them."""
    live: int
    """How many of them live; the others have ended."""


class Awaited(msgspec.Struct):
    """A run of jobs that others depend on."""

    left: int
    """How many of its jobs live."""
    dependants: dict[DependencyKind, dict[JobId, Waiting]]


class Dependants:
    """A cache of the dependencies of waiting jobs. The argument `jobs` is always all live jobs."""

    def __init__(self) -> None:
        self.awaited: dict[JobRun, Awaited] = {}
        self.runs: dict[JobId, set[JobRun]] = {}
        """For each live job that is awaited the runs that it belongs to."""
        self.open: dict[JobId, int] = {}
        """How many runs each waiting job waits for."""
        self._over: set[JobRun] = set()

    def unmet(self, after: Iterable[Dependency], jobs: Collection[JobId]) -> tuple[JobId, ...]:
        """Return the first job of each dependency of which some job lives, ascending."""
        return tuple(sorted({one.job_id for one in after if self.left(one, jobs)}))

    def left(self, one: Dependency, jobs: Collection[JobId]) -> int:
        """Return how many jobs of a dependency live."""
        known = self.awaited.get(one.run)
        if known is not None:
            return known.left
        if one.count == 1:
            return one.job_id in jobs
        if one.run in self._over:
            return 0
        left = sum(job_id in jobs for job_id in one.jobs)
        if not left:
            self._is_over(one.run)
        return left

    def _is_over(self, run: JobRun) -> None:
        if len(self._over) >= OVER_KEPT:
            self._over.clear()
        self._over.add(run)

    def add(self, job: Job, jobs: Collection[JobId]) -> None:
        """Note that `job` waits for those of its dependencies that have not ended; for jobs in ascending order."""
        key = job.id if job.array_id is None else job.array_id
        runs: set[JobRun] = set()
        for one in job.spec.after:
            known = self.awaited.get(one.run)
            if known is None:
                known = self._begin(one, jobs)
            if known is None:
                continue
            runs.add(one.run)
            waiting = known.dependants.setdefault(one.kind, {}).setdefault(key, Waiting(0, 0))
            if waiting.end <= job.id:  # else the same dependency was named twice
                waiting.end, waiting.live = job.id + 1, waiting.live + 1
        self.open[job.id] = len(runs)

    def _begin(self, one: Dependency, jobs: Collection[JobId]) -> Awaited | None:
        left = self.left(one, jobs)
        if not left:
            return None
        for job_id in one.jobs:
            if job_id in jobs:
                self.runs.setdefault(JobId(job_id), set()).add(one.run)
        known = self.awaited[one.run] = Awaited(left, {})
        return known

    def remove(self, job: Job) -> None:
        """Forget a job that ends before its dependencies."""
        del self.open[job.id]
        key = job.id if job.array_id is None else job.array_id
        for run, kind in {(one.run, one.kind) for one in job.spec.after}:
            known = self.awaited.get(run)
            if known is None:
                continue
            waiting = known.dependants[kind][key]
            waiting.live -= 1
            if not waiting.live:
                del known.dependants[kind][key]
            if not known.dependants[kind]:
                del known.dependants[kind]
            if not known.dependants:
                self._forget(run)

    def _forget(self, run: JobRun) -> None:
        del self.awaited[run]
        for job_id in range(run[0], sum(run)):
            runs = self.runs.get(JobId(job_id))
            if runs is not None:
                runs.discard(run)
                if not runs:
                    del self.runs[JobId(job_id)]

    def hopeless(self, job_id: JobId, kinds: Collection[DependencyKind], jobs: Collection[JobId]) -> list[JobId]:
        """Return the jobs whose dependencies of these kinds name the job, ascending."""
        found: set[JobId] = set()
        for run in self.runs.get(job_id, ()):
            for kind, waiting in self.awaited[run].dependants.items():
                if kind in kinds:
                    found.update(_members(waiting, jobs))
        return sorted(found)

    def ended(self, job_id: JobId, jobs: Collection[JobId]) -> list[JobId]:
        """Take note of the end of a job; return the dependants of runs of which it was the last, ascending."""
        if job_id not in self.runs:
            return []  # as nearly always
        found: set[JobId] = set()
        for run in self.runs.pop(job_id):
            known = self.awaited[run]
            known.left -= 1
            if not known.left:
                del self.awaited[run]
                self._is_over(run)
                mine = {one for waiting in known.dependants.values() for one in _members(waiting, jobs)}
                for one in mine:
                    self.open[one] -= 1
                found |= mine
        return sorted(found)

    def unmet_now(self, job: Job, jobs: Collection[JobId], known: dict[int, tuple[JobId, ...]]) -> tuple[JobId, ...]:
        """Return `unmet` of a job after a run that it waited for has ended.

        A long one is computed anew only when it has become half as long: so all of it costs at most twice its length.

        Args:
            known: results computed since that end, by spec.
        """
        left = self.open[job.id]
        if not left:
            del self.open[job.id]
            return ()
        if len(job.unmet) > EXACT_MAX and left * 2 > len(job.unmet):
            return job.unmet
        if id(job.spec) not in known:
            known[id(job.spec)] = self.unmet(job.spec.after, jobs)
        return known[id(job.spec)]

    def waiting_for_last(self, job_id: JobId, jobs: Collection[JobId]) -> list[JobId]:
        """Return the dependants of runs of which this job is the last."""
        last = [run for run in self.runs.get(job_id, ()) if self.awaited[run].left == 1]
        every = (waiting for run in last for waiting in self.awaited[run].dependants.values())
        return sorted({dependant for waiting in every for dependant in _members(waiting, jobs)})

    def each(self, jobs: Collection[JobId]) -> dict[tuple[JobRun, DependencyKind], list[JobId]]:
        """Return all dependants, ascending, by run and kind: for tests and for recounting."""
        return {
            (run, kind): sorted(_members(waiting, jobs))
            for run, known in self.awaited.items()
            for kind, waiting in known.dependants.items()
        }


def _members(waiting: dict[JobId, Waiting], jobs: Collection[JobId]) -> Iterator[JobId]:
    for first, entry in waiting.items():
        for job_id in range(first, entry.end):
            if job_id in jobs:
                yield JobId(job_id)
