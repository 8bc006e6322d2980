"""Consistent copies of a log, and logs made from such copies: for backup, restore and verify.

Both interfaces are the same for every store, so that a copy of one can go into another.
"""

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.core.model.errors import InvalidInput, StoreError
from penstock.core.model.events import Record
from penstock.core.model.ids import Epoch
from penstock.core.state.state import Image
from penstock.privatefiles import make_folder, passed_by_accounts, sync_folder
from penstock.store.encoding import EventRow, FinishedRow, Specs
from penstock.store.migrations import refuse_newer
from penstock.store.sqlite import SqliteStore, newest_snapshot

T = TypeVar("T")
BATCH = 10_000
EVENTS = "SELECT seq, time_ms, job, body FROM events ORDER BY seq"


class NotEmpty(InvalidInput):
    """The target is not empty, and is left as it was."""

    code = "not_empty"


class NoLog(InvalidInput):
    """There is no log at the address."""


class LogCopy(Protocol):
    """A log as it was when this was opened; later records are not seen."""

    epoch: Epoch

    def events(self) -> Iterator[EventRow]:
        """Return all records in order."""
        ...

    def first(self) -> EventRow | None:
        """Return the first record, None when there is none."""
        ...

    def last_seq(self) -> int:
        """Return the number of the last record, 0 when there is none."""
        ...

    def record(self, row: EventRow) -> Record:
        """Return the record of a row of this log. Raises: msgspec.DecodeError."""
        ...

    def finished(self) -> Iterator[FinishedRow]:
        """Return all finished jobs by number."""
        ...

    def finished_among(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """Return the bodies of the finished ones among these jobs."""
        ...

    def finished_count(self) -> int: ...

    def snapshot(self) -> Image | None:
        """Return the newest whole snapshot that is not ahead of the log."""
        ...


class Restoring(Protocol):
    """An empty log that is being filled: it appears as a whole, or not at all."""

    def add_events(self, rows: Iterable[EventRow]) -> None: ...

    def add_finished(self, rows: Iterable[FinishedRow]) -> None: ...

    def finish(self, epoch: Epoch, snapshot: Image | None) -> None: ...


def batches(rows: Iterable[T]) -> Iterator[list[T]]:
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch


class SqliteCopy:
    """`LogCopy` of a file: one read transaction, which neither waits for a writer nor keeps one waiting."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        row = connection.execute("SELECT epoch FROM term").fetchone()
        self.epoch = Epoch(row[0] if row else 0)
        self._last = connection.execute("SELECT max(seq) FROM events").fetchone()[0] or 0
        self._specs = Specs(self._body_of)

    def _body_of(self, seq: int) -> bytes | None:
        row = self._connection.execute("SELECT body FROM events WHERE seq = ?", (seq,)).fetchone()
        return row[0] if row else None

    def record(self, row: EventRow) -> Record:
        return self._specs.record(row)

    def events(self) -> Iterator[EventRow]:
        yield from map(EventRow._make, self._connection.execute(EVENTS))

    def first(self) -> EventRow | None:
        row = self._connection.execute(EVENTS + " LIMIT 1").fetchone()
        return EventRow._make(row) if row else None

    def last_seq(self) -> int:
        return int(self._last)

    def finished(self) -> Iterator[FinishedRow]:
        yield from map(FinishedRow._make, self._connection.execute("SELECT id, state, body FROM finished ORDER BY id"))

    def finished_among(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        query = "SELECT id, body FROM finished WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._connection.execute(query, (str(list(ids)),)).fetchall())

    def finished_count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM finished").fetchone()[0])

    def snapshot(self) -> Image | None:
        return newest_snapshot(self._folder / "snapshots", self._last)


@contextlib.contextmanager
def sqlite_copy(folder: Path) -> Iterator[SqliteCopy]:
    """Open the log in `folder` for reading; a server may be running on it.

    Raises: NoLog when there is none; StoreError when it cannot be read.
    """
    path = folder / "log.sqlite"
    if not path.exists():
        raise NoLog(f"there is no log in {folder}")
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=5.0)) as connection:
            connection.execute("PRAGMA query_only=ON")
            refuse_newer(connection.execute("PRAGMA user_version").fetchone()[0], str(path))
            connection.execute("BEGIN")
            yield SqliteCopy(connection, folder)
    except sqlite3.Error as error:
        raise StoreError(f"the log in {folder} cannot be read: {error}") from error


class SqliteRestoring:
    """`Restoring` into a folder beside its final place."""

    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self._store, self._connection = store, connection

    def add_events(self, rows: Iterable[EventRow]) -> None:
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)

    def add_finished(self, rows: Iterable[FinishedRow]) -> None:
        self._connection.executemany("INSERT INTO finished VALUES (?, ?, ?)", rows)

    def finish(self, epoch: Epoch, snapshot: Image | None) -> None:
        self._connection.execute("UPDATE term SET epoch = ?", (epoch,))
        self._connection.execute("COMMIT")
        if snapshot is not None:
            self._store.save_snapshot(snapshot)


@contextlib.contextmanager
def sqlite_restoring(folder: Path) -> Iterator[SqliteRestoring]:
    """Make a log at `folder`, which must not hold anything; it appears there, synced, when the block ends well.

    Raises: NotEmpty; StoreError.
    """
    if folder.exists() and any(folder.iterdir()):
        raise NotEmpty(f"{folder} is not empty", hint="restore into another data folder, or move this one away")
    make_folder(folder.parent, passed_by_accounts())
    for left in folder.parent.glob(f"{folder.name}.restoring-*"):
        if not Path(f"/proc/{left.suffix.rpartition('-')[2]}").exists():  # the process that made it was killed
            shutil.rmtree(left, ignore_errors=True)
    beside = folder.with_name(f"{folder.name}.restoring-{os.getpid()}")
    try:
        store = SqliteStore(beside)
        try:
            with contextlib.closing(sqlite3.connect(beside / "log.sqlite", isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                yield SqliteRestoring(store, connection)
        finally:
            store.close()
        sync_folder(beside)
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
        beside.rename(folder)
        sync_folder(folder.parent)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the log could not be restored into {folder}: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
