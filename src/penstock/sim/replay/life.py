"""Lives of jobs in a replay: their work, the work that is left, and the work that was lost."""

from typing import Literal

import msgspec

from penstock.core.model.ids import AttemptNumber, JobId, UserName
from penstock.core.model.jobs import JobSpec, JobState
from penstock.sim.replay.execution_model import FULL_SPEED_MILLI
from penstock.traces.model import TraceJob, Work


class Life(msgspec.Struct, gc=False):
    """One job, from its submit on (unix ms; 0: not yet)."""

    job_id: JobId
    submitted_ms: int
    spec: JobSpec
    user: UserName
    work: Work
    left_ms: int
    """Work that is left, at the reference's speed."""
    name: str = ""
    started_ms: int = 0
    """Time of its first allocation."""
    ended_ms: int = 0
    state: JobState = "waiting"
    attempts: int = 0
    own_failures: int = 0
    preemptions: int = 0
    losses: int = 0
    """Attempts that ended with a node."""
    held_device_ms: int = 0
    """What its attempts held, in device-milliseconds."""
    wasted_device_ms: int = 0
    """Of that, work that had to be done again."""
    alone_ms: int = 0
    """Active jobs beside it, integrated over its life: the basis of its fair share."""

    @property
    def wait_ms(self) -> int:
        """From submit to the first start; for a job that never started, to its end."""
        return (self.started_ms or self.ended_ms) - self.submitted_ms

    @property
    def completion_ms(self) -> int:
        """From submit to end."""
        return self.ended_ms - self.submitted_ms


class SimulatedRun(msgspec.Struct, gc=False):
    """The attempt that a job has now."""

    number: AttemptNumber
    allocated_ms: int
    device_milli: int
    began_ms: int = 0
    """When work began; 0 before."""
    speed_milli: int = FULL_SPEED_MILLI
    leaving: bool = False
    """It was asked to stop: work from here on counts only if it completes the job."""
    halted: bool = False
    """One of its nodes is gone: it will never end by itself."""
    ends_ms: int = 0
    suspended_ms: int = 0
    """Since when it is frozen; 0 while it works."""

    def done_ms(self, now_ms: int) -> int:
        """Return the work done so far, at the reference's speed."""
        now_ms = self.suspended_ms or now_ms
        return max(0, now_ms - self.began_ms) * self.speed_milli // FULL_SPEED_MILLI if self.began_ms else 0


def born(job_id: JobId, job: TraceJob) -> Life:
    return Life(job_id, job.submit_ms, job.spec, job.user, job.work, job.work.run_ms, job.name)


Happening = Literal[0, 1, 2, 3, 4, 5, 6, 7, 8]
"""Kinds of entries of the agenda, in the order in which those of one moment come."""
ENDED: Happening = 0
LEFT: Happening = 1
STARTED: Happening = 2
GONE: Happening = 3
LOST: Happening = 4
BACK: Happening = 5
CANCELLED: Happening = 6
CHANGED: Happening = 7
TIME: Happening = 8
