"""The event log on SQLite: write-ahead log, full sync at each commit, one transaction a group.

`synchronous=FULL` matters: with NORMAL a kill loses nothing, but a power cut loses all commits since the last
checkpoint, though they had been answered.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.core.model.errors import StaleEpoch, StoreError, StoreFull
from penstock.core.model.events import JobSubmitted, Record
from penstock.core.model.ids import Epoch, JobId
from penstock.core.model.jobs import JobState
from penstock.core.state.state import Image
from penstock.ports import FinishedJob
from penstock.privatefiles import make_folder, sync_folder
from penstock.store.encoding import (
    ROWS_FIRST,
    EventRow,
    Specs,
    decode_finished,
    digest_of,
    encode_image,
    event_rows,
    finished_row,
    image_of,
    rows_next,
    submits_of,
)
from penstock.store.migrations import SCHEMA_VERSION, fresh_statements, refuse_newer, upgrade

SNAPSHOTS_KEPT = 2
BUSY_TIMEOUT_MS = 5_000
DIGEST_BYTES = 32
ROWS_AT_ONCE = (64, 8, 1)
"""Rows in one statement. Each statement releases the interpreter lock, and gets it back only in its turn."""
_INTO = "INSERT INTO events"
_VALUES = {count: "VALUES " + ",".join(["(?, ?, ?, ?)"] * count) for count in (*range(1, 9), 64)}
_INSERT = {count: " ".join((_INTO, values)) for count, values in _VALUES.items()}
_INSERT_IN_TERM = {
    count: " ".join((_INTO, "SELECT * FROM (", values, ") WHERE (SELECT epoch FROM term) = ?"))
    for count, values in _VALUES.items()
}
"""A statement that inserts nothing when the term is over."""


class SqliteStore:
    """`EventStore`, `EventReader` and `ProjectionStore` in one folder: `log.sqlite` and `snapshots/`."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        folder.chmod(0o700)
        sync_folder(folder.parent)
        self._folder = folder
        self._path = folder / "log.sqlite"
        self._readers = threading.local()
        self._keeping = threading.Lock()
        self._specs = Specs(self._body_of)
        self._writer = self._connect()
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._writer.close()
            raise _translated(error) from error
        except StoreError:
            self._writer.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False
        )

    def _prepare(self) -> None:
        writer = self._writer
        version = writer.execute("PRAGMA user_version").fetchone()[0]
        refuse_newer(version, str(self._path))
        self._switch_to_wal()
        writer.execute("PRAGMA synchronous=FULL")
        if version == SCHEMA_VERSION:
            return
        writer.execute("BEGIN IMMEDIATE")
        try:
            version = writer.execute("PRAGMA user_version").fetchone()[0]  # another server may have been quicker
            if version == 0:
                for statement in fresh_statements("sqlite"):
                    writer.execute(statement)
                writer.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                writer.execute("COMMIT")
        finally:
            self._roll_back()
        if 0 < version < SCHEMA_VERSION:
            self._upgrade(version)

    def _switch_to_wal(self) -> None:
        """Switch to the write-ahead log unless it is on; SQLite itself does not wait for other connections here."""
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _upgrade(self, version: int) -> None:
        """Bring the file of an older program up to date, all or nothing."""
        import sqlalchemy

        engine = sqlalchemy.create_engine("sqlite://", creator=self._connect, poolclass=sqlalchemy.NullPool)
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
                if version < SCHEMA_VERSION:
                    upgrade(connection, version)
                    connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")
                connection.commit()
        except sqlalchemy.exc.DBAPIError as error:
            text = f"{self._path} could not be brought from schema {version} to {SCHEMA_VERSION}: {error.orig}"
            raise StoreError(text, hint="nothing was half done; free space or memory and start again") from error
        finally:
            engine.dispose()

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
            if len(records) in _INSERT_IN_TERM and not finished and self._append_at_once(records, epoch):
                return
            self._writer.execute("BEGIN IMMEDIATE")
            current = self._writer.execute("SELECT epoch FROM term").fetchone()[0]
            if current != epoch:
                raise StaleEpoch(f"term {epoch} has ended: term {current} has begun")
            self._insert(event_rows(records))
            if finished:
                self._writer.executemany("INSERT INTO finished VALUES (?, ?, ?)", map(finished_row, finished))
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _translated(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _append_at_once(self, records: Sequence[Record], epoch: Epoch) -> bool:
        """Append a few records and commit in one statement; return whether the term is the present one."""
        values = [value for row in event_rows(records) for value in row]
        return self._writer.execute(_INSERT_IN_TERM[len(records)], (*values, epoch)).rowcount == len(records)

    def _insert(self, rows: Iterator[EventRow]) -> None:
        while chunk := list(islice(rows, ROWS_AT_ONCE[0])):
            at = 0
            for count in ROWS_AT_ONCE:
                while at + count <= len(chunk):
                    values = [value for row in chunk[at : at + count] for value in row]
                    self._writer.execute(_INSERT[count], values)
                    at += count

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def load(self) -> tuple[Image | None, Iterator[Record]]:
        image = self._newest_snapshot()
        return image, self.tail(image.seq if image else 0)

    def tail(self, after: int) -> Iterator[Record]:
        limit = ROWS_FIRST
        while rows := self._rows(after, limit):
            yield from map(self._specs.record, rows)
            after, limit = rows[-1].seq, rows_next(rows)

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        query = "SELECT id, state FROM finished WHERE id IN (SELECT value FROM json_each(?))"
        return {JobId(job_id): state for job_id, state in self._fetch(query, (str(list(job_ids)),))}

    # Reads, from any thread.

    def _fetch(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows. Raises: StoreError."""
        try:
            return self._reader().execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the event log could not be read: {error}") from error

    def _reader(self) -> sqlite3.Connection:
        reader: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if reader is None:
            reader = self._readers.connection = self._connect()
            reader.execute("PRAGMA query_only=ON")
        return reader

    def _body_of(self, seq: int) -> bytes | None:
        rows = self._fetch("SELECT body FROM events WHERE seq = ?", (seq,))
        return rows[0][0] if rows else None

    def _rows(self, after: int, limit: int) -> list[EventRow]:
        query = "SELECT seq, time_ms, job, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        return [EventRow(*row) for row in self._fetch(query, (after, limit))]

    def records(self, after: int, limit: int) -> list[Record]:
        return [self._specs.record(row) for row in self._rows(after, limit)]

    def records_of_job(self, job_id: JobId) -> list[Record]:
        query = "SELECT seq, time_ms, job, body FROM events WHERE job = ? ORDER BY seq"
        return [self._specs.record(EventRow(*row)) for row in self._fetch(query, (job_id,))]

    def submits(self, job_ids: Sequence[JobId]) -> dict[JobId, JobSubmitted]:
        query = "SELECT seq, time_ms, job, body FROM events WHERE job = ? ORDER BY seq LIMIT 1"
        rows = (row for job_id in job_ids for row in self._fetch(query, (job_id,)))
        return submits_of(self._specs.record(EventRow(*row)) for row in rows)

    def finished_job(self, job_id: JobId) -> FinishedJob | None:
        rows = self._fetch("SELECT body FROM finished WHERE id = ?", (job_id,))
        return decode_finished(rows[0][0]) if rows else None

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        query = "SELECT body FROM finished WHERE id < ? ORDER BY id DESC LIMIT ?"
        rows = self._fetch(query, (before if before is not None else 2**62, limit))
        return [decode_finished(row[0]) for row in rows]

    # Projections of the log: a connection of their own, for any thread may call.

    def save_projection(self, name: str, seq: int, body: bytes) -> None:
        statement = (
            "INSERT INTO projections VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
            "SET seq = excluded.seq, body = excluded.body WHERE projections.seq <= excluded.seq"
        )
        try:
            with self._keeping, contextlib.closing(self._connect()) as connection:
                connection.execute(statement, (name, seq, body))
        except sqlite3.Error as error:
            raise _translated(error) from error

    def projection(self, name: str) -> tuple[int, bytes] | None:
        rows = self._fetch("SELECT seq, body FROM projections WHERE name = ?", (name,))
        return (rows[0][0], rows[0][1]) if rows else None

    # Snapshots: files, so that writing one never holds up the log.

    def save_snapshot(self, image: Image) -> None:
        folder = self._folder / "snapshots"
        body = encode_image(image)
        data = digest_of(body) + body
        path = folder / f"{image.seq:020d}"
        temporary = path.with_suffix(".tmp")
        try:
            folder.mkdir(0o700, exist_ok=True)
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
        last = self._fetch("SELECT max(seq) FROM events")[0][0] or 0
        return newest_snapshot(self._folder / "snapshots", last)


def newest_snapshot(folder: Path, last: int) -> Image | None:
    """Return the newest whole snapshot of at most `last` records; damaged ones are passed over."""
    for path in sorted(folder.glob("[0-9]*"), reverse=True):
        with contextlib.suppress(FileNotFoundError):  # a live server drops old ones
            data = path.read_bytes()
            image = image_of(data[:DIGEST_BYTES], data[DIGEST_BYTES:])
            if image is not None and image.seq <= last:
                return image
    return None


def _translated(error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk of the event log is full", hint="free space; nothing was half done")
    return StoreError(f"the event log could not be written: {error}")
