"""The history of each job and attempt, from the events alone: one fold for the run report and the export of a trace.

It does not use `State`, so that the two can be compared.
"""

import msgspec
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId, NodeName
from penstock.core.model.jobs import JobState, Outcome


class AttemptHistory(msgspec.Struct):
    """One attempt (unix ms); None: not yet."""

    job_id: JobId
    number: AttemptNumber
    seq: int
    """Of the record that says it was allocated."""
    allocated_ms: int
    nodes: tuple[NodeName, ...]
    to_start: int
    """Replicas that have not started."""
    running_ms: int | None = None
    stops: list[tuple[int, ev.AttemptStopRequested]] = []
    """Orders to leave with their times; a cancel may overtake a preemption."""
    ended_ms: int | None = None
    outcome: Outcome | None = None
    detail: str = ""
    requeued: bool = False
    idle_ms: int = 0
    """How long it was suspended and went on afterwards."""
    suspended_ms: int | None = None
    """Since when it is suspended."""
    resumed: ev.JobResumed | None = None
    saved_step: int | None = None
    """Newest checkpoint of the job when this attempt ended, or now."""

    def asked_to_leave(self) -> tuple[int, str] | None:
        """Return when and why it was last asked to leave; suspensions do not count."""
        asked = [(at_ms, str(stop.reason)) for at_ms, stop in self.stops if stop.reason != "suspended"]
        return asked[-1] if asked else None

    def idle_until_ms(self, until_ms: int) -> int:
        """Return how long it was suspended up to a time."""
        return self.idle_ms + (until_ms - self.suspended_ms if self.suspended_ms is not None else 0)


class JobHistory(msgspec.Struct):
    submitted: ev.JobSubmitted
    submitted_ms: int
    waiting_since_ms: int | None
    waits: list[tuple[int, int]] = []
    """Closed intervals of waiting, [start, end)."""
    attempts: list[AttemptHistory] = []
    saved_step: int | None = None
    saves: bool = False
    """Whether it has saved, or resumed from a checkpoint."""
    state: JobState = "waiting"
    finished: ev.JobFinished | None = None
    finished_ms: int | None = None
    exit: str = ""
    """How the last replica that ended badly ended, else the last one."""

    @property
    def attempt(self) -> AttemptHistory:
        return self.attempts[-1]

    def intervals(self, until_ms: int) -> list[tuple[int, int]]:
        """Return the waiting intervals, the open one ending at `until_ms`."""
        return self.waits if self.waiting_since_ms is None else [*self.waits, (self.waiting_since_ms, until_ms)]

    def take(self, record: ev.Record) -> None:
        """Fold a record of this job."""
        event, now_ms = record.event, record.time_ms
        match event:
            case ev.AttemptAllocated():
                self._stop_waiting(now_ms)
                nodes = tuple(dict.fromkeys(place.node for place in event.places))
                attempt = AttemptHistory(event.job_id, event.attempt, record.seq, now_ms, nodes, len(event.places))
                attempt.saved_step = self.saved_step
                self.attempts.append(attempt)
                self.state = "starting"
            case ev.JobRequeued():
                self.attempt.requeued = True
                self.waiting_since_ms, self.state = now_ms, "waiting"
            case ev.JobFinished():
                self._stop_waiting(now_ms)
                self.finished, self.finished_ms, self.state = event, now_ms, event.state
                if event.exit is not None:
                    self.exit = event.exit.text()
            case ev.JobEdited():
                self.submitted = replace(self.submitted, spec=event.change.of(self.submitted.spec))
            case ev.CheckpointSaved():
                self.saved_step = self.attempt.saved_step = event.step
                self.saves = True
            case ev.ReplicaExited() if not event.exit.ok or not self.exit:
                self.exit = event.exit.text()
            case _:
                self._attempt_event(self.attempt, event, now_ms)

    def _attempt_event(self, attempt: AttemptHistory, event: ev.AnyEvent, now_ms: int) -> None:
        match event:
            case ev.ReplicaStarted():
                attempt.to_start -= 1
                if attempt.to_start == 0:
                    attempt.running_ms = now_ms
                    self.state = "running" if self.state == "starting" else self.state
            case ev.AttemptStopRequested():
                self.state = "stopping"
                attempt.stops.append((now_ms, event))
            case ev.AttemptSuspended():
                self.state, attempt.suspended_ms = "suspended", now_ms
            case ev.AttemptResumed():
                self.state, attempt.idle_ms, attempt.suspended_ms = "running", attempt.idle_until_ms(now_ms), None
            case ev.JobResumed():
                attempt.resumed, self.saves = event, True
            case ev.AttemptEnded():
                attempt.ended_ms, attempt.outcome, attempt.detail = now_ms, event.outcome, event.detail
            case _:
                pass

    def _stop_waiting(self, now_ms: int) -> None:
        if self.waiting_since_ms is not None:
            self.waits.append((self.waiting_since_ms, now_ms))
            self.waiting_since_ms = None


JOB_EVENTS = (
    ev.AttemptAllocated,
    ev.ReplicaStarted,
    ev.ReplicaExited,
    ev.AttemptStopRequested,
    ev.AttemptSuspended,
    ev.AttemptResumed,
    ev.CheckpointSaved,
    ev.JobResumed,
    ev.AttemptEnded,
    ev.JobRequeued,
    ev.JobFinished,
    ev.JobEdited,
)
"""Events that change the history of a job; its submit begins it."""


class History:
    """The histories of all jobs of a log."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobHistory] = {}

    def take(self, record: ev.Record) -> None:
        """Fold the next record."""
        event = record.event
        if isinstance(event, ev.JobSubmitted):
            self.jobs[event.job_id] = JobHistory(event, record.time_ms, record.time_ms)
        elif isinstance(event, JOB_EVENTS):
            self.jobs[event.job_id].take(record)
