"""What is changed of live jobs from outside: holds, requeues, edits and protection, as folds of their events."""

from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job, JobHold, JobSpec
from penstock.core.order.ranks import request_class
from penstock.core.state.indexes import Indexes
from penstock.core.state.live_jobs import LiveJobs

Change = ev.JobHeld | ev.JobReleased | ev.JobProtected | ev.JobRequeueRequested | ev.JobEdited | ev.CheckpointAbandoned


def fold(event: Change, record: ev.Record, jobs: LiveJobs, indexes: Indexes, config: ClusterConfig) -> None:
    """Move the job of an event, and what is derived from it, forward.

    Raises: BrokenInvariant when the job cannot be held or released: that is decided before it reaches the log.
    """
    old = jobs[event.job_id]
    match event:
        case ev.JobHeld():
            if old.state != "waiting" or old.hold is not None:
                raise BrokenInvariant(f"job {old.id} is {old.state} and cannot be held")
            hold = JobHold(event.by, record.time_ms)
            new = replace(old, hold=hold, room_made=False, room=(), goes_on=False)
        case ev.JobReleased():
            if old.attempt is not None and old.attempt.requeue_hold:
                new = replace(old, attempt=replace(old.attempt, requeue_hold=False))
            elif old.hold is not None:
                new = replace(old, hold=None)
                new = replace(new, class_id=indexes.intern(request_class(new, config)))
            else:
                raise BrokenInvariant(f"job {old.id} is not held and cannot be released")
        case ev.CheckpointAbandoned():
            if old.attempt is not None:
                raise BrokenInvariant(f"job {old.id} has an attempt, which may have its checkpoint")
            progress = replace(old.progress, step=0, checkpoint_step=0, checkpoint_ms=0, storage=None)
            new = replace(old, progress=progress)
            new = replace(new, class_id=indexes.intern(request_class(new, config)))
        case ev.JobProtected():
            new = replace(old, protected=event.why)
        case ev.JobRequeueRequested():
            if old.attempt is None or old.attempt.number != event.attempt:
                raise BrokenInvariant(f"job {old.id}: attempt {event.attempt} is not current")
            new = replace(old, attempt=replace(old.attempt, requeue_by=event.by, requeue_hold=event.hold))
        case ev.JobEdited():
            new = replace(old, spec=_shared(old, event.change.of(old.spec), jobs), edited_seq=record.seq)
            if new.attempt is None:  # an attempt keeps the class it was started in
                new = replace(new, class_id=indexes.intern(request_class(new, config)))
    jobs[new.id] = new
    indexes.job_edited(old, new)


def _shared(job: Job, spec: JobSpec, jobs: LiveJobs) -> JobSpec:
    """Return the equal spec of the member before it, where there is one: an array that is edited keeps one spec."""
    before = jobs.get(JobId(job.id - 1)) if job.array_id is not None else None
    return before.spec if before is not None and before.array_id == job.array_id and before.spec == spec else spec
