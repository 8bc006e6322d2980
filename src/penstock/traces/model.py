"""The common form of traces from all sources: nodes, rules and jobs with their work.

A loader maps its source to this and lists in `notes` what it assumed and what it had to leave out. Nothing here knows
how the work is scheduled: that is the simulator's.
"""

from typing import Literal

import msgspec

from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.ids import NodeName, UserName
from penstock.core.model.jobs import JobSpec
from penstock.traces.training import Training

Ending = Literal["succeeded", "failed", "cancelled"]


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """Amount of work, and its speed by device model and size."""

    run_ms: int
    """How long one undisturbed attempt takes in the shape that was asked for, on a device of relative speed 1000."""
    ends: Ending = "succeeded"
    """How it ends by itself; `cancelled`: its owner ended it after `run_ms`."""
    fails_after_ms: tuple[int, ...] = ()
    """Run times of earlier attempts that failed by themselves; for jobs that may be tried again."""
    speeds: tuple[tuple[str, int], ...] = ()
    """Relative speed (thousandths) by device model, for jobs that run on several; a model not named counts 1000."""
    scaling: tuple[tuple[int, int], ...] = ()
    """Of an elastic job: (replicas, speed in thousandths of one replica's), ascending; empty follows Amdahl's law."""
    saves: bool = False
    """It can save: a stop with notice loses no work, a stop without notice the work since the last save."""
    busy_milli: int | None = None
    """Part of the time in which it uses its device, for jobs that may share it; None: not known."""
    device_memory_bytes: int = 0
    """What it needs of its device's memory."""
    beside_milli: int = 1000
    """Its speed beside another job on its device, in thousandths of its speed alone."""
    trains: Training | None = None
    """What it does at any size, placement and batch, as it was measured; `run_ms` is in its reference's time, and
    `scaling` does not count. It reports what a live program would."""


class Seen(msgspec.Struct, frozen=True):
    """Real start and end of a job, where the source has them (unix ms); 0 where it had none."""

    started_ms: int
    ended_ms: int


class TraceJob(msgspec.Struct, frozen=True):
    """One job of a trace."""

    name: str
    """Its id in the source, used in reports. `spec.name` is the name its owner gave it."""
    submit_ms: int
    """Unix ms; traces that have only offsets begin at 0."""
    spec: JobSpec
    user: UserName
    work: Work
    seen: Seen | None = None
    predicted: tuple[int, int] | None = None
    """Expected length and one hardly exceeded (ms), told at the submit to a scheduler that predicts nothing itself."""


class Outage(msgspec.Struct, frozen=True):
    """A node that was gone from `from_ms` until `until_ms` (unix ms; 0: for good), with everything that ran on it."""

    node: NodeName
    from_ms: int
    until_ms: int
    known_ms: int = 0
    """When the scheduler detected it (unix ms); 0: after the delay that the replay sets."""


class CapacityChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's change (unix ms): another configuration, or a node closed or opened for new work."""

    at_ms: int
    config: ClusterConfig | None = None
    drained: NodeName | None = None
    opened: NodeName | None = None


class Trace(msgspec.Struct, frozen=True):
    """A cluster and its workload."""

    name: str
    jobs: tuple[TraceJob, ...]
    """In the order in which they were submitted; equal times keep the order of the source."""
    nodes: tuple[NodeSpec, ...]
    """The cluster of the source, or of its documentation."""
    config: ClusterConfig = ClusterConfig()
    """Queues, tenants and rules, as far as the source has them."""
    outages: tuple[Outage, ...] = ()
    changes: tuple[CapacityChange, ...] = ()
    """In order."""
    notes: tuple[str, ...] = ()
    """Assumptions, omissions and parts that could not be mapped, each with a count: for people to read."""
