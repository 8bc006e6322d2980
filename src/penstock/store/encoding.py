"""How records, finished jobs and snapshots become the bytes that every store keeps alike."""

import hashlib
from typing import NamedTuple

import msgspec

from penstock.core.model.events import AnyEvent, Record
from penstock.core.model.jobs import JobState
from penstock.core.state import Image
from penstock.ports import FinishedJob

encode = msgspec.msgpack.Encoder().encode
decode_event = msgspec.msgpack.Decoder(AnyEvent).decode
decode_finished = msgspec.msgpack.Decoder(FinishedJob).decode
_decode_image = msgspec.msgpack.Decoder(Image).decode


class EventRow(NamedTuple):
    """One record as it is kept."""

    seq: int
    time_ms: int
    job: int | None
    body: bytes

    def record(self) -> Record:
        """Raises: msgspec.DecodeError when the body is no event."""
        return Record(self.seq, self.time_ms, decode_event(self.body))


class FinishedRow(NamedTuple):
    """One finished job as it is kept."""

    id: int
    state: JobState
    body: bytes


def event_row(record: Record) -> EventRow:
    return EventRow(record.seq, record.time_ms, getattr(record.event, "job_id", None), encode(record.event))


def finished_row(job: FinishedJob) -> FinishedRow:
    return FinishedRow(job.id, job.state, encode(job))


def digest_of(body: bytes) -> bytes:
    """Return 32 bytes that tell whether a body was damaged."""
    return hashlib.sha256(body).digest()


def image_of(digest: bytes, body: bytes) -> Image | None:
    """Return the snapshot, or None when it is damaged or of another shape."""
    if digest_of(body) != digest:
        return None
    try:
        return _decode_image(body)
    except msgspec.DecodeError:
        return None
