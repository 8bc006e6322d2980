"""The contents of a report, as values: no HTML, no geometry. Times are unix milliseconds, durations milliseconds."""

from typing import Literal

import msgspec

from penstock.core.model.cluster import NodeState
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.core.model.jobs import JobState, Outcome, StopReason
from penstock.core.model.plan import WaitCode
from penstock.report.text import cut

WaitCause = WaitCode | Literal["dependency", "held", "array_turn", "next_cycle", "not_sampled"]
"""The wait codes of a plan, and: `dependency` (unmet), `held` (by a user), `array_turn`, `next_cycle` (a plan made here
would have started it), `not_sampled` (no plan was made since it began to wait)."""

NAME_CHARS_MAX = 60
SpanKind = Literal["joining", "ready", "lost", "draining"]
InterruptionKind = Literal["preempted", "lost", "drained", "failed"]


class NodeSpan(msgspec.Struct, frozen=True):
    """[start_ms, end_ms) in which a node was in one condition, with the devices and CPU it then declared."""

    kind: SpanKind
    start_ms: int
    end_ms: int
    devices: int
    cpu_milli: int


class NodeRow(msgspec.Struct, frozen=True):
    """A node as it last introduced itself; `lanes` are all device indexes it ever had, ascending."""

    name: NodeName
    pool: str
    model: str
    lanes: tuple[int, ...]
    cpu_milli: int
    virtual: bool
    simulated: bool
    state: NodeState
    spans: tuple[NodeSpan, ...]


class Bar(msgspec.Struct, frozen=True):
    """One replica's hold on a place. `outcome` is None while the attempt has not ended."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank
    node: NodeName
    devices: tuple[int, ...]
    start_ms: int
    end_ms: int
    open: bool
    outcome: Outcome | None = None
    stop_ms: int | None = None
    stop_reason: StopReason | None = None
    beneficiary: JobId | None = None


class WaitPart(msgspec.Struct, frozen=True):
    """How long a job waited for one cause, and the refusals and jobs that caused most of it."""

    cause: WaitCause
    duration_ms: int
    refused: tuple[tuple[str, int], ...] = ()
    blockers: tuple[JobId, ...] = ()


class JobRow(msgspec.Struct, frozen=True):
    """One job over its whole life. `wait_ms` is all time in state `waiting`, requeues included.

    `run_ms` is the time in which all replicas of an attempt were started and the attempt had not ended.
    """

    id: JobId
    name: str
    tenant: str
    user: str
    queue: str
    priority: int
    replicas: int
    devices_each: int
    state: JobState
    submitted_ms: int
    ended_ms: int | None
    wait_ms: int
    run_ms: int
    attempts: int
    preemptions: int
    losses: int
    nodes: tuple[NodeName, ...]
    exit: str
    array_id: JobId | None
    array_index: int
    waits: tuple[WaitPart, ...]
    """In the order of `causes.CAUSES`; durations add up to `wait_ms`."""

    @property
    def label(self) -> str:
        """What the page calls it, unescaped: its name with the array index, or its number."""
        name = cut(self.name or f"job {self.id}", NAME_CHARS_MAX)
        return f"{name}[{self.array_index}]" if self.array_id is not None else name


class Usage(msgspec.Struct):
    """Totals of one tenant; device-milliseconds and CPU-milliseconds (of one whole core), parts as parts."""

    tenant: str
    device_ms: int = 0
    cpu_ms: int = 0
    attempts: int = 0
    jobs: int = 0
    energy_mj: int = 0
    """Of its devices, as measured; replicas that have not ended are not in it."""
    powered_ms: int = 0
    """The device time over which that was measured."""


class Interruption(msgspec.Struct, frozen=True):
    """An attempt that had to stop before its work was done, and how the job went on. None: has not happened.

    `time_ms` is when it was asked to leave, or failed; of a lost node when it was last heard. Durations count from it.
    `lost_steps` are the steps reported beyond the checkpoint from which the program resumed.
    """

    kind: InterruptionKind
    time_ms: int
    job_id: JobId
    attempt: AttemptNumber
    detail: str = ""
    beneficiary: JobId | None = None
    cost: int = 0
    grace_ms: int = 0
    noticed_after_ms: int | None = None
    """How long after it was last heard the server counted the node as lost."""
    left_after_ms: int | None = None
    outcome: Outcome | None = None
    beneficiary_after_ms: int | None = None
    restarted_after_ms: int | None = None
    restarted_on: tuple[NodeName, ...] = ()
    saved_step: int | None = None
    resumed_step: int | None = None
    lost_steps: int | None = None


class UsageStep(msgspec.Struct, frozen=True):
    """Thousandths of devices (or CPUs, see `RunReport.unit`) held and available from `time_ms` on, and jobs waiting."""

    time_ms: int
    held: int
    available: int
    waiting: int


class WaitStats(msgspec.Struct, frozen=True):
    """Over all jobs, also those that still wait; percentiles by nearest rank."""

    mean_ms: int = 0
    p50_ms: int = 0
    p95_ms: int = 0
    max_ms: int = 0
    total_ms: int = 0


class Totals(msgspec.Struct, frozen=True):
    """`held` and `available` are sums over devices; available counts only while a node was ready.

    `held_ready` is the part of `held` on ready nodes: their quotient is the utilisation.
    """

    jobs: int
    by_state: dict[str, int]
    wait: WaitStats
    device_held_ms: int
    device_held_ready_ms: int
    device_available_ms: int
    cpu_held_ms: int
    cpu_held_ready_ms: int
    cpu_available_ms: int
    preemptions: int
    steps_lost_preempted: int
    losses: int
    recoveries: int
    steps_lost_lost: int


class Sampling(msgspec.Struct, frozen=True):
    """Number of moments at which some job waited, and of those for which the reasons were derived."""

    points: int = 0
    planned: int = 0


class RunReport(msgspec.Struct, frozen=True):
    """The contents of the page and `summary.json` for the time from `start_ms` to `until_ms`."""

    start_ms: int
    until_ms: int
    records: int
    nodes: tuple[NodeRow, ...]
    jobs: tuple[JobRow, ...]
    bars: tuple[Bar, ...]
    interruptions: tuple[Interruption, ...]
    tenants: tuple[Usage, ...]
    steps: tuple[UsageStep, ...]
    unit: Literal["devices", "cpus"]
    totals: Totals
    sampling: Sampling
