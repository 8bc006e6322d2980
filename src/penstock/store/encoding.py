"""Encoding of records, finished jobs and snapshots: the same bytes in every store.

A spec that several jobs of one group share, such as the members of an array, is kept with the first of them; the
others name its record. Readers get it back, and the same object for all jobs, as long as `Specs` remembers it.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.model.event import Event
from penstock.core.model.events import AnyEvent, JobSubmitted, Record
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import JobSpec, JobState, Scheduled
from penstock.core.state.images import packed, unpacked
from penstock.core.state.state import Image
from penstock.ports import FinishedJob

ROWS_FIRST = 100
ROWS_MAX = 10_000
ROWS_MAX_BYTES = 32 * 2**20
"""Bytes in memory at once when a whole log is read; a single row may be larger."""
SPECS_KEPT_MAX = 1_024
SPECS_KEPT_MAX_BYTES = 16 * 2**20
encode = msgspec.msgpack.Encoder().encode
decode_finished = msgspec.msgpack.Decoder(FinishedJob).decode
_decode_image = msgspec.msgpack.Decoder(Image).decode


class AlikeSubmitted(Event, tag=True, frozen=True, omit_defaults=True):
    """A stored `JobSubmitted` whose spec is that of an earlier record."""

    job_id: JobId
    spec_seq: int
    """The number of that record: a `JobSubmitted` with its spec."""
    user: UserName
    array_id: JobId | None = None
    array_index: int = 0
    idempotency_key: str = ""
    digest: str = ""
    batch: int = 1
    account: str = ""
    delegated: bool = False
    scheduled: Scheduled | None = None


_SAME = tuple(name for name in JobSubmitted.__struct_fields__ if name != "spec")
"""Fields of a submit that are kept as they are; `AlikeSubmitted` has each of them."""

_decode_event = msgspec.msgpack.Decoder(AnyEvent | AlikeSubmitted).decode


class EventRow(NamedTuple):
    """One stored record."""

    seq: int
    time_ms: int
    job: int | None
    body: bytes


class FinishedRow(NamedTuple):
    """One stored finished job."""

    id: int
    state: JobState
    body: bytes


def rows_next(rows: Sequence[EventRow]) -> int:
    """Return how many rows to read after these, if the next ones are as large."""
    size = sum(len(row.body) for row in rows)
    return max(1, min(ROWS_MAX, ROWS_MAX_BYTES * len(rows) // max(1, size)))


def event_rows(records: Sequence[Record]) -> Iterator[EventRow]:
    """Return the rows of one group of records."""
    specs: dict[int, int] = {}
    for record in records:
        event: AnyEvent | AlikeSubmitted = record.event
        if isinstance(event, JobSubmitted):
            at = specs.setdefault(id(event.spec), record.seq)
            if at != record.seq:
                event = _alike(event, at)
        yield EventRow(record.seq, record.time_ms, getattr(event, "job_id", None), encode(event))


def _alike(event: JobSubmitted, at: int) -> AlikeSubmitted:
    return AlikeSubmitted(spec_seq=at, **{name: getattr(event, name) for name in _SAME})


class Specs:
    """Makes records of rows, and puts back the specs that they share. Any thread.

    Args:
        body_of: returns the body of the row of a number, None where there is none.
    """

    def __init__(self, body_of: Callable[[int], bytes | None]) -> None:
        self._body_of = body_of
        self._kept: OrderedDict[int, tuple[JobSpec, int]] = OrderedDict()
        self._bytes = 0
        self._turn = threading.Lock()

    def record(self, row: EventRow) -> Record:
        """Raises: msgspec.DecodeError when the body is no event, or names a record that has no spec."""
        event = _decode_event(row.body)
        if isinstance(event, JobSubmitted):
            self._keep(row.seq, event.spec, len(row.body))
        elif isinstance(event, AlikeSubmitted):
            same = {name: getattr(event, name) for name in _SAME}
            event = JobSubmitted(spec=self._spec(event.spec_seq), **same)
        return Record(row.seq, row.time_ms, event)

    def _spec(self, seq: int) -> JobSpec:
        with self._turn:
            known = self._kept.get(seq)
            if known is not None:
                self._kept.move_to_end(seq)
                return known[0]
        body = self._body_of(seq)
        event = _decode_event(body) if body is not None else None
        if body is None or not isinstance(event, JobSubmitted):
            raise msgspec.DecodeError(f"it has the spec of record {seq}, which has none")
        self._keep(seq, event.spec, len(body))
        return event.spec

    def _keep(self, seq: int, spec: JobSpec, size: int) -> None:
        with self._turn:
            if seq in self._kept:
                return
            self._kept[seq] = (spec, size)
            self._bytes += size
            while self._bytes > SPECS_KEPT_MAX_BYTES or len(self._kept) > SPECS_KEPT_MAX:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone


def submits_of(records: Iterable[Record]) -> dict[JobId, JobSubmitted]:
    """Return the submits among the first records of jobs, by job."""
    return {r.event.job_id: r.event for r in records if isinstance(r.event, JobSubmitted)}


def finished_row(job: FinishedJob) -> FinishedRow:
    return FinishedRow(job.id, job.state, encode(job))


def encode_image(image: Image) -> bytes:
    return encode(packed(image))


def digest_of(body: bytes) -> bytes:
    """Return the SHA-256 of a body (32 bytes), which shows damage."""
    return hashlib.sha256(body).digest()


def image_of(digest: bytes, body: bytes) -> Image | None:
    """Return the snapshot, or None when it is damaged or of another shape."""
    if digest_of(body) != digest:
        return None
    try:
        return unpacked(_decode_image(body))
    except (msgspec.DecodeError, ValueError, IndexError):
        return None
