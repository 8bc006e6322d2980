"""The events of the log. All state is a fold over them; they are written in the past tense and never changed.

Adding a field needs a default; removing or renaming one is a new event type. Old logs must open for ever.
"""

from typing import Literal

import msgspec

from penstock.core.model.access import Token
from penstock.core.model.accounts import CreditKind, SpendingKind
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.ids import AttemptNumber, Epoch, Incarnation, JobId, NodeName, Rank, TenantName, UserName
from penstock.core.model.invoices import Invoice
from penstock.core.model.jobs import ExitInfo, JobSpec, JobState, Outcome, ReplicaPlace, StopReason
from penstock.core.model.progress import Gauges


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all events."""


class LeaderElected(Event, tag=True, frozen=True, omit_defaults=True):
    """A controller began its term; leases are granted anew from here."""

    epoch: Epoch
    server: str
    version: str = ""
    """Of the program that decides from here on."""


class ConfigChanged(Event, tag=True, frozen=True, omit_defaults=True):
    config: ClusterConfig
    by: UserName


class NodeRegistered(Event, tag=True, frozen=True, omit_defaults=True):
    """A node's agent introduced itself. The node gets no work before `NodeReady`."""

    spec: NodeSpec
    incarnation: Incarnation


class NodeReady(Event, tag=True, frozen=True, omit_defaults=True):
    """The node showed that nothing runs there which should not."""

    node: NodeName


class NodeLost(Event, tag=True, frozen=True, omit_defaults=True):
    """The node's lease ran out: by now it has ended its own processes, so its work may start elsewhere."""

    node: NodeName
    reason: str


class NodeDrainChanged(Event, tag=True, frozen=True, omit_defaults=True):
    node: NodeName
    draining: bool
    by: UserName
    reason: str = ""
    evict_at_ms: int = 0
    """Work that still runs there then is asked to move (unix ms); 0: never."""


class NodeStruck(Event, tag=True, frozen=True, omit_defaults=True):
    """Something spoke against a node."""

    node: NodeName
    text: str
    job_id: JobId | None = None


class JobSubmitted(Event, tag=True, frozen=True, omit_defaults=True):
    job_id: JobId
    spec: JobSpec
    user: UserName
    array_id: JobId | None = None
    array_index: int = 0
    idempotency_key: str = ""
    digest: str = ""
    """Digest of the request, to tell a repeated request from another one under the same key."""
    batch: int = 1
    """How many jobs, from this one on, the request created."""


class RunTimesPredicted(Event, tag=True, frozen=True, omit_defaults=True):
    """How long attempts of these live jobs run, as far as is known by now."""

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
    """What was said of when these waiting jobs start; nothing is decided by it."""

    made_ms: int
    """The state of this time was played on (unix ms)."""
    estimates: tuple[StartEstimate, ...]


class JobCancelRequested(Event, tag=True, frozen=True, omit_defaults=True):
    job_id: JobId
    by: UserName
    reason: str = ""


class AttemptAllocated(Event, tag=True, frozen=True, omit_defaults=True):
    """A plan was committed: from here the places are held, until each replica is known to be gone."""

    job_id: JobId
    attempt: AttemptNumber
    places: tuple[ReplicaPlace, ...]
    port: int = 0
    rule: str = "best_fit"
    waited_ms: int = 0
    choice: int = 0
    basis: int = 0
    """The last record that the plan knew; 0 in logs from before this was told."""
    decided_ms: int = 0
    """The time the plan went by (unix ms): with `basis`, all that it depended on."""


class ReplicaStarted(Event, tag=True, frozen=True, omit_defaults=True):
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
    job_id: JobId
    attempt: AttemptNumber
    reason: StopReason
    grace_ms: int
    beneficiary: JobId | None = None
    cost: int = 0
    """Cost of this victim as the plan weighed it, in device-milliseconds."""
    rule: str = ""
    """What gave the right to ask for it: `lower_priority`, `reclaim`, `shrink`, `grow`, `defrag`, `less_service`."""
    basis: int = 0
    """The last record that the plan knew; 0 where no plan asked for it."""
    decided_ms: int = 0
    """The time the plan went by (unix ms)."""


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
    """A suspended attempt has its CPUs again, where it was, and goes on."""

    job_id: JobId
    attempt: AttemptNumber
    basis: int = 0
    """The last record that the plan knew."""
    decided_ms: int = 0
    """The time the plan went by (unix ms)."""


class CheckpointSaved(Event, tag=True, frozen=True, omit_defaults=True):
    job_id: JobId
    attempt: AttemptNumber
    step: int
    size_bytes: int = 0
    why: str = ""


class JobResumed(Event, tag=True, frozen=True, omit_defaults=True):
    """The program said at which step it went on; `lost_steps` is what it had done beyond that before."""

    job_id: JobId
    attempt: AttemptNumber
    step: int
    lost_steps: int = 0


class ProgressNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """How a running program does, when that has changed by enough to count, or after a while."""

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
    """Those to blame; empty where nobody can be named."""
    text: str
    idle_ms: int = 0
    """Since its last step, when it was found."""


class AttemptEnded(Event, tag=True, frozen=True, omit_defaults=True):
    job_id: JobId
    attempt: AttemptNumber
    outcome: Outcome
    detail: str = ""
    step: int = 0


class JobRequeued(Event, tag=True, frozen=True, omit_defaults=True):
    job_id: JobId
    reason: Outcome
    not_before_ms: int = 0
    counts_as_retry: bool = False


class JobFinished(Event, tag=True, frozen=True, omit_defaults=True):
    job_id: JobId
    state: JobState
    reason: str = ""
    exit: ExitInfo | None = None


class CreditAdded(Event, tag=True, frozen=True, omit_defaults=True):
    """A tenant paid in advance, or was granted something. Money in the currency's smallest unit."""

    tenant: TenantName
    reference: str
    """Names it among the tenant's credits: the same one comes only once."""
    amount: int
    kind: CreditKind
    expires_ms: int = 0
    by: UserName = UserName("")
    note: str = ""


class CreditExpired(Event, tag=True, frozen=True, omit_defaults=True):
    """What was left of a credit when its time was over."""

    tenant: TenantName
    reference: str
    amount: int


class UsagePosted(Event, tag=True, frozen=True, omit_defaults=True):
    """What a tenant's use came to since the last posting of this month, up to `until_ms`; negative: given back."""

    tenant: TenantName
    month_ms: int
    """When the month of it began."""
    until_ms: int
    amount: int


class InvoiceIssued(Event, tag=True, frozen=True, omit_defaults=True):
    """An invoice or a credit note, as a whole: what is issued never changes again."""

    invoice: Invoice


class InvoicePaid(Event, tag=True, frozen=True, omit_defaults=True):
    tenant: TenantName
    number: str
    reference: str
    amount: int
    by: UserName = UserName("")


class TenantHeld(Event, tag=True, frozen=True, omit_defaults=True):
    """Nothing of the tenant starts from here on: its credit or a hard budget is used up."""

    tenant: TenantName
    reason: str
    """`balance`, or `budget:NAME`."""
    text: str
    suspend: bool = False
    """What runs saves and leaves, too."""


class TenantReleased(Event, tag=True, frozen=True, omit_defaults=True):
    tenant: TenantName


class SpendingNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """Somebody should know how much a tenant spends. Each is said once."""

    tenant: TenantName
    kind: SpendingKind
    name: str
    """Of the budget, or of the day."""
    period_ms: int
    """When the period began that this is about."""
    percent: int
    text: str


class TokenIssued(Event, tag=True, frozen=True, omit_defaults=True):
    """A token that speaks for a user; its secret was shown once and is known to nobody here."""

    token: Token


class TokenRevoked(Event, tag=True, frozen=True, omit_defaults=True):
    token_id: str
    by: UserName = UserName("")


AnyEvent = (
    LeaderElected
    | ConfigChanged
    | NodeRegistered
    | NodeReady
    | NodeLost
    | NodeDrainChanged
    | NodeStruck
    | JobSubmitted
    | RunTimesPredicted
    | StartsEstimated
    | CapacityRequested
    | JobCancelRequested
    | AttemptAllocated
    | ReplicaStarted
    | ReplicaExited
    | AttemptStopRequested
    | ReplicaFrozen
    | AttemptSuspended
    | AttemptResumed
    | CheckpointSaved
    | JobResumed
    | ProgressNoted
    | HangFound
    | AttemptEnded
    | JobRequeued
    | JobFinished
    | CreditAdded
    | CreditExpired
    | UsagePosted
    | InvoiceIssued
    | InvoicePaid
    | TenantHeld
    | TenantReleased
    | SpendingNoted
    | TokenIssued
    | TokenRevoked
)


class Record(msgspec.Struct, frozen=True):
    """One line of the log: `seq` counts from 1 without gaps, `time_ms` (unix) never goes back."""

    seq: int
    time_ms: int
    event: AnyEvent


EventSource = Literal["client", "node", "cycle", "timer", "server"]
