"""What a planning run decides, as values."""

from typing import Literal, NamedTuple

import msgspec

from penstock.core.model.batching import BatchChoice
from penstock.core.model.expected import ExpectedDemand, Kept
from penstock.core.model.ids import AttemptNumber, ClassId, JobId, QueueName
from penstock.core.model.jobs import GangAsk, ReplicaPlace, Room
from penstock.core.model.objectives import Front
from penstock.core.model.quantities import POWER, split_resource

PreemptionRuleName = Literal[
    "lower_priority", "reclaim", "less_service", "shrink", "grow", "idle", "defrag", "elsewhere", "held_idle",
    "model", "rebalance",
]  # fmt: skip


class QuotaExceeded(NamedTuple):
    """Why a job may not start though it may fit: a maximum of one queue above it, or of its tenant."""

    queue: QueueName
    """Or `tenant:NAME`; the root where it is a pool's limit of power."""
    resource: str
    used: int
    limit: int
    asked: int

    @property
    def code(self) -> "WaitCode":
        return "power_cap" if split_resource(self.resource)[1] == POWER else "quota"

    @property
    def short(self) -> int:
        """How much the limit would have to be raised."""
        return self.used + self.asked - self.limit


WaitCode = Literal[
    "no_fit", "making_room", "kept_back", "quota", "power_cap", "reserve", "admission", "expected_demand",
    "backing_off", "cycle_full",
]  # fmt: skip


class Start(msgspec.Struct, frozen=True):
    job_id: JobId
    attempt: AttemptNumber
    ask: GangAsk
    """The placed shape: the job's ask or one of its alternatives, at the size it starts with."""
    places: tuple[ReplicaPlace, ...]
    waited_ms: int
    choice: int = 0
    """0 for the job's ask, k for its k-th alternative."""
    rule: str = "fragmentation"
    """The strategy by which the nodes were chosen."""
    batch: BatchChoice | None = None
    """The batch that it is to run with; None: its program chooses."""


class BatchChange(msgspec.Struct, frozen=True):
    """A running attempt goes on with another batch."""

    job_id: JobId
    attempt: AttemptNumber
    batch: BatchChoice


class Preemption(msgspec.Struct, frozen=True):
    """An order to one victim to save and leave, for the sake of `beneficiary`, and what gave the right to it."""

    victim: JobId
    attempt: AttemptNumber
    beneficiary: JobId
    cost: int
    rule: PreemptionRuleName = "lower_priority"
    suspend: bool = False
    """Its CPUs make enough room: it is frozen in place and keeps its memory."""
    rooms: tuple[Room, ...] = ()
    """Where jobs of a re-allocation come to stand once it has left; itself, unless it is to wait."""


MAY_GO_ON = ("", "node_draining")
"""Attempts on a draining node stay there until they end: suspended ones may resume, too."""


class Resume(msgspec.Struct, frozen=True):
    """A suspended attempt resumes where it is."""

    job_id: JobId
    attempt: AttemptNumber


class Reserved(msgspec.Struct, frozen=True):
    """Places kept for a job that cannot start yet; `start_ms` is when they are expected to be free, 0 unknown."""

    job_id: JobId
    start_ms: int
    places: tuple[ReplicaPlace, ...]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the jobs of one class wait after this cycle; `first` is the job that was tried."""

    code: WaitCode
    first: JobId
    blocker: JobId | None = None
    """The job whose reservation is in the way."""
    victims: tuple[JobId, ...] = ()
    quota: QuotaExceeded | None = None
    expected: ExpectedDemand | None = None
    """The demand for which the room is kept that is in the way."""


class Plan(msgspec.Struct, frozen=True):
    """What one cycle decided, in the order it decided."""

    seq: int
    """The last record that was known."""
    starts: tuple[Start, ...]
    preemptions: tuple[Preemption, ...]
    verdicts: dict[ClassId, Verdict]
    held: dict[JobId, tuple[ReplicaPlace, ...]]
    """Places kept for jobs whose room is being made."""
    reserved: tuple[Reserved, ...] = ()
    now_ms: int = 0
    """The time used by the cycle (unix ms)."""
    strategy: str = ""
    """How hard the cycle looked, and why, in words with numbers."""
    pause_ms: int = 0
    """For how long the next cycle may wait, so that it decides about more jobs at once."""
    again_ms: int = 0
    """When time alone may change the decisions (unix ms): until then only an event can; 0: only an event."""
    problems: tuple[str, ...] = ()
    """What went wrong without stopping the cycle, such as a third-party policy that failed."""
    front: Front | None = None
    """Comparison of the candidate plans, this one among them; None when there was no choice."""
    resumes: tuple[Resume, ...] = ()
    batches: tuple[BatchChange, ...] = ()
    kept: tuple[Kept, ...] = ()
    """Room that was kept for demand that is expected."""
    dropped: int = 0
    """Decisions that `verify` took out because the state had moved on."""
