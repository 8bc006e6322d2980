"""How well the replay of a cluster's own log agrees with what really happened."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.plan import Plan
from penstock.core.state.history import JobHistory
from penstock.core.state.snapshot import Snapshot
from penstock.sim.replay.execution_model import Physics
from penstock.traces.ownlog import LogTrace


def as_recorded(told: LogTrace) -> Physics:
    """Return the delays of the cluster on which the log was recorded."""
    return Physics(decide_ms=told.decide_ms, start_ms=told.start_ms, save_ms=told.leave_ms, stop_ms=told.leave_ms)


class ComparedStart(NamedTuple):
    """One decision: this attempt of this job (by its place in the log) starts on these nodes."""

    job: int
    attempt: int
    nodes: tuple[NodeName, ...]


class PlanAgreement(msgspec.Struct, frozen=True):
    """How many decisions the replay reproduced; times in milliseconds."""

    decisions: int
    """Starts that really happened."""
    same: int
    """Of these, reproduced by the replay: the same attempt of the same job on the same nodes."""
    in_order: int
    """Length of the common prefix: starts that agree before the first that differs."""
    start_off_ms: int
    """Median distance between the real and the replayed first start of a job."""
    makespan_off: float
    """Relative error of the time from the first submit to the last end."""

    @property
    def exact(self) -> bool:
        return self.in_order == self.decisions


class Decisions:
    """Collects what a replay decides: an `OnPlan`."""

    def __init__(self) -> None:
        self.starts: list[ComparedStart] = []

    def __call__(self, snapshot: Snapshot, plan: Plan, now_ms: int) -> None:
        for start in plan.starts:
            nodes = tuple(dict.fromkeys(place.node for place in start.places))
            self.starts.append(ComparedStart(start.job_id, start.attempt, nodes))


def real_starts(jobs: Mapping[JobId, JobHistory]) -> list[ComparedStart]:
    """Return the starts of the log, in order; jobs are numbered as in the trace."""
    found = []
    for place, job in enumerate(jobs.values(), start=1):
        found += [(a.seq, ComparedStart(place, a.number, a.nodes)) for a in job.attempts]
    return [start for _, start in sorted(found)]


def agreement(
    jobs: Mapping[JobId, JobHistory], replayed: Decisions, first_starts_ms: list[int], ended_ms: int
) -> PlanAgreement:
    """Return how a replay agrees with the log.

    Args:
        first_starts_ms: of each job of the trace in the replay (unix ms, 0 never).
        ended_ms: when the last job of the replay ended.
    """
    real = real_starts(jobs)
    in_order = 0
    for one, other in zip(real, replayed.starts, strict=False):
        if one != other:
            break
        in_order += 1
    off = sorted(
        abs(job.attempts[0].allocated_ms - first_ms)
        for job, first_ms in zip(jobs.values(), first_starts_ms, strict=True)
        if job.attempts and first_ms
    )
    begun_ms = min((job.submitted_ms for job in jobs.values()), default=0)
    last_ms = max((job.finished_ms or 0 for job in jobs.values()), default=0)
    span_ms = last_ms - begun_ms
    return PlanAgreement(
        decisions=len(real),
        same=len(set(real) & set(replayed.starts)),
        in_order=in_order,
        start_off_ms=off[len(off) // 2] if off else 0,
        makespan_off=abs(ended_ms - last_ms) / span_ms if span_ms > 0 else 0.0,
    )
