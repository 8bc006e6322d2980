"""The event log on PostgreSQL: one statement a group, which compares the term and inserts, durable when it returns.

When the connection is lost during a commit its outcome is unknown. The next `load` settles it before it reads: the old
session is ended at the database, so that a transaction open by then is never committed.
"""

import contextlib
import datetime
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg

from penstock.core.model.errors import StaleEpoch, StoreError
from penstock.core.model.events import JobSubmitted, Record
from penstock.core.model.ids import Epoch, JobId
from penstock.core.model.jobs import JobState
from penstock.core.state.state import Image
from penstock.ports import FinishedJob
from penstock.store import encoding
from penstock.store.encoding import EventRow
from penstock.store.migrations import SCHEMA_VERSION, fresh_statements, refuse_newer, upgrade
from penstock.store.pgconnect import Connection, Readers, connect, shown, translated

log = logging.getLogger(__name__)

SNAPSHOTS_KEPT = 2
END_WAIT_MS = 5_000
"""Time for the database to end a session whose connection was lost."""
SCHEMA_LOCK = 0x50454E53
"""Advisory lock held while the schema is made or changed: two servers may start at once."""

_APPEND = """
WITH fence AS MATERIALIZED (SELECT epoch FROM term WHERE epoch = %s FOR SHARE),
added AS (
    INSERT INTO events (seq, time_ms, job, body)
    SELECT new.* FROM fence, unnest(%s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[]) AS new
),
ended AS (
    INSERT INTO finished (id, state, body)
    SELECT new.* FROM fence, unnest(%s::bigint[], %s::text[], %b::bytea[]) AS new
)
SELECT epoch FROM fence
"""
_SAVE_PROJECTION = """
INSERT INTO projections VALUES (%s, %s, %b) ON CONFLICT (name) DO UPDATE
SET seq = excluded.seq, body = excluded.body WHERE projections.seq <= excluded.seq
"""
_SAVE_SNAPSHOT = """
INSERT INTO snapshots VALUES (%s, %b, %b) ON CONFLICT (seq) DO UPDATE
SET digest = excluded.digest, body = excluded.body
"""
_DROP_SNAPSHOTS = """
DELETE FROM snapshots WHERE seq < (SELECT min(seq) FROM (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT %s) AS kept)
"""
_END_SESSION = "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
_WHO = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_STAMPED = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = 'alembic_version'"
"""Not `to_regclass`: its cache may predate tables that another server made, as taking a lock does not refresh it."""

Session = tuple[int, datetime.datetime]


class PostgresStore:
    """`EventStore`, `EventReader` and `ProjectionStore` in one schema of a database, named by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._readers = Readers(url)
        self._specs = encoding.Specs(self._body_of)
        self._writer: Connection | None = None
        self._session: Session | None = None
        """The session at the database of `_writer`, or of the lost connection."""
        with contextlib.closing(connect(url)) as connection:
            prepare_schema(connection, url)
            _warn_of_losses(connection)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._readers.close()

    # What the control loop needs.

    def _write(self) -> Connection:
        """Return the writing connection, a new one after a loss; the session of the old one has ended then.

        Raises: StoreError.
        """
        if self._writer is not None and not self._writer.closed:
            return self._writer
        made = connect(self._url)
        try:
            if self._session is not None:
                ended = made.execute(_END_SESSION, (END_WAIT_MS, *self._session)).fetchone()
                if ended is not None and not ended[0]:
                    raise StoreError("a session whose connection was lost does not end at the database")
            found = made.execute(_WHO).fetchone()
            assert found is not None
        except psycopg.Error as error:
            made.close()
            raise translated(error) from error
        except StoreError:
            made.close()
            raise
        self._writer, self._session = made, (found[0], found[1])
        return made

    def _one(self, query: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """Run one statement, a transaction of its own, on the writing connection; return its first row."""
        connection = self._write()
        try:
            return connection.execute(query, parameters).fetchone()
        except psycopg.Error as error:
            if connection.closed:
                text = f"the connection to the database was lost: {translated(error).message}"
                raise StoreError(text, hint="come back in a moment, with the same idempotency key") from error
            raise translated(error) from error

    def acquire_epoch(self) -> Epoch:
        row = self._one("UPDATE term SET epoch = epoch + 1 RETURNING epoch")
        assert row is not None
        return Epoch(row[0])

    def append(self, records: Sequence[Record], finished: Sequence[FinishedJob], epoch: Epoch) -> None:
        if records or finished:
            seqs, times, jobs, bodies = _columns(list(encoding.event_rows(records)), 4)
            ids, states, ends = _columns([encoding.finished_row(job) for job in finished], 3)
            row = self._one(_APPEND, (epoch, seqs, times, jobs, bodies, ids, states, ends))
        else:
            row = self._one("SELECT epoch FROM term WHERE epoch = %s", (epoch,))
        if row is None:
            now = self._one("SELECT epoch FROM term")
            raise StaleEpoch(f"term {epoch} has ended: term {now[0] if now else '?'} has begun")

    def load(self) -> tuple[Image | None, Iterator[Record]]:
        self._write()
        image = newest_snapshot(self._readers.fetch)
        return image, self.tail(image.seq if image else 0)

    def tail(self, after: int) -> Iterator[Record]:
        limit = encoding.ROWS_FIRST
        while rows := self._rows(after, limit):
            yield from map(self._specs.record, rows)
            after, limit = rows[-1].seq, encoding.rows_next(rows)

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        query = "SELECT id, state FROM finished WHERE id = ANY(%s::bigint[])"
        return {JobId(job_id): state for job_id, state in self._readers.fetch(query, (list(job_ids),))}

    # Reads, from any thread.

    def _body_of(self, seq: int) -> bytes | None:
        rows = self._readers.fetch("SELECT body FROM events WHERE seq = %s", (seq,))
        return rows[0][0] if rows else None

    def _rows(self, after: int, limit: int) -> list[EventRow]:
        query = "SELECT seq, time_ms, job, body FROM events WHERE seq > %s ORDER BY seq LIMIT %s"
        return [EventRow(*row) for row in self._readers.fetch(query, (after, limit))]

    def records(self, after: int, limit: int) -> list[Record]:
        return [self._specs.record(row) for row in self._rows(after, limit)]

    def records_of_job(self, job_id: JobId) -> list[Record]:
        query = "SELECT seq, time_ms, job, body FROM events WHERE job = %s ORDER BY seq"
        return [self._specs.record(EventRow(*row)) for row in self._readers.fetch(query, (job_id,))]

    def submits(self, job_ids: Sequence[JobId]) -> dict[JobId, JobSubmitted]:
        query = (
            "SELECT first.* FROM unnest(%s::bigint[]) AS wanted (id) CROSS JOIN LATERAL "
            "(SELECT seq, time_ms, job, body FROM events WHERE job = wanted.id ORDER BY seq LIMIT 1) AS first"
        )
        rows = self._readers.fetch(query, (list(job_ids),)) if job_ids else ()
        return encoding.submits_of(self._specs.record(EventRow(*row)) for row in rows)

    def finished_job(self, job_id: JobId) -> FinishedJob | None:
        rows = self._readers.fetch("SELECT body FROM finished WHERE id = %s", (job_id,))
        return encoding.decode_finished(rows[0][0]) if rows else None

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        query = "SELECT body FROM finished WHERE id < %s ORDER BY id DESC LIMIT %s"
        rows = self._readers.fetch(query, (before if before is not None else 2**62, limit))
        return [encoding.decode_finished(row[0]) for row in rows]

    # Projections of the log: on connections of their own, so that writing them never holds up the log.

    def save_projection(self, name: str, seq: int, body: bytes) -> None:
        self._keep((_SAVE_PROJECTION, (name, seq, body)))

    def projection(self, name: str) -> tuple[int, bytes] | None:
        rows = self._readers.fetch("SELECT seq, body FROM projections WHERE name = %s", (name,))
        return (rows[0][0], rows[0][1]) if rows else None

    def save_snapshot(self, image: Image) -> None:
        body = encoding.encode_image(image)
        kept = (image.seq, encoding.digest_of(body), body)
        self._keep((_SAVE_SNAPSHOT, kept), (_DROP_SNAPSHOTS, (SNAPSHOTS_KEPT,)))

    def _keep(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        with contextlib.closing(connect(self._url)) as connection:
            try:
                for query, parameters in statements:
                    connection.execute(query, parameters)
            except psycopg.Error as error:
                raise translated(error) from error


def newest_snapshot(fetch: Callable[..., list[tuple[Any, ...]]]) -> Image | None:
    """Return the newest whole snapshot that is not ahead of the log; damaged ones are passed over.

    Args:
        fetch: takes a query and its parameters, returns the rows.
    """
    query = "SELECT seq FROM snapshots WHERE seq <= (SELECT max(seq) FROM events) ORDER BY seq DESC"
    for (seq,) in fetch(query):
        for digest, body in fetch("SELECT digest, body FROM snapshots WHERE seq = %s", (seq,)):
            image = encoding.image_of(digest, body)
            if image is not None:
                return image
    return None


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _warn_of_losses(connection: Connection) -> None:
    """Warn where the database is set to answer before a commit is safe from a power cut."""
    for name in ("fsync", "full_page_writes"):
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
        if row is not None and row[0] != "on":
            log.warning("the database runs with %s=%s: a power cut can lose accepted jobs", name, row[0])


def version_of(connection: Connection) -> int:
    """Return the version of the schema, 0 where there is none."""
    if connection.execute(_STAMPED).fetchone() is None:
        return 0
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return int(row[0]) if row else 0


def prepare_schema(connection: Connection, url: str) -> None:
    """Make the newest schema, or bring an older one up to date; all or nothing, and only one server at a time.

    Raises: StoreError, also for the schema of a newer program.
    """
    try:
        version = version_of(connection)
        refuse_newer(version, shown(url))
        if version == SCHEMA_VERSION:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            version = version_of(connection)  # another server may have been quicker
            if version == 0:
                for statement in fresh_statements("postgresql"):
                    connection.execute(statement)
    except psycopg.Error as error:
        raise translated(error) from error
    if 0 < version < SCHEMA_VERSION:
        _upgrade(url)


def _upgrade(url: str) -> None:
    import sqlalchemy

    def session() -> Connection:
        made = connect(url, statement_timeout_ms=0)
        made.autocommit = False
        return made

    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=session, poolclass=sqlalchemy.NullPool)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            found = int(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())
            if found < SCHEMA_VERSION:
                upgrade(connection, found)
    except sqlalchemy.exc.DBAPIError as error:
        raise StoreError(f"the schema could not be brought up to date: {error.orig}") from error
    finally:
        engine.dispose()
