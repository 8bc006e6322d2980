"""Decisions about attempts that are being suspended or are: see `core/state/suspension.py` for the theory."""

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import AttemptStopRequested, AttemptSuspended, ReplicaFrozen
from penstock.core.model.ids import JobId, Rank
from penstock.core.model.jobs import Job
from penstock.core.state.suspension import CANNOT_FREEZE, TOO_LONG, all_frozen


def on_frozen(tx: Transaction, job: Job, rank: Rank, suspension: int) -> None:
    """Note that a replica is frozen, where that was asked for; a late report changes nothing."""
    attempt = job.attempt
    assert attempt is not None
    if attempt.stop is None or attempt.stop.reason != "suspended" or attempt.replicas[rank].frozen:
        return
    if suspension != attempt.suspensions:
        return
    tx.emit(ReplicaFrozen(job.id, attempt.number, rank))
    suspend_when_frozen(tx, job.id)


def suspend_when_frozen(tx: Transaction, job_id: JobId) -> None:
    """Give the CPUs of the job's attempt back once nothing of it runs any more."""
    attempt = tx.state.jobs[job_id].attempt
    if attempt is not None and all_frozen(attempt):
        tx.emit(AttemptSuspended(job_id, attempt.number))


def stop_instead(tx: Transaction, job: Job) -> None:
    """Let an attempt that cannot be frozen save and leave instead, for the same beneficiary."""
    attempt = job.attempt
    assert attempt is not None
    stop = attempt.stop
    if stop.reason != "suspended" if stop is not None else not attempt.suspended_ms:
        return
    whom, cost = (stop.beneficiary, stop.cost) if stop is not None else (attempt.suspended_for, 0)
    tx.emit(AttemptStopRequested(job.id, attempt.number, "preempted", job.spec.grace_ms, whom, cost, CANNOT_FREEZE))


def end_long_suspensions(tx: Transaction) -> None:
    """Let attempts suspended too long save and leave: they can go on elsewhere, and other jobs get the memory."""
    most_ms = tx.state.config.settings.suspended_max_ms
    for job_id in sorted(tx.state.indexes.suspended):
        job = tx.state.jobs[job_id]
        attempt = job.attempt
        if attempt is not None and attempt.stop is None and tx.now_ms - attempt.suspended_ms >= most_ms:
            tx.emit(AttemptStopRequested(job_id, attempt.number, "preempted", job.spec.grace_ms, rule=TOO_LONG))
