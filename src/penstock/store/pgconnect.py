"""Connections to PostgreSQL: opening, errors, and a pool for readers.

Every statement of the store is a transaction of its own: so a server that stands still (SIGSTOP, a paused machine)
never holds a lock that another server waits for.
"""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import conninfo, errors

from penstock.core.model.errors import InvalidInput, StoreError, StoreFull

OLDEST = 14
"""The oldest PostgreSQL that is known to work: its `pg_terminate_backend` can wait."""
READERS_MAX = 8
DEFAULTS = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Unless the URL sets them: a silent database host is noticed within seconds."""
STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 5_000
_PREPARE = (
    "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false), "
    "set_config('default_transaction_read_only', %s, false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    "CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN '' "
    "ELSE set_config('synchronous_commit', 'on', false) END"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def _parts(url: str) -> dict[str, Any]:
    with contextlib.suppress(psycopg.ProgrammingError):  # its text may hold the password: it is dropped
        return dict(conninfo.conninfo_to_dict(url))
    raise InvalidInput("the address of the store cannot be read", hint="postgresql://USER@HOST:PORT/DATABASE")


def shown(url: str) -> str:
    """Return an address without secrets, for messages and logs."""
    parts = _parts(url)
    host, port = parts.get("host", ""), parts.get("port", "")
    return f"postgresql://{host}{port and ':'}{port}/{parts.get('dbname', '')}"


def place(url: str) -> tuple[str, ...]:
    """Return what in an address decides which log it is: server, database and schema, not user or password."""
    parts = _parts(url)
    named = ("service", "host", "hostaddr", "port", "options")
    return (*(str(parts.get(name) or "") for name in named), str(parts.get("dbname") or parts.get("user") or ""))


def connect(url: str, *, read_only: bool = False, statement_timeout_ms: int = STATEMENT_TIMEOUT_MS) -> Connection:
    """Return a connection on which each statement is a transaction, durable once it returns.

    Raises: StoreError when the database cannot be reached, or is too old; InvalidInput when the address is none.
    """
    name = f"penstock {socket.gethostname()}:{os.getpid()}"  # shown to the database's administrator
    text = conninfo.make_conninfo(**{"application_name": name, **DEFAULTS, **_parts(url)})
    try:
        made: Connection = psycopg.connect(text, autocommit=True)
    except psycopg.Error as error:
        raise StoreError(f"the database cannot be reached: {_line(error)}", hint=f"at {shown(url)}") from None
    version = made.info.server_version // 10_000
    if version < OLDEST:
        made.close()
        raise StoreError(f"PostgreSQL {version} is too old: {OLDEST} is the oldest that works", hint="upgrade it")
    try:
        made.execute(_PREPARE, (str(statement_timeout_ms), str(LOCK_TIMEOUT_MS), "on" if read_only else "off"))
    except psycopg.Error as error:
        made.close()
        raise translated(error) from error
    return made


def translated(error: psycopg.Error) -> StoreError:
    """Return the StoreError for a statement's failure."""
    if isinstance(error, errors.DiskFull):
        return StoreFull("the disk of the database is full", hint="free space; nothing was half done")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreError("the database takes no writes", hint="is it a replica? Name the primary")
    return StoreError(f"the database did not do it: {_line(error)}")


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())


class Readers:
    """A few connections for reads by any thread, opened on demand; callers wait while all are busy."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._free = threading.Semaphore(READERS_MAX)

    def fetch(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows. A connection that was lost (the database restarted) is replaced.

        Raises: StoreError.
        """
        with self._free:
            for last in (False, True):
                with self._connection(fresh=last) as connection:
                    try:
                        return connection.execute(query, parameters).fetchall()
                    except psycopg.Error as error:
                        if last or not connection.closed:
                            raise translated(error) from error
        raise AssertionError("the second try returns or raises")

    @contextlib.contextmanager
    def _connection(self, *, fresh: bool) -> Iterator[Connection]:
        try:
            if fresh:
                raise queue.Empty
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = connect(self._url, read_only=True)
        try:
            yield connection
        finally:
            if not connection.closed:
                self._idle.put(connection)

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()
