"""What follows when replicas end: stop the rest of the gang, settle the attempt, requeue or finish the job."""

from collections.abc import Iterable, Mapping

from penstock.core.lifecycle.sharing import give_back, join
from penstock.core.lifecycle.suspending import suspend_when_frozen
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import AttemptEnded, AttemptStopRequested, JobFinished, JobHeld, JobRequeued
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import (
    Attempt,
    Dependency,
    DependencyKind,
    ExitInfo,
    Job,
    JobState,
    Outcome,
    StopReason,
)

_NEVER_MET_AFTER: dict[bool, tuple[DependencyKind, ...]] = {True: ("after_failed",), False: ("after_ok",)}
"""Kinds of dependency that can never be met after a job succeeded, and after it ended otherwise."""
SURVIVORS_GRACE_MIN_MS = 10_000
"""A stuck program saves from beside its main thread, which gets up to 5 s to come to a border first."""
_STOP_OUTCOME: dict[StopReason, Outcome] = {
    "preempted": "preempted",
    "cancelled": "cancelled",
    "time_limit": "time_limit",
    "drained": "drained",
    "held": "held",
    "node_lost": "lost",
    "replica_failed": "failed",
    "resized": "resized",
    "moved": "moved",
    "hung": "hung",
    "requeued": "requeued",
    "device_failed": "lost",
}
_SAID_WHY: tuple[StopReason, ...] = ("hung", "device_failed")
"""Stops whose rule is a sentence for people."""


def after_replica_gone(tx: Transaction, job_id: JobId) -> None:
    """Decide what follows once a replica of the job's attempt has exited or was lost."""
    job = tx.state.jobs[job_id]
    attempt = job.attempt
    assert attempt is not None
    if attempt.scheduler:
        seen_end(tx, job, attempt)
        return
    if any(r.holds for r in attempt.replicas):
        suspending = attempt.stop is not None and attempt.stop.reason == "suspended"
        if attempt.stop is None or suspending:
            _stop_rest(tx, job, attempt)
        if suspending:
            suspend_when_frozen(tx, job_id)
        return
    outcome, detail = outcome_of(attempt)
    step = tx.reached.get(job_id, job.progress.step)
    idle_ms = tx.now_ms - attempt.allocated_ms - attempt.held_ms(tx.now_ms)
    tx.emit(AttemptEnded(job.id, attempt.number, outcome, detail, step, max(0, idle_ms)))
    give_back(tx, job, attempt)
    settle(tx, tx.state.jobs[job_id], outcome, detail)
    if outcome == "moved":
        join(tx, job_id, attempt)
    if outcome == "requeued" and attempt.requeue_hold and job_id in tx.state.jobs:
        tx.emit(JobHeld(job_id, attempt.requeue_by))


def seen_end(tx: Transaction, job: Job, attempt: Attempt) -> None:
    """Note the end of an attempt of another scheduler, once all its replicas are gone.

    What was made to leave waits again: whether anything comes after it, its owner decides.
    """
    if any(r.holds for r in attempt.replicas):
        return
    outcome, detail = outcome_of(attempt)
    if outcome == "failed" and any(r.exit is not None and r.exit.stop_sent for r in attempt.replicas):
        outcome = "requeued"
    idle_ms = tx.now_ms - attempt.allocated_ms - attempt.held_ms(tx.now_ms)
    tx.emit(AttemptEnded(job.id, attempt.number, outcome, detail, job.progress.step, max(0, idle_ms)))
    if outcome in ("succeeded", "failed"):
        finish(tx, tx.state.jobs[job.id], outcome, detail)
    elif job.cancel_requested:
        finish(tx, tx.state.jobs[job.id], "cancelled", _why_cancelled(attempt))
    else:
        tx.emit(JobRequeued(job.id, outcome))


def _why_cancelled(attempt: Attempt) -> str:
    """Return what is said of the end of an attempt that another scheduler was asked to end."""
    said = next((r.exit.problem for r in attempt.replicas if r.exit is not None and r.exit.stop_sent), "")
    if attempt.scheduler == "slurm":
        return said or "cancelled in Slurm"
    return "its pods were deleted"


def _stop_rest(tx: Transaction, job: Job, attempt: Attempt) -> None:
    gone = [r for r in attempt.replicas if r.exit is not None and not _finished(r.exit)]
    if not gone:
        return
    lost = any(r.exit and r.exit.problem for r in gone)
    reason: StopReason = "node_lost" if lost else "replica_failed"
    tx.emit(AttemptStopRequested(job.id, attempt.number, reason, survivors_grace_ms(job, tx.now_ms)))


def survivors_grace_ms(job: Job, now_ms: int) -> int:
    """Return how long the survivors of a broken attempt may take to save: as long as the work that a save would spare.

    Whether the survivors can save at all is not known: many programs hang in a collective until they are killed. To
    wait as long as doing the work again takes costs at most twice what the better choice would (ski rental: Karlin,
    Manasse, Rudolph, Sleator 1988). Never more than the job's grace, nor less than `SURVIVORS_GRACE_MIN_MS`.
    """
    attempt = job.attempt
    assert attempt is not None
    spared_ms = attempt.unsaved_ms(job.progress.checkpoint_ms, now_ms)
    return min(job.spec.grace_ms, max(spared_ms, SURVIVORS_GRACE_MIN_MS))


def _finished(info: ExitInfo) -> bool:
    """Whether the replica did all its work: exit 0 after a stop was asked means saved, not finished."""
    return info.done or (info.code == 0 and not info.stop_sent)


def outcome_of(attempt: Attempt) -> tuple[Outcome, str]:
    """Return how an attempt without living replicas ended, and a short detail for people.

    A job that finished all its work succeeded, even when it was asked to stop. A node's fault outweighs the
    failures it causes in the rest of the gang.
    """
    exits = [(r.rank, r.exit or ExitInfo(problem="unknown")) for r in attempt.replicas]
    if all(_finished(e) for _, e in exits):
        return "succeeded", ""
    exits.sort(key=lambda one: attempt.replicas[one[0]].ended_ms)  # the first to exit took the others along
    blamed = next(((rank, e) for rank, e in exits if e.problem and not e.stop_sent), None)
    stopped = attempt.stop is not None and attempt.stop.reason not in ("replica_failed", "node_lost", "suspended")
    if blamed is not None and not stopped:
        return "lost", blamed[1].problem
    if attempt.stop is not None and stopped:
        return _STOP_OUTCOME[attempt.stop.reason], attempt.stop.rule if attempt.stop.reason in _SAID_WHY else ""
    failed = [(rank, e) for rank, e in exits if not _finished(e)]
    first = next(((rank, e) for rank, e in failed if not e.stop_sent), failed[0])
    where = f"replica {first[0]}: " if len(exits) > 1 else ""
    return "failed", where + first[1].text()


def settle(tx: Transaction, job: Job, outcome: Outcome, detail: str) -> None:
    """Requeue or finish a job whose attempt has ended with `outcome`."""
    settings = tx.state.config.settings
    if outcome == "succeeded":
        finish(tx, job, "succeeded", "")
    elif job.cancel_requested or outcome == "cancelled":
        finish(tx, job, "cancelled", "cancelled on request")
    elif outcome == "time_limit" and job.spec.lease:
        finish(tx, job, "succeeded", "its time was over")
    elif outcome == "time_limit":
        finish(tx, job, "failed", f"time limit of {job.spec.time_limit_ms // 1000} s reached")
    elif outcome in ("failed", "hung") and repeated(job, settings.same_failures_max):
        assert job.failure is not None
        times, step = job.failure.times, job.failure.step
        finish(tx, job, "failed", f"failed {times} times in the same way at step {step}: {detail}")
    elif outcome == "failed":
        if job.retries_used < job.spec.retries_max:
            wait_ms = backoff_ms(job.retries_used, settings.backoff_first_ms, settings.backoff_max_ms)
            tx.emit(JobRequeued(job.id, "failed", tx.now_ms + wait_ms, counts_as_retry=True))
        else:
            finish(tx, job, "failed", detail)
    elif outcome in ("lost", "hung"):
        if job.infrastructure_failures < settings.infrastructure_retries_max:
            wait_ms = backoff_ms(job.infrastructure_failures, 0, settings.backoff_max_ms)
            tx.emit(JobRequeued(job.id, outcome, tx.now_ms + wait_ms))
        else:
            finish(tx, job, "failed", f"gave up after {job.infrastructure_failures} losses: {detail}")
    else:
        tx.emit(JobRequeued(job.id, outcome))


def repeated(job: Job, most: int) -> bool:
    """Return whether the job failed in the same way at the same step so often that another try is of no use.

    A program that reports no steps is left to its retries: its progress is not known.
    """
    return job.failure is not None and 0 < most <= job.failure.times and job.failure.step > 0


def backoff_ms(used: int, first_ms: int, most_ms: int) -> int:
    """Return the wait before the next attempt: doubling from `first_ms`; the first is 0 when `first_ms` is."""
    if first_ms == 0:
        if used == 0:
            return 0
        first_ms, used = 500, used - 1
    return int(min(most_ms, first_ms * 2 ** min(used, 20)))


def finish(tx: Transaction, job: Job, state: JobState, reason: str) -> None:
    """End a job, and cancel the dependants that can never start now."""
    ending: list[tuple[JobId, JobState, str]] = [(job.id, state, reason)]
    while ending:
        job_id, final, why = ending.pop()  # youngest first: a job that waits for it too has ended before its own turn
        kinds = _NEVER_MET_AFTER[final == "succeeded"]
        hopeless = tx.state.indexes.dependants.hopeless(job_id, kinds, tx.state.jobs)
        tx.emit(JobFinished(job_id, final, why, tx.state.jobs[job_id].last_exit))
        for dependant_id in hopeless:
            spec = tx.state.jobs[dependant_id].spec
            ending.append((dependant_id, "cancelled", refused_text(spec.after, {job_id: final})))


def refused_text(after: Iterable[Dependency], ended: Mapping[JobId, JobState]) -> str:
    """Return why a job with these dependencies can never start, or '' where no ended job prevents it."""
    for one in after:
        for job_id in one.jobs if one.count <= len(ended) else sorted(ended):
            state = ended.get(JobId(job_id)) if job_id in one.jobs else None
            if state is not None and not dependency_met(one.kind, state):
                return f"dependency {one.kind} {job_id} cannot be met: job {job_id} {state}"
    return ""


def dependency_met(kind: str, state: JobState) -> bool:
    """Return whether a dependency of `kind` on a job that ended in `state` is satisfied."""
    return kind not in _NEVER_MET_AFTER[state == "succeeded"]
