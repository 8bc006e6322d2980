"""Suspending an attempt: its processes are frozen where they are, keep their memory, and give their CPUs to others.

Theory. It begins like a stop: the attempt is asked to (`stopping`), and no job gets its CPUs before each node has
reported every process there frozen. Then it is `suspended`: it holds its whole allocation but the CPUs. It goes on at
these very places once a plan finds their CPUs free, or is stopped for good: it is thawed, saves and leaves.
"""

from msgspec.structs import replace

from penstock.core.model.ids import Rank
from penstock.core.model.jobs import Attempt, Job, Replica
from penstock.core.state import tables

TOO_LONG, CANNOT_FREEZE = "suspended_too_long", "cannot_freeze"
"""Rule by which an attempt that is or was to be suspended is stopped for good."""


def frozen(job: Job, attempt: Attempt, rank: Rank) -> Job:
    """Return the job after all processes of one replica were frozen."""
    replicas = (*attempt.replicas[:rank], replace(attempt.replicas[rank], frozen=True), *attempt.replicas[rank + 1 :])
    return replace(job, attempt=replace(attempt, replicas=replicas))


def all_frozen(attempt: Attempt) -> bool:
    """Return whether an attempt that is to be suspended has given its CPUs back: all its live replicas are frozen."""
    if attempt.stop is None or attempt.stop.reason != "suspended":
        return False
    living = [replica for replica in attempt.replicas if replica.holds]
    return bool(living) and all(replica.frozen for replica in living)


def suspended(job: Job, attempt: Attempt, now_ms: int) -> Job:
    """Return the job that holds its memory alone."""
    beneficiary = attempt.stop.beneficiary if attempt.stop is not None else None
    attempt = replace(attempt, stop=None, suspended_ms=now_ms, suspended_for=beneficiary)
    return replace(job, state=tables.job_step(job.state, "suspended"), attempt=attempt)


def resumed(job: Job, attempt: Attempt, now_ms: int) -> Job:
    """Return the job that has its CPUs again."""
    idle_ms = attempt.idle_ms + now_ms - attempt.suspended_ms
    replicas = tuple(map(_thawed, attempt.replicas))
    attempt = replace(attempt, replicas=replicas, suspended_ms=0, idle_ms=idle_ms, suspended_for=None)
    return replace(job, state=tables.job_step(job.state, "resumed"), attempt=attempt)


def _thawed(replica: Replica) -> Replica:
    return replace(replica, frozen=False) if replica.frozen else replica
