"""What one planning cycle looks at: an immutable cut of the state, cheap to take while the state moves on."""

import msgspec

from penstock.core.derived import PendingClass
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.order.tree import ClassHeads
from penstock.core.place.free import FreeCluster, free_cluster
from penstock.core.state import State


class Snapshot(msgspec.Struct, frozen=True):
    """The plan's whole input but the time. `cluster` is a scratch copy that one plan may change."""

    seq: int
    config: ClusterConfig
    cluster: FreeCluster
    classes: tuple[ClassHeads, ...]
    running: tuple[Job, ...]
    """Jobs that hold places, by id."""
    stopping: dict[JobId, JobId | None]
    """Jobs being stopped, and for whom."""
    beneficiaries: tuple[Job, ...]
    """Waiting jobs for which others were asked to leave."""


def take_snapshot(state: State) -> Snapshot:
    """Return the cut of `state` that a cycle plans on."""
    most = max(1, state.config.settings.starts_per_cycle_max)
    jobs = state.jobs
    classes = tuple(
        ClassHeads(class_id, pending.key, _heads(state, pending, most), len(pending.jobs))
        for class_id, pending in sorted(state.derived.pending.items())
    )
    return Snapshot(
        seq=state.seq,
        config=state.config,
        cluster=free_cluster(state),
        classes=classes,
        running=tuple(jobs[i] for i in sorted(state.derived.active)),
        stopping=dict(state.derived.stopping),
        beneficiaries=tuple(jobs[i] for i in sorted(state.derived.beneficiaries)),
    )


def _heads(state: State, pending: PendingClass, most: int) -> tuple[Job, ...]:
    """Return the first `most` jobs of a class that may start; those that back off come along but do not count."""
    heads = tuple(state.jobs[i] for i in pending.jobs[:most])
    if len(heads) == len(pending.jobs) or all(job.not_before_ms <= state.time_ms for job in heads):
        return heads
    found: list[Job] = []
    ready = 0
    for job_id in pending.jobs:
        job = state.jobs[job_id]
        found.append(job)
        ready += job.not_before_ms <= state.time_ms
        if ready >= most:
            break
    return tuple(found)
