"""Jobs: what was asked for (`JobSpec`), and how it stands (`Job`, `Attempt`, `Replica`)."""

from typing import Literal

import msgspec

from penstock.core.model.batching import BatchAsk, BatchChoice
from penstock.core.model.containers import ImageAsk
from penstock.core.model.dependencies import Dependency as Dependency
from penstock.core.model.dependencies import DependencyKind as DependencyKind
from penstock.core.model.dependencies import Input as Input
from penstock.core.model.dependencies import JobDestination, compacted
from penstock.core.model.environments import PythonSpec
from penstock.core.model.exits import ExitInfo as ExitInfo
from penstock.core.model.gang import GangAsk as GangAsk
from penstock.core.model.gang import GroupAsk as GroupAsk
from penstock.core.model.gang import Pairing, PartedFrom, halved
from penstock.core.model.gang import Topology as Topology
from penstock.core.model.gang import TopologyScope as TopologyScope
from penstock.core.model.ids import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    AttemptNumber,
    ClassId,
    Incarnation,
    JobId,
    NodeName,
    QueueName,
    Rank,
    TenantName,
    UserName,
)
from penstock.core.model.measured import Measured, UseMark
from penstock.core.model.progress import Failure as Failure
from penstock.core.model.progress import Progress

JobState = Literal["waiting", "starting", "running", "suspended", "stopping", "succeeded", "failed", "cancelled"]
FINAL_STATES: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})
ReplicaState = Literal["allocated", "started", "exited", "lost"]
StopReason = Literal[
    "preempted", "suspended", "cancelled", "time_limit", "replica_failed", "drained", "held", "node_lost", "resized",
    "moved", "hung", "requeued", "device_failed",
]  # fmt: skip
Outcome = Literal[
    "succeeded", "failed", "preempted", "cancelled", "time_limit", "drained", "held", "lost", "resized", "moved",
    "hung", "requeued",
]  # fmt: skip
OnHang = Literal["restart", "report"]
OnPreempt = Literal["stop", "suspend"]
WorkloadClass = Literal["training", "inference", "data", "api"]
"""What a program is for: how much it gets of CPUs that others want too."""
Runtime = Literal["", "ray"]
"""What the places of a job form before its command runs: nothing, or a Ray cluster of the job's own."""

DEFAULT_HANG_LIMIT_MS = 900_000
LABELS_MAX = 100
PRIORITY_CLASSES: dict[str, int] = {"low": 100, "medium": 500, "high": 1000}


class CheckpointSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the program is asked to save. `request_signal` is empty when it cannot save without stopping."""

    stop_signal: str = "SIGTERM"
    request_signal: str = ""
    interval_ms: int = 600_000
    shared: bool = False
    """Refused at submit where nodes that it may run on do not reach each other's checkpoints."""


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checked job request. Durations in milliseconds; 0 means no limit or not known."""

    command: tuple[str, ...]
    ask: GangAsk
    name: str = ""
    tenant: TenantName = DEFAULT_TENANT
    queue: QueueName = DEFAULT_QUEUE
    priority: int = 500
    preemptible: bool = True
    after: tuple[Dependency, ...] = ()
    time_limit_ms: int = 0
    estimated_duration_ms: int = 0
    grace_ms: int = 30_000
    max_wait_ms: int = 0
    retries_max: int = 0
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    checkpoint: CheckpointSpec = CheckpointSpec()
    labels: tuple[tuple[str, str], ...] = ()
    alternatives: tuple[GangAsk, ...] = ()
    """Other shapes that the job would also accept, in order of preference."""
    on_hang: OnHang = "restart"
    """What follows when a rank hangs: start again from the checkpoint, or only say so."""
    hang_limit_ms: int | None = None
    """Time without a step after which a job hangs that is not certain to be stuck; None: not declared."""
    on_preempt: OnPreempt = "stop"
    """How the job makes room: the program saves and ends, or is frozen in place and keeps its memory."""
    shareable: bool = False
    """The owner lets its devices be shared with another job while both use them little."""
    lease: bool = False
    """It has no command of its own: it holds its allocation until its time is over, for interactive work."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Environment variables whose values are secrets, and the names of the secrets."""
    array_parallel: int = 0
    """How many members of its array may run at a time; 0: all."""
    preempts: bool = True
    """Whether others may be asked to leave for it."""
    notify: tuple[str, ...] = ()
    """Events of it that its user hears of (`core/model/notifications.py`); empty: as they chose for all their jobs."""
    notify_to: tuple[JobDestination, ...] = ()
    """Destinations of its own, besides those of its user."""
    workload_class: WorkloadClass = "training"
    """Its share of CPUs and disks that others on the node want too."""
    snapshot: str = ""
    """The folder that it starts in, as it was when sent: `HOLDER/NAME`, which the server makes of the NAME in the job
    file (`core/model/folder_snapshots.py`)."""
    runtime: Runtime = ""
    """With `ray` the command runs once, at the first place, on a Ray cluster that all places form."""
    object_store_bytes: int = 0
    """Of that cluster, at each place; 0: a part of the memory that the place asks for."""
    ports: tuple[str, ...] = ()
    """Names of ports that each replica gets of its node."""
    image: ImageAsk | None = None
    """What its replicas run in; None: the nodes' own systems."""
    inputs: tuple[Input, ...] = ()
    """What its nodes fetch for it before it starts, ascending by path."""
    python: PythonSpec | None = None
    """The Python environment in which its programs run; None: that of its `env`."""
    setup: tuple[str, ...] = ()
    """Steps for /bin/sh, run once on each node before a program starts."""
    batch: BatchAsk | None = None
    """The batch sizes that it accepts; None: its batch is its own matter."""

    def __post_init__(self) -> None:
        """Keep dependencies compact for every source of a spec: old logs list each job of an array separately."""
        if len(self.after) > 1:
            msgspec.structs.force_setattr(self, "after", compacted(self.after))

    @property
    def adapts(self) -> bool:
        """Whether its size or its batch may be chosen anew."""
        return self.ask.elastic or self.batch is not None

    @property
    def effective_hang_limit_ms(self) -> int:
        return DEFAULT_HANG_LIMIT_MS if self.hang_limit_ms is None else self.hang_limit_ms


class RequestClass(msgspec.Struct, frozen=True, cache_hash=True):
    """All attributes of a job that order, placement and preemption use, except its age."""

    queue: QueueName
    tenant: TenantName
    priority: int
    ask: GangAsk
    alternatives: tuple[GangAsk, ...] = ()
    preemptible: bool = True
    rank: int = 0
    """The rank that the queue's policy gives such jobs: level of attained service, or step of predicted length."""
    length_ms: int = 0
    """How long such a job may take: its limit or its expected run time; 0 when neither is known."""
    preempts: bool = True


class ReplicaPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one replica of a plan goes: a node (in one incarnation) and device indexes there."""

    node: NodeName
    incarnation: Incarnation
    devices: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    """For a MIG profile: the memory slice at which its instance begins."""


class Room(msgspec.Struct, frozen=True):
    """Where a job is to start next, by rank, and with that at which size."""

    job_id: JobId
    places: tuple[ReplicaPlace, ...]


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of the gang. It holds its place until it is `exited` or `lost`."""

    rank: Rank
    place: ReplicaPlace
    state: ReplicaState = "allocated"
    started_ms: int = 0
    ended_ms: int = 0
    exit: ExitInfo | None = None
    frozen: bool = False
    """Its processes get no processor time, and keep their memory."""

    @property
    def holds(self) -> bool:
        return self.state in ("allocated", "started")


class StopOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why and how gently an attempt is being ended."""

    reason: StopReason
    requested_ms: int
    grace_ms: int
    beneficiary: JobId | None = None
    rule: str = ""
    """The rule that gave the right, when the attempt stops for another job."""
    cost: int = 0
    """What this victim cost as the plan weighed it, in device-milliseconds."""
    seq: int = 0
    """The record of the order; 0 in snapshots of former versions."""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One start of a job; its number fences late reports of older attempts."""

    number: AttemptNumber
    allocated_ms: int
    replicas: tuple[Replica, ...]
    port: int = 0
    running_ms: int = 0
    """When the last replica had started; 0 before."""
    stop: StopOrder | None = None
    choice: int = 0
    """Which shape was placed: 0 the job's ask, k its k-th alternative."""
    suspended_ms: int = 0
    """When it released its CPUs (unix ms); 0 while it has them."""
    idle_ms: int = 0
    """Total time of its earlier suspensions."""
    suspended_for: JobId | None = None
    requeue_by: UserName = UserName("")
    """Who asked to stop it and let the job wait again; `requeue_hold`: held."""
    requeue_hold: bool = False
    suspensions: int = 0
    """Number of suspensions so far: separates reports about this one from reports about earlier ones."""
    scheduler: str = ""
    """Another scheduler that placed it; empty: Penstock did."""
    names: tuple[str, ...] = ()
    """What its replicas are called there, by rank."""
    pairing: Pairing | None = None
    """It shares its device with another job, and holds half of it."""
    storage: str | None = None
    """On which storage its first replica saves; None: not known."""
    ports: tuple[int, ...] = ()
    """Of each replica as many as the job names, by rank; 0: its node had none left."""
    batch: BatchChoice | None = None
    """The batch that it is to run with now; None: its program chooses."""
    model: str = ""
    """Model of all its devices; empty: several, or none."""

    @property
    def leaving(self) -> bool:
        """Whether it was ordered to end, not only to be frozen where it is."""
        return self.stop is not None and self.stop.reason != "suspended"

    def held_ms(self, now_ms: int) -> int:
        """Return how long it has held its places, not counting the time in which it was suspended."""
        return max(0, (self.suspended_ms or now_ms) - self.allocated_ms - self.idle_ms)

    def unsaved_ms(self, checkpoint_ms: int, now_ms: int) -> int:
        """Return how much work would be lost with it if its newest checkpoint is of that time (unix ms; 0: none)."""
        worked_ms = self.worked_ms(now_ms)
        saved = checkpoint_ms > self.running_ms
        return min(worked_ms, max(0, (self.suspended_ms or now_ms) - checkpoint_ms)) if saved else worked_ms

    def worked_ms(self, now_ms: int) -> int:
        """Return how long it has run, not counting the time in which it was suspended."""
        until_ms = self.suspended_ms or now_ms
        return max(0, until_ms - self.running_ms - self.idle_ms) if self.running_ms else 0


class JobHold(msgspec.Struct, frozen=True):
    """Held: it does not start until a user releases it."""

    by: UserName
    since_ms: int


class Scheduled(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that a job belongs to: of this schedule of its user, with jobs from `first` on."""

    schedule: str
    due_ms: int
    """The time that the run was due (unix ms)."""
    first: JobId


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """A live job. Finished jobs leave the state and stay queryable in the store."""

    id: JobId
    spec: JobSpec
    user: UserName
    submitted_ms: int
    submit_seq: int
    class_id: ClassId
    state: JobState = "waiting"
    waiting_since_ms: int = 0
    last_attempt: AttemptNumber = AttemptNumber(0)
    attempt: Attempt | None = None
    unmet: tuple[JobId, ...] = ()
    """The first job of each dependency of which not all jobs have ended, ascending; of many, up to half may have."""
    not_before_ms: int = 0
    retries_used: int = 0
    infrastructure_failures: int = 0
    preemptions: int = 0
    cancel_requested: bool = False
    room_made: bool = False
    """Victims were preempted for it and it has not started since: it goes first, so that no other takes the room."""
    room: tuple[ReplicaPlace, ...] = ()
    """Where it was to start then, or is to start again: no other job goes there before it."""
    goes_on: bool = False
    """It was stopped only to resume elsewhere or at another size: it comes right after the beneficiaries."""
    progress: Progress = Progress()
    array_id: JobId | None = None
    array_index: int = 0
    last_exit: ExitInfo | None = None
    first_started_ms: int = 0
    last_nodes: tuple[NodeName, ...] = ()
    served_device_ms: int = 0
    """Service attained in earlier attempts: device-milliseconds, or replica-milliseconds without devices."""
    predicted_ms: int = 0
    """How long an attempt is expected to run, from jobs like it; 0 when nothing is known."""
    predicted_most_ms: int = 0
    """Run time that an attempt hardly exceeds, from jobs like it; 0 when nothing is known."""
    idle_ms: int = 0
    """For how long its last attempt was suspended."""
    failure: Failure | None = None
    account: str = ""
    """The machine account under which its programs run; empty: that of the agents."""
    delegated: bool = False
    """Submitted with a token that another user issued for the user: it gets none of the user's own secrets."""
    hold: JobHold | None = None
    waits_turn: bool = False
    """Its array is at its limit of members that run or have their turn."""
    measured: Measured | None = None
    """What its replicas have used that have ended, of all attempts; None: not measured."""
    use: UseMark = UseMark()
    edited_seq: int = 0
    """The record of its last edit: plans that do not know it decide nothing about the job."""
    protected: str = ""
    """Why its programs must not be disrupted for others, as the engine says; empty: they may be."""
    parted: tuple[PartedFrom, ...] = ()
    """Jobs that shared its device and were parted from it, the last at the end."""
    scheduled: Scheduled | None = None
    """The run of a schedule that it belongs to; None: a user submitted it."""
    changes_ms: tuple[int, ...] = ()
    """When it was last asked to go on elsewhere or at another size (unix ms), at most `CHANGES_MAX`, ascending."""

    @property
    def ready(self) -> bool:
        """Whether nothing but capacity, quotas and time keeps it from starting, while it waits."""
        return not self.unmet and self.hold is None and not self.waits_turn

    @property
    def evictable(self) -> bool:
        """Whether it may be asked to leave for others."""
        return self.spec.preemptible and not self.protected

    @property
    def awaited(self) -> tuple[Dependency, ...]:
        """Dependencies of which not all jobs have ended, as far as `unmet` shows."""
        unmet = frozenset(self.unmet)
        return tuple(one for one in self.spec.after if one.job_id in unmet) if unmet else ()

    @property
    def placed(self) -> GangAsk:
        """The shape its attempt was allocated, at the size it started with; its ask when it has no attempt.

        Beside another job on its device it holds half of that.
        """
        pairing = self.attempt.pairing if self.attempt is not None else None
        return self.placed_alone if pairing is None else halved(self.placed_alone, pairing.memory_bytes)

    @property
    def placed_alone(self) -> GangAsk:
        """The same, as if it shared its device with no other job: what quotas count, as it gets all of it back."""
        attempt = self.attempt
        if attempt is None:
            return self.spec.ask
        chosen = self.spec.alternatives[attempt.choice - 1] if attempt.choice else self.spec.ask
        return chosen.sized(len(attempt.replicas)) if chosen.elastic else chosen

    @property
    def ask(self) -> GangAsk:
        """What its attempt holds now: less than its allocation while it is suspended."""
        attempt = self.attempt
        return self.placed.without_cpus() if attempt is not None and attempt.suspended_ms else self.placed

    def next_ask(self, ask: GangAsk) -> GangAsk:
        """Return a shape of its next attempt: on nodes that reach what it has saved, or saves to."""
        return ask.on_storage(self.attempt.storage if self.attempt is not None else self.progress.saved_on)

    @property
    def charged(self) -> GangAsk:
        """What its attempt counts for in quotas and fair shares: `ask`, with its device as if it were alone there."""
        attempt = self.attempt
        return self.placed_alone.without_cpus() if attempt is not None and attempt.suspended_ms else self.placed_alone

    @property
    def leaves(self) -> GangAsk:
        """The capacity freed when its attempt has left as ordered: CPUs alone where it is to be suspended."""
        stop = self.attempt.stop if self.attempt is not None else None
        return self.ask.only_cpus() if stop is not None and stop.reason == "suspended" else self.ask

    @property
    def saves(self) -> bool:
        """Whether it can go on elsewhere from where its attempt is: it has saved, or can be asked to."""
        attempt = self.attempt
        if attempt is None or not attempt.running_ms:
            return False
        return bool(self.save_signal) or self.progress.checkpoint_ms >= attempt.running_ms

    @property
    def save_signal(self) -> str:
        """The signal that makes it save and carry on: as declared, or as its running program says; '' for none."""
        attempt, told = self.attempt, self.progress
        said = told.save_signal if attempt is not None and told.save_attempt == attempt.number else ""
        return self.spec.checkpoint.request_signal or said

    @property
    def undisturbed(self) -> Attempt | None:
        """The attempt, unless it is being stopped or is suspended."""
        attempt = self.attempt
        return None if attempt is None or attempt.stop is not None or attempt.suspended_ms else attempt

    @property
    def can_suspend(self) -> bool:
        """Whether its attempt may be frozen now: all of it runs, and it holds no device that others could not use."""
        attempt = self.attempt
        if attempt is None or attempt.stop is not None or self.spec.on_preempt != "suspend" or self.state != "running":
            return False
        return not attempt.suspended_ms and not self.ask.device_total
