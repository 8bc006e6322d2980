"""Which of several servers on one database leads.

The leader holds an advisory lock, on a connection of its own: a server that dies lets go of it at once. A leader that
stands still (SIGSTOP, a paused machine) keeps its connection, so it also has to renew a row; a standby sees that the
row has not changed for a while, by its own clock, and ends the silent leader's session, which frees the lock. Taking
the seat begins a new term: further commits of the former leader are refused.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from penstock.core.model.errors import StaleEpoch, StoreError
from penstock.core.model.ids import Epoch
from penstock.store.pgconnect import Connection, connect, translated

log = logging.getLogger(__name__)

LEASE_S = 2.5
"""A leader is considered dead after this long without an update."""
RENEW_S = 0.5
RETRY_S = 0.1
RETURN_S = 1.0
"""After the database was away a standby waits this long: the leader comes back first, and keeps the seat."""
STATEMENT_TIMEOUT_MS = 2_000
LOCK = 0x5045_4E54

_TRY = "SELECT pg_try_advisory_lock((%s::bigint << 32) | 'term'::regclass::oid::bigint)"
_HOLDER = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s::bigint::oid "
    "AND objid = 'term'::regclass::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_SIT_DOWN = (
    "INSERT INTO leader VALUES (1, %s, %s, pg_backend_pid(), clock_timestamp()) ON CONFLICT (id) DO UPDATE "
    "SET name = excluded.name, address = excluded.address, pid = excluded.pid, renewed = excluded.renewed"
)
_RENEW = (
    "UPDATE leader SET name = %s, address = %s, pid = pg_backend_pid(), renewed = clock_timestamp() "
    "WHERE coalesce(%s::bigint, (SELECT epoch FROM term)) = (SELECT epoch FROM term)"
)


class PostgresSeat:
    """`Seat` in a database. `name` is unique to a server; `address` is that of this one."""

    def __init__(self, url: str, *, name: str, address: str) -> None:
        self._url, self._name, self._address = url, name, address
        self._connection: Connection | None = None
        self._held = False
        self._seen: tuple[Any, ...] | None = None
        self._seen_s = 0.0
        self._not_before_s = 0.0
        self._leader = ""
        self._ending = threading.Event()
        self._keeper: threading.Thread | None = None
        self._epoch: Epoch | None = None
        """The term that was begun from this seat; None while the log is still being read."""
        self._on_lost: Callable[[BaseException], None] = lambda _: None

    def leader(self) -> str:
        return self._leader

    def take(self) -> bool:
        if self._keeper is not None:
            return True
        try:
            return self._take()
        except (StoreError, psycopg.Error) as error:
            self._lose()
            self._not_before_s = time.monotonic() + RETURN_S
            if isinstance(error, psycopg.Error):
                raise translated(error) from error
            raise

    def _take(self) -> bool:
        connection = self._connected()
        if self._held:
            return True
        self._look()
        if time.monotonic() < self._not_before_s:
            return False
        if not self._lock():
            if not self._is_silent():
                return False
            self._end_holder()
            if not self._lock():
                return False
        connection.execute(_SIT_DOWN, (self._name, self._address))
        self._leader = self._address
        log.info("this server leads now, at %s", self._address)
        self._begin_keeping()
        return True

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._held = False
            made = connect(self._url, statement_timeout_ms=STATEMENT_TIMEOUT_MS)
            made.execute("SET synchronous_commit = off")  # a renewal that is lost is made again
            self._connection = made
        return self._connection

    def _one(self, query: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        return self._connected().execute(query, parameters).fetchone()

    def _lock(self) -> bool:
        if not self._held:
            row = self._one(_TRY, (LOCK,))
            self._held = row is not None and bool(row[0])
        return self._held

    def _look(self) -> None:
        """Note the leader, and when its row last changed."""
        row = self._one("SELECT renewed, name, address, pid FROM leader")
        if row != self._seen or row is None:
            self._seen, self._seen_s = row, time.monotonic()
        self._leader = row[2] if row is not None and not self._is_silent() else ""

    def _is_silent(self) -> bool:
        return time.monotonic() - self._seen_s > LEASE_S

    def _end_holder(self) -> None:
        """End the session that holds the lock; its server notices when it goes on."""
        for (pid,) in self._connected().execute(_HOLDER, (LOCK,)).fetchall():
            log.warning("the leader is silent: its session %s at the database is ended", pid)
            self._one("SELECT pg_terminate_backend(%s, 1000)", (pid,))

    # While it is held.

    def hold(self, epoch: Epoch, on_lost: Callable[[BaseException], None]) -> None:
        self._on_lost = on_lost
        self._epoch = epoch
        if self._keeper is None or not self._keeper.is_alive():
            self._begin_keeping()

    def _begin_keeping(self) -> None:
        self._keeper = threading.Thread(target=self._keep, name="penstock-seat", daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        failing = False
        while not self._ending.wait(RETRY_S if failing else RENEW_S):
            try:
                self._renew()
                failing = False
            except StaleEpoch as error:
                self._on_lost(error)
                return
            except (StoreError, psycopg.Error) as error:
                if not failing:
                    log.warning("the seat could not be renewed: %s", error)
                failing = True
                self._lose()

    def _renew(self) -> None:
        connection, epoch = self._connected(), self._epoch
        if not self._lock():
            self._look()
            if self._seen is not None and self._seen[1] == self._name:
                self._end_holder()  # it is this server's own session, whose connection was lost
        if connection.execute(_RENEW, (self._name, self._address, epoch)).rowcount == 0:
            now = self._one("SELECT epoch FROM term")
            raise StaleEpoch(f"term {epoch} has ended: term {now[0] if now else '?'} has begun")
        if not self._lock():
            raise StoreError("another session holds the lock of the seat")

    def _lose(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._held = False

    def leave(self) -> None:
        self._ending.set()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(STATEMENT_TIMEOUT_MS / 1000)
        self._lose()
