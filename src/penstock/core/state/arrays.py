"""Turns of the members of arrays that run a few at a time, in the order of their numbers.

A member that has ended gives its turn to the first that waits for one. A member that was preempted, or is held, keeps
its turn: so no more of them are ever ready, started or running than the array allows.
"""

from collections.abc import Iterable

from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job


class ArrayTurns:
    """A cache of `Job.waits_turn`, by array."""

    def __init__(self) -> None:
        self.in_turn: dict[JobId, int] = {}
        """How many live members have their turn."""
        self.waiting: dict[JobId, dict[JobId, None]] = {}
        """Members that wait for their turn, ascending."""

    def rebuild(self, jobs: Iterable[Job]) -> None:
        """Take over the live jobs, ascending."""
        for job in jobs:
            if job.spec.array_parallel and job.array_id is not None:
                self._note(job.array_id, job.id, waits=job.waits_turn)

    def submitted(self, event: JobSubmitted) -> bool:
        """Note a new job, later than all others; return whether it waits for its turn in an array."""
        array_id, parallel = event.array_id, event.spec.array_parallel
        if array_id is None or not parallel:
            return False
        waits = self.in_turn.get(array_id, 0) >= parallel
        self._note(array_id, event.job_id, waits=waits)
        return waits

    def _note(self, array_id: JobId, job_id: JobId, *, waits: bool) -> None:
        if waits:
            self.waiting.setdefault(array_id, {})[job_id] = None
        else:
            self.in_turn[array_id] = self.in_turn.get(array_id, 0) + 1

    def ended(self, array_id: JobId, job_id: JobId, *, waits: bool) -> JobId | None:
        """Note the end of a member; return the member whose turn it is now, or None."""
        waiting = self.waiting.get(array_id, {})
        following = None
        if waits:
            del waiting[job_id]
        else:
            following = next(iter(waiting), None)
            if following is None:
                self.in_turn[array_id] -= 1
                if not self.in_turn[array_id]:
                    del self.in_turn[array_id]
            else:
                del waiting[following]
        if array_id in self.waiting and not waiting:
            del self.waiting[array_id]
        return following
