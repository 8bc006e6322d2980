"""Verification of a log: every record is there, folds, and gives the stored snapshot and finished jobs.

The parts that a start trusts (the newest snapshot, the rows of finished jobs) are recomputed from the first record.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from penstock.control.finished_jobs import finished_row
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import JobFinished, Record
from penstock.core.model.ids import ClassId, JobId
from penstock.core.model.jobs import Job
from penstock.core.model.words import counted
from penstock.core.state import invariants
from penstock.core.state.state import Image, State
from penstock.ports import FinishedJob

BATCH = 1_000
VALUE_MAX = 200
"""Characters shown of a value that differs."""
_SOME = (JobId(0),)
_decode_finished = msgspec.msgpack.Decoder(FinishedJob).decode


class Row(Protocol):
    """A stored record."""

    @property
    def seq(self) -> int: ...


class Log(Protocol):
    """A log as it was at one moment."""

    @property
    def epoch(self) -> int: ...

    def events(self) -> Iterable[Row]:
        """Return all records in order."""
        ...

    def record(self, row: Any) -> Record:
        """Return the record of a row. Raises: msgspec.DecodeError."""
        ...

    def finished_among(self, ids: Sequence[int]) -> Any:
        """Return bodies of finished jobs by number."""
        ...

    def finished_count(self) -> int: ...

    def snapshot(self) -> Image | None: ...


class CheckResult(msgspec.Struct, frozen=True):
    """Counts of the verified parts, and the first problem (empty: none)."""

    records: int
    finished: int
    live: int
    epoch: int
    snapshot_seq: int
    problem: str = ""


class Damage(Exception):
    """The first problem of a log."""


class Verifier:
    """Goes through a log once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._state = State()
        self._ended: list[FinishedJob] = []
        self._ended_count = 0
        self._image = log.snapshot()
        self._from_snapshot: State | None = None

    def verify(self) -> CheckResult:
        """Return the result."""
        try:
            self._go_through()
            problem = ""
        except Damage as damage:
            problem = str(damage)
        seq = self._image.seq if self._image else 0
        live, epoch = len(self._state.jobs), int(self._log.epoch)
        return CheckResult(self._state.seq, self._ended_count, live, epoch, seq, problem)

    def _go_through(self) -> None:
        for row in self._log.events():
            self._take(row)
            if self._image is not None and row.seq == self._image.seq:
                self._compare(self._image, "the snapshot")
                self._from_snapshot = State.from_image(self._image)
            if len(self._ended) >= BATCH:
                self._compare_ended()
        self._compare_ended()
        self._conclude()

    def _take(self, row: Row) -> None:
        expected = self._state.seq + 1
        if row.seq != expected:
            raise Damage(f"record {expected} is missing: {row.seq} comes there")
        try:
            record = self._log.record(row)
        except msgspec.DecodeError as error:
            raise Damage(f"record {row.seq} cannot be read: {error}") from error
        if isinstance(record.event, JobFinished):
            job = self._state.jobs.get(record.event.job_id)
            if job is None:
                raise Damage(f"record {row.seq} ends job {record.event.job_id}, which is not there")
            self._ended.append(finished_row(job, record))
        try:
            self._state.apply(record)
            if self._from_snapshot is not None:
                self._from_snapshot.apply(record)
        except (BrokenInvariant, KeyError, IndexError) as error:
            raise Damage(f"record {row.seq} does not follow from those before it: {error}") from error

    def _compare_ended(self) -> None:
        """Compare finished jobs by the log with the stored rows."""
        kept = self._log.finished_among([job.id for job in self._ended])
        for job in self._ended:
            body = kept.get(job.id)
            if body is None:
                raise Damage(f"job {job.id} has finished by the log, and is not among the finished jobs")
            try:
                found = _decode_finished(body)
            except msgspec.DecodeError as error:
                raise Damage(f"finished job {job.id} cannot be read: {error}") from error
            if found.details is None:  # an older version wrote it
                job = replace(job, details=None)
            if found != job:
                raise Damage(f"finished job {job.id}: {_first(found, job)}")
        self._ended_count += len(self._ended)
        self._ended = []

    def _compare(self, image: Image, what: str) -> None:
        worked_out, image = self._state.image(), State.from_image(image).image()  # as today's program has it
        if _plain(image) != _plain(worked_out):
            raise Damage(f"{what} of record {image.seq} is not what the log gives: {_first(image, worked_out)}")

    def _conclude(self) -> None:
        if self._from_snapshot is not None:
            self._compare(self._from_snapshot.image(), "what a start makes of snapshot and tail, as")
        elif self._image is not None:
            raise Damage(f"the snapshot is of record {self._image.seq}, and the log ends at {self._state.seq}")
        if self._log.finished_count() != self._ended_count:
            extra = self._log.finished_count() - self._ended_count
            raise Damage(f"{counted(extra, 'finished job')} in the store, but not in the log")
        if self._log.epoch < self._state.epoch:
            raise Damage(f"the term is {self._log.epoch}, and the log has seen {self._state.epoch}")
        broken = invariants.violations(self._state)
        if broken:
            raise Damage(f"a promise does not hold at the end of the log: {broken[0]}")


def _alike(image: Image) -> Image:
    """Return the image without cached values, which differ by the way they were made.

    These are the numbers of classes, the ended dependencies that are still in `unmet`, and the records of stop orders,
    which snapshots of former versions lack.
    """
    return replace(image, jobs=[_without_cached(job) for job in image.jobs])


def _without_cached(job: Job) -> Job:
    attempt = job.attempt
    if attempt is not None and attempt.stop is not None:
        attempt = replace(attempt, stop=replace(attempt.stop, seq=0))
    return replace(job, class_id=ClassId(0), unmet=_SOME if job.unmet else (), attempt=attempt)


def _plain(image: Image) -> bytes:
    return msgspec.msgpack.encode(_alike(image))


def _first(kept: Any, worked_out: Any) -> str:
    """Return the first difference of two values of one type, by its path."""
    if isinstance(kept, Image):
        kept, worked_out = _alike(kept), _alike(worked_out)
    path, one, other = next(_differences(msgspec.to_builtins(kept), msgspec.to_builtins(worked_out), ""))
    return f"{path or 'it'} is {_short(one)}, and the log gives {_short(other)}"


def _differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, value of the one, value of the other) wherever they differ."""
    if type(one) is not type(other) or not isinstance(one, dict | list):
        if one != other:
            yield path, one, other
        return
    if isinstance(one, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            yield from _differences(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
        return
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        named = left.get("id", index) if isinstance(left, dict) else index
        yield from _differences(left, right, f"{path}[{named}]")
    if len(one) != len(other):
        yield f"{path} (how many)", len(one), len(other)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}..."
