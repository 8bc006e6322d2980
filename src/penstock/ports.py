"""The small protocols between the core's drivers and the outside world, shaped by their callers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.core.messages.orders import Addressed
from penstock.core.model.events import Record
from penstock.core.model.ids import Epoch, JobId
from penstock.core.model.jobs import ExitInfo, JobState
from penstock.core.state.state import Image


class Clock(Protocol):
    """Two readings of time; neither goes back."""

    def unix_ms(self) -> int:
        """Return wall-clock time for the log."""
        ...

    def monotonic_ms(self) -> int:
        """Return time for leases and deadlines, suspended time included."""
        ...


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


class EventStore(Protocol):
    """The log. One writer at a time: whoever acquired the newest epoch."""

    def acquire_epoch(self) -> Epoch:
        """Begin a term and return its number; every older writer's appends fail from now on."""
        ...

    def append(self, records: Sequence[Record], finished: Sequence[FinishedJob], epoch: Epoch) -> None:
        """Make the records durable, all or none; returns after the sync.

        Raises: StaleEpoch when a newer term has begun; StoreFull when nothing was kept; StoreError when nothing was
            kept, or when the connection was lost and nobody can say: `load` tells.
        """
        ...

    def load(self) -> tuple[Image | None, Iterator[Record]]:
        """Return the newest snapshot (or None) and the records after it, in order.

        Whatever an `append` that failed may have left behind is decided before: it is in the log, or never will be.
        """
        ...

    def tail(self, after: int) -> Iterator[Record]:
        """Return the records with seq > `after`, in order."""
        ...

    def save_snapshot(self, image: Image) -> None:
        """Keep a snapshot; losing it costs time at the next start, nothing else."""
        ...

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        """Return how those of the jobs ended that have finished."""
        ...

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        """Return finished jobs, newest first."""
        ...


class EventReader(Protocol):
    """Reads of what is durable; any thread, at any time."""

    def records(self, after: int, limit: int) -> list[Record]:
        """Return up to `limit` records with seq > `after`, in order."""
        ...

    def records_of_job(self, job_id: JobId) -> list[Record]: ...

    def finished_job(self, job_id: JobId) -> FinishedJob | None: ...

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]: ...

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]: ...


class ProjectionStore(Protocol):
    """Keeps what was worked out of the log, so that it need not be worked out from the first record again.

    Any thread, at any time. Losing one only costs time.
    """

    def save_projection(self, name: str, seq: int, body: bytes) -> None:
        """Keep `body`, worked out of the records up to `seq`; one of a higher seq is never replaced.

        Raises: StoreError.
        """
        ...

    def projection(self, name: str) -> tuple[int, bytes] | None:
        """Return (seq, body) as kept last under `name`, or None."""
        ...


class Seat(Protocol):
    """The right to lead, where several servers share a log. It gives liveness; the log's terms give safety."""

    def take(self) -> bool:
        """Return whether this server has the seat now: because nobody has it, or whoever has it is silent.

        Cheap enough to be called several times a second. Raises: StoreError when nobody can say.
        """
        ...

    def leader(self) -> str:
        """Return the address of the server that has it, as far as is known, else ''."""
        ...

    def hold(self, epoch: Epoch, on_lost: Callable[[BaseException], None]) -> None:
        """Keep the seat from now on, without waiting; `on_lost` is told when another term has begun."""
        ...

    def leave(self) -> None:
        """Give the seat up at once."""
        ...


class Engine(Protocol):
    """What starts and stops processes. It decides nothing; delivery is best effort and is repeated as needed."""

    def send(self, orders: Sequence[Addressed]) -> None:
        """Pass orders to their nodes without waiting; orders to nodes that are not connected are dropped."""
        ...
