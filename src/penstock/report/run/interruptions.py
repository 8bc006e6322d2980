"""Attempts that had to stop early, and how their jobs and the beneficiaries went on."""

from penstock.core.model.ids import JobId
from penstock.core.state.history import AttemptHistory, JobHistory
from penstock.report.run.facts import Facts
from penstock.report.run.model import Interruption, InterruptionKind


def interruptions(facts: Facts) -> tuple[Interruption, ...]:
    """Return every preemption, loss, drain and retried failure, by time."""
    found = []
    for job in facts.jobs.values():
        for index, attempt in enumerate(job.attempts):
            kind = _kind(attempt)
            if kind is not None:
                after = job.attempts[index + 1] if index + 1 < len(job.attempts) else None
                found.append(_interruption(facts, kind, job, attempt, after))
    return tuple(sorted(found, key=lambda i: (i.time_ms, i.job_id, i.attempt)))


def _kind(attempt: AttemptHistory) -> InterruptionKind | None:
    if any(stop.reason == "preempted" for _, stop in attempt.stops):
        return "preempted"
    if attempt.outcome == "lost":
        return "lost"
    if any(stop.reason == "drained" for _, stop in attempt.stops):
        return "drained"
    return "failed" if attempt.outcome == "failed" and attempt.requeued else None


def _interruption(
    facts: Facts, kind: InterruptionKind, job: JobHistory, attempt: AttemptHistory, after: AttemptHistory | None
) -> Interruption:
    asked = next(((t, s) for t, s in attempt.stops if s.reason == kind), None)
    ended_ms = attempt.ended_ms
    failure = facts.failure(attempt) if kind == "lost" else None
    known = (asked[0] if asked else None, failure[0] if failure else None, ended_ms)
    time_ms = next((at_ms for at_ms in known if at_ms is not None), attempt.allocated_ms)
    stop = asked[1] if asked else None
    beneficiary = stop.beneficiary if stop else None
    restarted = after.running_ms if after is not None else None
    return Interruption(
        kind=kind,
        time_ms=time_ms,
        job_id=attempt.job_id,
        attempt=attempt.number,
        detail=attempt.detail,
        beneficiary=beneficiary,
        cost=stop.cost if stop else 0,
        grace_ms=stop.grace_ms if stop else 0,
        noticed_after_ms=failure[1] - failure[0] if failure else None,
        left_after_ms=ended_ms - time_ms if ended_ms is not None else None,
        outcome=attempt.outcome,
        beneficiary_after_ms=_started_after(facts, beneficiary, time_ms),
        restarted_after_ms=restarted - time_ms if restarted is not None else None,
        restarted_on=after.nodes if after is not None else (),
        saved_step=attempt.saved_step,
        resumed_step=after.resumed.step if after is not None and after.resumed else None,
        lost_steps=after.resumed.lost_steps if after is not None and after.resumed else None,
    )


def _started_after(facts: Facts, job_id: JobId | None, time_ms: int) -> int | None:
    """Return how long after `time_ms` all replicas of the job's next attempt had started."""
    job = facts.jobs.get(job_id) if job_id is not None else None
    starts = [a.running_ms for a in job.attempts if a.allocated_ms >= time_ms] if job else []
    return next((start - time_ms for start in starts if start is not None), None)
