"""Actions of users on live jobs, one job at a time or thousands: what keeps each from being done, and doing it."""

from typing import assert_never

from penstock.core.lifecycle.asking import no_room
from penstock.core.lifecycle.requests import cancel, may_ask_checkpoint, over_maximum
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.actions import ActionRefusal, JobAction, JobChange
from penstock.core.model.events import AttemptStopRequested, JobEdited, JobHeld, JobReleased, JobRequeueRequested
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import LABELS_MAX, Job, JobSpec
from penstock.core.order.queues import QueueTree
from penstock.core.state.state import State

NO_CHANGE = JobChange()


def why_not(
    state: State,
    job_id: JobId,
    action: JobAction,
    change: JobChange = NO_CHANGE,
    *,
    empty: QueueTree,
    administrator: bool = False,
) -> ActionRefusal | None:
    """Return why an action would leave a job as it is, or None when it would change it.

    Args:
        administrator: who acts administers the cluster: fair shares do not apply.
        empty: the queues without use. Any thread may ask, each with a tree of its own: a tree keeps what it works out.
    """
    job = state.jobs.get(job_id)
    if job is None:
        return "over"
    match action:
        case "cancel":
            return "cancel_requested" if job.cancel_requested else None
        case "save":
            problem = may_ask_checkpoint(state, job_id)
            if problem is None:
                return None
            return "cannot_checkpoint" if problem.code == "cannot_checkpoint" else "not_running"
        case "hold":
            return "held_already" if job.hold is not None else "not_waiting" if job.state != "waiting" else None
        case "release":
            to_be_held = job.attempt is not None and job.attempt.requeue_hold
            return None if job.hold is not None or to_be_held else "not_held"
        case "requeue" | "requeue_hold":
            if job.attempt is not None and job.attempt.leaving:
                return "stopping"
            return "waiting" if job.state == "waiting" else None
        case "edit":
            return _why_not_edited(state, job, change, empty, administrator=administrator)
    assert_never(action)


def _why_not_edited(
    state: State, job: Job, change: JobChange, empty: QueueTree, *, administrator: bool
) -> ActionRefusal | None:
    new = change.of(job.spec)
    if new is job.spec:
        return "same"
    if job.attempt is not None and job.attempt.stop is not None:
        return "stopping"  # the right to stop it was judged by its values
    if job.state != "waiting" and change.of_waiting_only:
        return "fixed_while_running"
    if job.spec.lease and not new.time_limit_ms:
        return "lease_limit"
    if len(new.labels) > max(LABELS_MAX, len(job.spec.labels)):  # one of a former version may have more
        return "too_many_labels"
    if new.queue != job.spec.queue:
        return _why_not_moved(state, job, new, empty, administrator=administrator)
    return None


def _why_not_moved(
    state: State, job: Job, new: JobSpec, empty: QueueTree, *, administrator: bool
) -> ActionRefusal | None:
    """Return why a job cannot wait in the queue of its new spec, by what a submission to it is refused for."""
    queue = empty.rules.get(new.queue)
    if queue is None:
        return "unknown_queue"
    if over_maximum(empty, new, ""):
        return "never_starts"
    full = no_room(state, queue, {new.tenant: 1}, job.user, administrator=administrator)
    if full is None:
        return None
    return "queue_full" if full.code == "queue_full" else "share_used_up"


def act(
    tx: Transaction,
    job_id: JobId,
    action: JobAction,
    by: UserName,
    change: JobChange = NO_CHANGE,
    *,
    administrator: bool = False,
) -> ActionRefusal | None:
    """Do one action to one job; return why it changed nothing, or None when it did."""
    refused = why_not(tx.state, job_id, action, change, empty=tx.state.empty_tree(), administrator=administrator)
    if refused is not None:
        return refused
    match action:
        case "cancel":
            cancel(tx, job_id, by)
        case "hold":
            tx.emit(JobHeld(job_id, by))
        case "release":
            tx.emit(JobReleased(job_id, by))
        case "requeue" | "requeue_hold":
            _requeue(tx, tx.state.jobs[job_id], by, hold=action == "requeue_hold")
        case "edit":
            tx.emit(JobEdited(job_id, change, by))
        case "save":
            pass  # the controller sends the order; only the checkpoint that follows is logged
        case _:
            assert_never(action)
    return None


def _requeue(tx: Transaction, job: Job, by: UserName, *, hold: bool) -> None:
    """Ask the attempt to save and leave within the job's grace; then the job waits again, at no cost of its retries."""
    assert job.attempt is not None
    tx.emit(JobRequeueRequested(job.id, job.attempt.number, by, hold))
    tx.emit(AttemptStopRequested(job.id, job.attempt.number, "requeued", job.spec.grace_ms))
