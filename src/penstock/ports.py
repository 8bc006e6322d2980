"""The small protocols between the core's drivers and the outside world, shaped by their callers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.core.messages.orders import Addressed, Order
from penstock.core.messages.reports import NodeReport
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Epoch, Incarnation, JobId
from penstock.core.model.jobs import ExitInfo, JobState
from penstock.core.model.measured import Measured

if TYPE_CHECKING:  # agents load this module without the state and without the events
    from penstock.core.model.events import JobSubmitted, Record
    from penstock.core.state.state import Image


class Clock(Protocol):
    """Two readings of time; neither goes back."""

    def unix_ms(self) -> int:
        """Return wall-clock time for the log."""
        ...

    def monotonic_ms(self) -> int:
        """Return time for leases and deadlines, suspended time included."""
        ...


class FinishedDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept with a finished job beside the first fields, so that lists need not read its submit."""

    preemptible: bool
    replica_total: int
    """Of all its groups."""
    devices_milli: int
    devices_text: str
    """As `core.model.ask_text.devices_cell` writes it."""
    checkpoint_step: int = 0
    """Of its last checkpoint; 0: it saved none."""
    idle_ms: int = 0
    """For how long its last attempt was suspended; 0 in rows of former versions."""
    measured: Measured | None = None
    """What it used, of all attempts; None: not measured."""


class FinishedJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stays queryable of a job that has left the state."""

    id: JobId
    name: str
    tenant: str
    queue: str
    user: str
    state: JobState
    reason: str
    submitted_ms: int
    started_ms: int
    finished_ms: int
    attempts: int
    preemptions: int
    replicas: int
    devices: int
    priority: int
    step: int = 0
    exit: ExitInfo | None = None
    array_id: JobId | None = None
    array_index: int = 0
    nodes: tuple[str, ...] = ()
    details: FinishedDetails | None = None
    """None in rows that older versions wrote: its submit in the log tells all but the checkpoint."""


class EventStore(Protocol):
    """The log. One writer at a time: the one with the newest epoch."""

    def acquire_epoch(self) -> Epoch:
        """Begin a term and return its number; every older writer's appends fail from now on."""
        ...

    def append(self, records: "Sequence[Record]", finished: Sequence[FinishedJob], epoch: Epoch) -> None:
        """Make the records durable, all or none; returns after the sync.

        Raises: StaleEpoch when a newer term has begun; StoreFull when nothing was kept; StoreError when nothing was
            kept, or when the connection was lost and it is unknown: see `load`.
        """
        ...

    def load(self) -> "tuple[Image | None, Iterator[Record]]":
        """Return the newest snapshot (or None) and the records after it, in order.

        The outcome of a failed `append` is decided before: its records are in the log, or never will be.
        """
        ...

    def tail(self, after: int) -> "Iterator[Record]":
        """Return the records with seq > `after`, in order."""
        ...

    def save_snapshot(self, image: "Image") -> None:
        """Keep a snapshot; losing it costs time at the next start, nothing else."""
        ...

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        """Return the end states of those jobs that have finished."""
        ...

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        """Return finished jobs, newest first."""
        ...


class EventReader(Protocol):
    """Reads of what is durable; any thread, at any time."""

    def records(self, after: int, limit: int) -> "list[Record]":
        """Return up to `limit` records with seq > `after`, in order."""
        ...

    def records_of_job(self, job_id: JobId) -> "list[Record]": ...

    def submits(self, job_ids: Sequence[JobId]) -> "Mapping[JobId, JobSubmitted]":
        """Return the submits of those of these jobs that the log has."""
        ...

    def finished_job(self, job_id: JobId) -> FinishedJob | None: ...

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]: ...

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]: ...


class ProjectionStore(Protocol):
    """Keeps projections of the log, so that they need not be folded from the first record again.

    Any thread, at any time. Losing one only costs time.
    """

    def save_projection(self, name: str, seq: int, body: bytes) -> None:
        """Keep `body`, folded from the records up to `seq`; one of a higher seq is never replaced.

        Raises: StoreError.
        """
        ...

    def projection(self, name: str) -> tuple[int, bytes] | None:
        """Return (seq, body) as kept last under `name`, or None."""
        ...


class Seat(Protocol):
    """The right to lead, where several servers share a log. It gives liveness; the log's terms give safety."""

    def take(self) -> bool:
        """Return whether this server has the seat now: it was vacant, or its holder is silent.

        Cheap enough to be called several times a second. Raises: StoreError if unknown.
        """
        ...

    def leader(self) -> str:
        """Return the address of the server that has it, as far as is known, else ''."""
        ...

    def hold(self, epoch: Epoch, on_lost: Callable[[BaseException], None]) -> None:
        """Keep the seat from now on, without waiting; `on_lost` is called when another term has begun."""
        ...

    def leave(self) -> None:
        """Give the seat up at once."""
        ...


class Engine(Protocol):
    """Starts and stops processes: the half of the engine port that takes orders. The other half is `EngineEvents`.

    It decides nothing; delivery is best effort and is repeated as needed. Its contract: `testing.conformance`.
    """

    def send(self, orders: Sequence[Addressed]) -> None:
        """Pass orders to their nodes without waiting; orders to nodes that are not connected are dropped.

        Any thread.
        """
        ...


class NodeSession(Protocol):
    """Answers one connection of a node. A node has one at a time, the newest; older ones ignore every call.

    Called on the thread or loop that the engine sends its events from, unless the engine allows more.
    """

    def welcome(self, epoch: Epoch, lease_ms: int, heartbeat_ms: int) -> None:
        """Accept the node: from now on it reports at least every `heartbeat_ms`.

        Args:
            lease_ms: for this long after it sent an acknowledged report, the node may let its processes live.
        """
        ...

    def taken(self, report_seq: int, orders: Sequence[Order], *, accepted: bool) -> None:
        """Acknowledge a report; `orders` go with it. Not accepted: the node says hello again."""
        ...

    def refuse(self, reason: str) -> None:
        """Reject the node."""
        ...

    def close(self) -> None:
        """End the connection; the node comes back and says hello."""
        ...


class EngineEvents(Protocol):
    """Receives what the nodes of an engine report. Calls return at once; the answer comes later, on the session.

    There is no event for a lost node: a node that leaves says so in its last report, a silent node loses its lease, and
    the end of a connection says nothing about the processes behind it.
    """

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        """Receive a node's introduction: the first message of each connection.

        Args:
            incarnation: another one after each loss of all its processes, such as a restart of the machine.
        """
        ...

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        """Receive a report, on a session that was welcomed."""
        ...


class Metrics(Protocol):
    """Takes figures of the server's own work. Any thread; cheap enough for every commit.

    A name says its unit, if it has one; labels are few and of few values.
    """

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Take one measured value, such as a duration in seconds."""
        ...
