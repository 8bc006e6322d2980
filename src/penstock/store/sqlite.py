"""The event log on SQLite: write-ahead log, full sync at each commit, one transaction a group.

`synchronous=FULL` matters: with NORMAL a kill loses nothing, but a power cut loses whatever was committed since the
last checkpoint, though it had been answered.
"""

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.core.errors import StaleEpoch, StoreError, StoreFull
from penstock.core.model.events import AnyEvent, Record
from penstock.core.model.ids import Epoch, JobId
from penstock.core.model.jobs import JobState
from penstock.core.state import Image
from penstock.ports import FinishedJob

SCHEMA_VERSION = 1
SNAPSHOTS_KEPT = 2
BUSY_TIMEOUT_MS = 5_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS term (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL);
INSERT OR IGNORE INTO term VALUES (1, 0);
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    job INTEGER,
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job, seq) WHERE job IS NOT NULL;
CREATE TABLE IF NOT EXISTS finished (id INTEGER PRIMARY KEY, state TEXT NOT NULL, body BLOB NOT NULL);
"""

_encode = msgspec.msgpack.Encoder().encode
_decode_event = msgspec.msgpack.Decoder(AnyEvent).decode
_decode_finished = msgspec.msgpack.Decoder(FinishedJob).decode


class SqliteStore:
    """`EventStore` and `EventReader` in one folder: `log.sqlite` and `snapshots/`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _sync_folder(folder.parent)
        self._folder = folder
        self._path = folder / "log.sqlite"
        self._readers = threading.local()
        self._writer = self._connect()
        try:
            self._prepare()
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False
        )

    def _prepare(self) -> None:
        writer = self._writer
        version = writer.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self._path} has schema {version}, this program knows up to {SCHEMA_VERSION}",
                hint="use the newer program that wrote it",
            )
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA synchronous=FULL")
        writer.executescript(_SCHEMA)
        writer.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def close(self) -> None:
        self._writer.close()

    # What the control loop needs.

    def acquire_epoch(self) -> Epoch:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            row = self._writer.execute("UPDATE term SET epoch = epoch + 1 RETURNING epoch").fetchone()
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _translated(error) from error
        return Epoch(row[0])

    def append(self, records: Sequence[Record], finished: Sequence[FinishedJob], epoch: Epoch) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            current = self._writer.execute("SELECT epoch FROM term").fetchone()[0]
            if current != epoch:
                raise StaleEpoch(f"term {epoch} has ended: term {current} has begun")
            if records:
                self._writer.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", map(_row, records))
            if finished:
                rows = ((f.id, f.state, _encode(f)) for f in finished)
                self._writer.executemany("INSERT INTO finished VALUES (?, ?, ?)", rows)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _translated(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def load(self) -> tuple[Image | None, Iterator[Record]]:
        image = self._newest_snapshot()
        return image, self._tail(image.seq if image else 0)

    def _tail(self, after: int) -> Iterator[Record]:
        while batch := self.records(after, 10_000):
            yield from batch
            after = batch[-1].seq

    def outcome(self, job_id: JobId) -> JobState | None:
        found = self.finished_job(job_id)
        return found.state if found else None

    # Reads, from any thread.

    def _reader(self) -> sqlite3.Connection:
        reader: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if reader is None:
            reader = self._readers.connection = self._connect()
            reader.execute("PRAGMA query_only=ON")
        return reader

    def records(self, after: int, limit: int) -> list[Record]:
        query = "SELECT seq, time_ms, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        return [_record(row) for row in self._reader().execute(query, (after, limit))]

    def records_of_job(self, job_id: JobId) -> list[Record]:
        query = "SELECT seq, time_ms, body FROM events WHERE job = ? ORDER BY seq"
        return [_record(row) for row in self._reader().execute(query, (job_id,))]

    def finished_job(self, job_id: JobId) -> FinishedJob | None:
        row = self._reader().execute("SELECT body FROM finished WHERE id = ?", (job_id,)).fetchone()
        return _decode_finished(row[0]) if row else None

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        query = "SELECT body FROM finished WHERE id < ? ORDER BY id DESC LIMIT ?"
        rows = self._reader().execute(query, (before if before is not None else 2**62, limit))
        return [_decode_finished(row[0]) for row in rows]

    # Snapshots: files, so that writing one never holds up the log.

    def save_snapshot(self, image: Image) -> None:
        folder = self._folder / "snapshots"
        body = _encode(image)
        data = hashlib.sha256(body).digest() + body
        path = folder / f"{image.seq:020d}"
        temporary = path.with_suffix(".tmp")
        try:
            folder.mkdir(exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StoreError(f"the snapshot {path.name} could not be written: {error}") from error
        for old in sorted(folder.glob("[0-9]*"))[:-SNAPSHOTS_KEPT]:
            old.unlink(missing_ok=True)

    def _newest_snapshot(self) -> Image | None:
        """Return the newest whole snapshot that is not ahead of the log; damaged ones are passed over."""
        last = self._writer.execute("SELECT max(seq) FROM events").fetchone()[0] or 0
        for path in sorted((self._folder / "snapshots").glob("[0-9]*"), reverse=True):
            data = path.read_bytes()
            if len(data) < 32 or hashlib.sha256(data[32:]).digest() != data[:32]:
                continue
            try:
                image = msgspec.msgpack.decode(data[32:], type=Image)
            except msgspec.DecodeError:
                continue
            if image.seq <= last:
                return image
        return None


def _sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _row(record: Record) -> tuple[int, int, int | None, bytes]:
    return record.seq, record.time_ms, getattr(record.event, "job_id", None), _encode(record.event)


def _record(row: tuple[Any, ...]) -> Record:
    return Record(row[0], row[1], _decode_event(row[2]))


def _translated(error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk of the event log is full", hint="free space; nothing was half done")
    return StoreError(f"the event log could not be written: {error}")
