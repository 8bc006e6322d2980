"""Lives of jobs in a replay: their work, the work that is left, and the work that was done again."""

from typing import Literal

import msgspec

from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import AttemptNumber, JobId, UserName
from penstock.core.model.jobs import ExitInfo, Job, JobSpec, JobState, Replica
from penstock.sim.replay.execution_model import FULL_SPEED
from penstock.traces.model import TraceJob, Work


class ReplayStuck(PenstockError):
    """Time did not move on: decisions and what follows from them go round in circles."""

    code = "replay_stuck"


SAVED, DONE = ExitInfo(0, stop_sent=True), ExitInfo(0)
FAILED, KILLED = ExitInfo(1), ExitInfo(signal=15, stop_sent=True)


class Life(msgspec.Struct, gc=False):
    """One job, from its submit on (unix ms; 0: not yet)."""

    job_id: JobId
    submitted_ms: int
    spec: JobSpec
    user: UserName
    work: Work
    left_ms: int
    """Work that is left from the last save on, at the reference's speed."""
    name: str = ""
    started_ms: int = 0
    """Time of its first allocation."""
    ended_ms: int = 0
    state: JobState = "waiting"
    attempts: int = 0
    own_failures: int = 0
    steps: int = 0
    """Updates of a training program that are saved."""
    preemptions: int = 0
    losses: int = 0
    """Attempts that ended with a node."""
    held_device_ms: int = 0
    """What its attempts held, in device-milliseconds."""
    redone_device_ms: int = 0
    """Of that, time in which an attempt did work that an earlier one had done and not saved. Neither unsaved work that
    nobody does again nor the time to start, save and restore is in it."""
    unsaved_ms: int = 0
    """Work beyond the last save that an attempt did already: the next one does it again, as far as it gets."""
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

    def take(self, run: "SimulatedRun") -> None:
        """Count the work of an attempt that is over. What it did again counts at its own speed, on its own devices."""
        again_ms = min(run.work_ms, self.unsaved_ms)
        self.redone_device_ms += again_ms * FULL_SPEED // run.speed * run.device_milli // 1000
        self.unsaved_ms = max(self.unsaved_ms, run.work_ms) - run.saved_ms
        if not run.by_itself:  # the lengths of attempts that failed by themselves are no part of the job's work
            self.left_ms -= run.saved_ms


class SimulatedRun(msgspec.Struct, gc=False):
    """The attempt that a job has now."""

    number: AttemptNumber
    allocated_ms: int
    device_milli: int
    began_ms: int = 0
    """When work began; 0 before."""
    speed: int = FULL_SPEED
    leaving: bool = False
    """It was asked to stop: work from here on counts only if it completes the job."""
    halted: bool = False
    """One of its nodes is gone: it will never end by itself."""
    ends_ms: int = 0
    epoch_ends_ms: int = 0
    """Of a training program, unless it is in its last epoch."""
    suspended_ms: int = 0
    """Since when it is frozen; 0 while it works."""
    stopped_ms: int = 0
    """When its work stopped to count; 0 before."""
    work_ms: int = 0
    """Work that it did, at the reference's speed; known once it has stopped."""
    saved_ms: int = 0
    """Of that, the part that is saved."""
    carried_ms: int = 0
    """Work that it did before its speed changed."""
    held_since_ms: int = 0
    """Since when it holds what it holds now."""
    held_ms: int = 0
    """What it held before, in device-milliseconds."""
    by_itself: bool = False
    """It ended by itself."""

    def stop(self, life: Life, now_ms: int, *, cut_off: bool, most_ms: int | None = None) -> None:
        """Note the work done until now, or until it was stopped before.

        Args:
            cut_off: nothing is saved at the end: what counts as saved is the last save at an interval.
            most_ms: bound of its work, where that is not what is left of the job's.
        """
        self.stopped_ms = self.stopped_ms or self.suspended_ms or now_ms
        worked_ms = max(0, self.stopped_ms - self.began_ms) if self.began_ms else 0
        interval_ms = life.spec.checkpoint.interval_ms
        saved_ms = worked_ms - worked_ms % interval_ms if cut_off and interval_ms else worked_ms
        done_ms = self.carried_ms + self._work(worked_ms)
        self.work_ms = min(done_ms, life.left_ms if most_ms is None else most_ms)
        saved_ms = self.carried_ms + self._work(saved_ms)  # a change of speed counts as a save
        self.saved_ms = min(saved_ms, self.work_ms) if life.work.saves else 0

    def change_speed(self, speed: int, from_ms: int) -> None:
        """Go on at another speed; its end moves."""
        left_ms = self._work(max(0, self.ends_ms - from_ms))
        self.carried_ms += self._work(from_ms - self.began_ms)
        self.began_ms, self.speed = from_ms, speed
        self.ends_ms = from_ms - (-left_ms * FULL_SPEED // speed)

    def done_ms(self, now_ms: int) -> int:
        """Return the work that it has done by now."""
        until_ms = self.stopped_ms or self.suspended_ms or now_ms
        return self.carried_ms + (self._work(max(0, until_ms - self.began_ms)) if self.began_ms else 0)

    def _work(self, worked_ms: int) -> int:
        return worked_ms * self.speed // FULL_SPEED


def born(job_id: JobId, job: TraceJob) -> Life:
    return Life(job_id, job.submit_ms, job.spec, job.user, job.work, job.work.run_ms, job.name)


def replicas_of(job: Job) -> tuple[Replica, ...]:
    assert job.attempt is not None
    return job.attempt.replicas


Happening = Literal[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
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
MEASURED: Happening = 9
EPOCH: Happening = 10
REPORTED: Happening = 11
NOTED: Happening = 12
