"""The events of the log. All state is a fold over them; they are written in the past tense and never changed.

Adding a field needs a default; removing or renaming one is a new event type. Old logs must open for ever.
"""

from typing import Literal

import msgspec

from penstock.core.model.access_events import AccessEvent
from penstock.core.model.access_events import AccessNoted as AccessNoted
from penstock.core.model.access_events import NotificationRemoved as NotificationRemoved
from penstock.core.model.access_events import NotificationSet as NotificationSet
from penstock.core.model.access_events import SecretRemoved as SecretRemoved
from penstock.core.model.access_events import SecretSet as SecretSet
from penstock.core.model.access_events import TokenIssued as TokenIssued
from penstock.core.model.access_events import TokenRevoked as TokenRevoked
from penstock.core.model.batching import BatchChoice
from penstock.core.model.checkpoint_events import CheckpointAbandoned as CheckpointAbandoned
from penstock.core.model.checkpoint_events import CheckpointSaved as CheckpointSaved
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.event import Event as Event
from penstock.core.model.gang import Pairing
from penstock.core.model.ids import AttemptNumber, Epoch, JobId, Rank, UserName
from penstock.core.model.jobs import ExitInfo, JobSpec, JobState, Outcome, ReplicaPlace, Room, Scheduled, StopReason
from penstock.core.model.money_events import CreditAdded as CreditAdded
from penstock.core.model.money_events import CreditExpired as CreditExpired
from penstock.core.model.money_events import InvoiceIssued as InvoiceIssued
from penstock.core.model.money_events import InvoicePaid as InvoicePaid
from penstock.core.model.money_events import MoneyReversed as MoneyReversed
from penstock.core.model.money_events import SpendingNoted as SpendingNoted
from penstock.core.model.money_events import TenantHeld as TenantHeld
from penstock.core.model.money_events import TenantReleased as TenantReleased
from penstock.core.model.money_events import UsagePosted as UsagePosted
from penstock.core.model.node_events import DeviceCleared as DeviceCleared
from penstock.core.model.node_events import DeviceClosed as DeviceClosed
from penstock.core.model.node_events import DeviceOpened as DeviceOpened
from penstock.core.model.node_events import HostLoadNoted as HostLoadNoted
from penstock.core.model.node_events import InstancesChanged as InstancesChanged
from penstock.core.model.node_events import NodeChecked as NodeChecked
from penstock.core.model.node_events import NodeDrainChanged as NodeDrainChanged
from penstock.core.model.node_events import NodeLeaveNoted as NodeLeaveNoted
from penstock.core.model.node_events import NodeLost as NodeLost
from penstock.core.model.node_events import NodeReady as NodeReady
from penstock.core.model.node_events import NodeRegistered as NodeRegistered
from penstock.core.model.node_events import NodeRemoved as NodeRemoved
from penstock.core.model.node_events import NodeShut as NodeShut
from penstock.core.model.node_events import NodeStruck as NodeStruck
from penstock.core.model.node_events import OthersLoadChanged as OthersLoadChanged
from penstock.core.model.pairing import DeviceShared as DeviceShared
from penstock.core.model.pairing import DeviceShareEnded as DeviceShareEnded
from penstock.core.model.progress import Gauges
from penstock.core.model.schedule_events import ScheduleEvent as ScheduleEvent
from penstock.core.model.schedule_events import ScheduleFired as ScheduleFired
from penstock.core.model.schedule_events import SchedulePaused as SchedulePaused
from penstock.core.model.schedule_events import ScheduleRemoved as ScheduleRemoved
from penstock.core.model.schedule_events import ScheduleResumed as ScheduleResumed
from penstock.core.model.schedule_events import ScheduleSet as ScheduleSet
from penstock.core.model.user_events import JobCancelRequested as JobCancelRequested
from penstock.core.model.user_events import JobEdited as JobEdited
from penstock.core.model.user_events import JobHeld as JobHeld
from penstock.core.model.user_events import JobProtected as JobProtected
from penstock.core.model.user_events import JobReleased as JobReleased
from penstock.core.model.user_events import JobRequeueRequested as JobRequeueRequested


class LeaderElected(Event, tag=True, frozen=True, omit_defaults=True):
    """A controller began its term; leases are granted anew from here. A `shadow` watches other schedulers."""

    epoch: Epoch
    server: str
    version: str = ""
    """Version of the program that decides from here on."""
    cluster: str = ""
    """Identity of the cluster, the same for all terms of a log: from here on, folders of jobs are marked with it."""
    shadow: bool = False


class ConfigChanged(Event, tag=True, frozen=True, omit_defaults=True):
    """What is declared was replaced, as a whole: at the first start, by `apply`, or by an object of the cluster."""

    config: ClusterConfig
    by: UserName


class JobSubmitted(Event, tag=True, frozen=True, omit_defaults=True):
    """A request was accepted; a job of an array has an event of its own."""

    job_id: JobId
    spec: JobSpec
    user: UserName
    array_id: JobId | None = None
    array_index: int = 0
    idempotency_key: str = ""
    digest: str = ""
    """Digest of the request, to distinguish a repeated request from another one under the same key."""
    batch: int = 1
    """How many jobs, from this one on, the request created."""
    account: str = ""
    """The machine account under which its programs run; empty: that of the agents."""
    delegated: bool = False
    """Submitted with a token that another user issued for the user: it gets none of the user's own secrets."""
    scheduled: Scheduled | None = None
    """The run of a schedule that it belongs to; None: a user submitted it."""


class RunTimesPredicted(Event, tag=True, frozen=True, omit_defaults=True):
    """Predicted run times of attempts of these live jobs."""

    times: tuple[tuple[JobId, int, int], ...]
    """Job, expected length, length hardly exceeded (ms)."""


class CapacityRequested(Event, tag=True, frozen=True, omit_defaults=True):
    """The provider of nodes was asked for more."""

    job_ids: tuple[JobId, ...]
    """Jobs that wait for it, the first of each shape."""
    jobs: int
    accepted: bool
    answer: str = ""


class StartsEstimated(Event, tag=True, frozen=True, omit_defaults=True):
    """Published estimates of when these waiting jobs start; no decision depends on them."""

    made_ms: int
    """The state of this time was played on (unix ms)."""
    estimates: tuple[StartEstimate, ...]


class AttemptAllocated(Event, tag=True, frozen=True, omit_defaults=True):
    """The places are held until each replica is gone: by a plan, or another `scheduler` with its `names` of them."""

    job_id: JobId
    attempt: AttemptNumber
    places: tuple[ReplicaPlace, ...]
    port: int = 0
    rule: str = "best_fit"
    waited_ms: int = 0
    choice: int = 0
    basis: int = 0
    """The last record that the plan knew; 0 in logs of former versions."""
    decided_ms: int = 0
    """The time used by the plan (unix ms): with `basis`, all that it depended on."""
    scheduler: str = ""
    names: tuple[str, ...] = ()
    pairing: Pairing | None = None
    """It joins another job on its device and holds half of it; None: it has its places as it asked for them."""
    ports: tuple[int, ...] = ()
    """Named ports of the replicas, by rank, each in the order of the job's names; 0: its node had none left."""
    batch: BatchChoice | None = None
    """The batch that it is to run with; None: its program chooses."""


class BatchChosen(Event, tag=True, frozen=True, omit_defaults=True):
    """A running attempt is to go on with another batch, where it is."""

    job_id: JobId
    attempt: AttemptNumber
    batch: BatchChoice
    basis: int = 0
    """The last record that the plan knew."""
    decided_ms: int = 0
    """The time the plan went by (unix ms)."""


class ReplicaStarted(Event, tag=True, frozen=True, omit_defaults=True):
    """The node's agent started a replica's program."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank
    pid: int = 0


class ReplicaExited(Event, tag=True, frozen=True, omit_defaults=True):
    """A replica ended and no process of it is left."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank
    exit: ExitInfo


class AttemptStopRequested(Event, tag=True, frozen=True, omit_defaults=True):
    """The replicas are asked to save and leave, and are ended after the grace."""

    job_id: JobId
    attempt: AttemptNumber
    reason: StopReason
    grace_ms: int
    beneficiary: JobId | None = None
    cost: int = 0
    """Cost of this victim as the plan weighed it, in device-milliseconds."""
    rule: str = ""
    """What gave the right to ask for it: `lower_priority`, `reclaim`, `shrink`, `grow`, `rebalance`, `defrag`,
    `less_service`."""
    basis: int = 0
    """The last record that the plan knew; 0 where no plan asked for it."""
    decided_ms: int = 0
    """The time the plan went by (unix ms)."""
    room: tuple[ReplicaPlace, ...] = ()
    """Where the beneficiary is to start; in the first order of a plan for it."""
    rooms: tuple[Room, ...] = ()
    """Where jobs of a re-allocation are to start once it has left: itself, unless it is to wait, and others."""


class ReplicaFrozen(Event, tag=True, frozen=True, omit_defaults=True):
    """The processes of a replica get no processor time any more; they keep their memory."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank


class AttemptSuspended(Event, tag=True, frozen=True, omit_defaults=True):
    """All replicas are frozen: their CPUs are others' from now on."""

    job_id: JobId
    attempt: AttemptNumber


class AttemptResumed(Event, tag=True, frozen=True, omit_defaults=True):
    """A suspended attempt has its CPUs again, where it was, and runs."""

    job_id: JobId
    attempt: AttemptNumber
    basis: int = 0
    """The last record that the plan knew."""
    decided_ms: int = 0
    """The time the plan went by (unix ms)."""


class JobResumed(Event, tag=True, frozen=True, omit_defaults=True):
    """The program reported the step at which it resumed; `lost_steps` were done beyond that step before."""

    job_id: JobId
    attempt: AttemptNumber
    step: int
    lost_steps: int = 0


class ProgressNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """Metrics of a running program, noted after a significant change or after a while."""

    job_id: JobId
    attempt: AttemptNumber
    step: int
    gauges: Gauges


class HangFound(Event, tag=True, frozen=True, omit_defaults=True):
    """A running program makes no step, and this is why."""

    job_id: JobId
    attempt: AttemptNumber
    step: int
    ranks: tuple[Rank, ...]
    """The culprits; empty where none can be named."""
    text: str
    idle_ms: int = 0
    """Since its last step, when it was found."""


class IdleNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """An attempt has been idle for as long as its queue allows. Said once, until it works again."""

    job_id: JobId
    attempt: AttemptNumber
    cause: str
    """`data`: it waits for data; `hang`: it makes no step; `unused`: its devices do nothing, as measured."""
    idle_ms: int
    """For how long, when it was said."""
    text: str = ""
    reclaim: bool = False
    """From now on it may be preempted for a waiting job that fits there."""


class UseNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """What the nodes of an attempt measured of its devices lately."""

    job_id: JobId
    attempt: AttemptNumber
    covered_ms: int
    """Of the time until this record, as much as was measured."""
    busy_milli: int
    """Part of it in which its devices computed, on average over them."""
    untouched: int = 0
    """Devices that its programs have never used so far."""
    memory_peak_bytes: int = 0
    """The most device memory that its programs have held so far; 0 where that is not known."""
    steps: int = 0
    """Steps of which the time is known that it made in this time."""
    step_us: int = 0
    """How long one of them took, on average; 0 where that is not known."""


class SaveSignalNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """A running program said which signal makes it save a checkpoint and carry on; empty: none any more."""

    job_id: JobId
    attempt: AttemptNumber
    signal: str


class AttemptEnded(Event, tag=True, frozen=True, omit_defaults=True):
    """All replicas of the attempt are gone; what it held is free."""

    job_id: JobId
    attempt: AttemptNumber
    outcome: Outcome
    detail: str = ""
    step: int = 0
    idle_ms: int = 0
    """For how long it was suspended; 0 in logs of former versions."""


class JobRequeued(Event, tag=True, frozen=True, omit_defaults=True):
    """The job waits again: what its attempt ended with is no end of the job."""

    job_id: JobId
    reason: Outcome
    not_before_ms: int = 0
    counts_as_retry: bool = False


class JobFinished(Event, tag=True, frozen=True, omit_defaults=True):
    """The job is over for good."""

    job_id: JobId
    state: JobState
    reason: str = ""
    exit: ExitInfo | None = None


class QuotaNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """The use of a maximum of a queue (or `tenant:NAME`) has reached a percentage; amounts as quotas count them."""

    holder: str
    resource: str
    percent: int
    used: int
    limit: int
    text: str


AnyEvent = (
    LeaderElected
    | ConfigChanged
    | NodeRegistered
    | NodeReady
    | NodeLost
    | NodeRemoved
    | NodeDrainChanged
    | NodeStruck
    | OthersLoadChanged
    | NodeLeaveNoted
    | HostLoadNoted
    | NodeShut
    | NodeChecked
    | DeviceClosed
    | DeviceCleared
    | DeviceOpened
    | InstancesChanged
    | JobSubmitted
    | RunTimesPredicted
    | StartsEstimated
    | CapacityRequested
    | JobCancelRequested
    | JobHeld
    | JobReleased
    | JobProtected
    | JobRequeueRequested
    | JobEdited
    | AttemptAllocated
    | BatchChosen
    | ReplicaStarted
    | ReplicaExited
    | AttemptStopRequested
    | DeviceShared
    | DeviceShareEnded
    | ReplicaFrozen
    | AttemptSuspended
    | AttemptResumed
    | CheckpointSaved
    | CheckpointAbandoned
    | JobResumed
    | ProgressNoted
    | HangFound
    | IdleNoted
    | SaveSignalNoted
    | UseNoted
    | AttemptEnded
    | JobRequeued
    | JobFinished
    | CreditAdded
    | CreditExpired
    | UsagePosted
    | InvoiceIssued
    | InvoicePaid
    | MoneyReversed
    | TenantHeld
    | TenantReleased
    | SpendingNoted
    | QuotaNoted
    | AccessEvent
    | ScheduleEvent
)


class Record(msgspec.Struct, frozen=True):
    """One line of the log: `seq` counts from 1 without gaps, `time_ms` (unix) never goes back."""

    seq: int
    time_ms: int
    event: AnyEvent


EventSource = Literal["client", "node", "cycle", "timer", "server"]


MoneyEvent = (
    CreditAdded
    | CreditExpired
    | UsagePosted
    | InvoiceIssued
    | InvoicePaid
    | MoneyReversed
    | TenantHeld
    | TenantReleased
    | SpendingNoted
)
