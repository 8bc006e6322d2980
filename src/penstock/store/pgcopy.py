"""A consistent copy of a log in PostgreSQL, and a log made there in one transaction."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg

from penstock.core.model.events import Record
from penstock.core.model.ids import Epoch
from penstock.core.state.state import Image
from penstock.store import encoding
from penstock.store.copying import BATCH, EVENTS, NoLog, NotEmpty
from penstock.store.encoding import EventRow, FinishedRow, Specs
from penstock.store.migrations import refuse_newer
from penstock.store.pgconnect import Connection, connect, shown, translated
from penstock.store.postgres import newest_snapshot, prepare_schema, version_of

_OCCUPIED = (
    "SELECT EXISTS (SELECT FROM events) OR EXISTS (SELECT FROM finished) OR EXISTS (SELECT FROM term WHERE epoch > 0)"
)


class PostgresCopy:
    """`LogCopy` of a database: one transaction that sees the commits before its begin."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        row = connection.execute("SELECT epoch FROM term").fetchone()
        self.epoch = Epoch(row[0] if row else 0)
        self._specs = Specs(self._body_of)

    def _body_of(self, seq: int) -> bytes | None:
        row = self._connection.execute("SELECT body FROM events WHERE seq = %s", (seq,)).fetchone()
        return row[0] if row else None

    def record(self, row: EventRow) -> Record:
        return self._specs.record(row)

    def events(self) -> Iterator[EventRow]:
        yield from map(EventRow._make, self._rows(EVENTS))

    def first(self) -> EventRow | None:
        row = self._connection.execute(EVENTS + " LIMIT 1").fetchone()
        return EventRow._make(row) if row else None

    def last_seq(self) -> int:
        row = self._connection.execute("SELECT max(seq) FROM events").fetchone()
        return int(row[0] or 0) if row else 0

    def finished(self) -> Iterator[FinishedRow]:
        yield from map(FinishedRow._make, self._rows("SELECT id, state, body FROM finished ORDER BY id"))

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor(name="penstock_copy") as cursor:
            cursor.itersize = BATCH
            yield from cursor.execute(query)

    def finished_among(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        query = "SELECT id, body FROM finished WHERE id = ANY(%s::bigint[])"
        return dict(self._connection.execute(query, (list(ids),)).fetchall())

    def finished_count(self) -> int:
        row = self._connection.execute("SELECT count(*) FROM finished").fetchone()
        return int(row[0]) if row else 0

    def snapshot(self) -> Image | None:
        def fetch(query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            return self._connection.execute(query, parameters).fetchall()

        return newest_snapshot(fetch)


@contextlib.contextmanager
def postgres_copy(url: str) -> Iterator[PostgresCopy]:
    """Open the log at `url` for reading; servers may be running on it.

    Raises: NoLog when there is none; StoreError when it cannot be read.
    """
    with contextlib.closing(connect(url, read_only=True, statement_timeout_ms=0)) as connection:
        try:
            found = version_of(connection)
            refuse_newer(found, shown(url))
            if not found:
                raise NoLog(f"there is no log at {shown(url)}")
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with connection.transaction():
                yield PostgresCopy(connection)
        except psycopg.Error as error:
            raise translated(error) from error


class PostgresRestoring:
    """`Restoring` in a transaction that is open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_events(self, rows: Iterable[EventRow]) -> None:
        self._copy_in("COPY events (seq, time_ms, job, body) FROM STDIN (FORMAT BINARY)", "int8 int8 int8 bytea", rows)

    def add_finished(self, rows: Iterable[FinishedRow]) -> None:
        self._copy_in("COPY finished (id, state, body) FROM STDIN (FORMAT BINARY)", "int8 text bytea", rows)

    def _copy_in(self, statement: str, types: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.set_types(types.split())
            for row in rows:
                copy.write_row(row)

    def finish(self, epoch: Epoch, snapshot: Image | None) -> None:
        self._connection.execute("UPDATE term SET epoch = %s", (epoch,))
        if snapshot is not None:
            body = encoding.encode_image(snapshot)
            digest = encoding.digest_of(body)
            self._connection.execute("INSERT INTO snapshots VALUES (%s, %b, %b)", (snapshot.seq, digest, body))


@contextlib.contextmanager
def postgres_restoring(url: str) -> Iterator[PostgresRestoring]:
    """Make a log at `url`, which must not hold one; it is committed when the block ends well.

    Raises: NotEmpty; StoreError.
    """
    with contextlib.closing(connect(url, statement_timeout_ms=0)) as connection:
        try:
            if version_of(connection):
                _refuse_log(connection, url)
                prepare_schema(connection, url)  # an older schema: it is upgraded on another connection
            with connection.transaction():
                prepare_schema(connection, url)
                connection.execute("LOCK TABLE term, events, finished IN EXCLUSIVE MODE")
                _refuse_log(connection, url)
                yield PostgresRestoring(connection)
        except psycopg.Error as error:
            raise translated(error) from error


def _refuse_log(connection: Connection, url: str) -> None:
    """Raises: NotEmpty when the tables hold a log."""
    if (connection.execute(_OCCUPIED).fetchone() or (True,))[0]:
        raise NotEmpty(f"there is a log at {shown(url)}", hint="restore into another database")
