"""Where a log that outlives its process may lie: a folder, or a database of the tests' own PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from penstock.store.postgres import PostgresStore
from penstock.store.sqlite import SqliteStore
from tests import postgres


class SqlitePlace:
    """A log in a folder; `open` may be called several times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self._opened: list[Any] = []

    def open(self) -> Any:
        self._opened.append(SqliteStore(self.folder))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def fill(self) -> None:
        """Let every store that is open find its disk full."""
        for store in self._opened:
            store._writer.execute("PRAGMA max_page_count=1").fetchone()

    def free(self) -> None:
        for store in self._opened:
            store._writer.execute("PRAGMA max_page_count=1073741823").fetchone()

    def snapshots(self) -> list[int]:
        return sorted(int(p.name) for p in (self.folder / "snapshots").iterdir())

    def snapshot(self, seq: int) -> bytes:
        """Return digest and body of a snapshot."""
        return self._file(seq).read_bytes()

    def put_snapshot(self, seq: int, data: bytes | None) -> None:
        """Replace a snapshot behind the store's back; None takes it away."""
        if data is None:
            self._file(seq).unlink()
        else:
            self._file(seq).write_bytes(data)

    def _file(self, seq: int) -> Path:
        return self.folder / "snapshots" / f"{seq:020d}"


class PostgresPlace:
    """A log in a database."""

    def __init__(self, _: Path | None = None) -> None:
        self.url = postgres.shared().database()
        self._opened: list[PostgresStore] = []

    def open(self) -> PostgresStore:
        self._opened.append(PostgresStore(self.url))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def fill(self) -> None:
        """Let whoever inserts be told what a full disk is told by."""
        self.ask(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER full_disk AFTER INSERT ON events EXECUTE FUNCTION full_disk()",
        )

    def free(self) -> None:
        self.ask("DROP TRIGGER full_disk ON events", "DROP FUNCTION full_disk")

    def snapshots(self) -> list[int]:
        return [row[0] for row in self.ask("SELECT seq FROM snapshots ORDER BY seq")]

    def snapshot(self, seq: int) -> bytes:
        ((digest, body),) = self.ask(f"SELECT digest, body FROM snapshots WHERE seq = {seq}")
        return digest + body

    def put_snapshot(self, seq: int, data: bytes | None) -> None:
        if data is None:
            self.ask(f"DELETE FROM snapshots WHERE seq = {seq}")
        else:
            digest, body = data[:32].hex(), data[32:].hex()
            self.ask(f"UPDATE snapshots SET digest = '\\x{digest}', body = '\\x{body}' WHERE seq = {seq}")

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; return the rows of the last."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


Place = SqlitePlace | PostgresPlace
KINDS = [SqlitePlace, PostgresPlace]
NAMES = ["sqlite", "postgres"]


def opened(kind: type[Place], folder: Path) -> Iterator[Place]:
    """Yield a place and close what was opened there; skips where there is no PostgreSQL."""
    place = kind(folder)
    try:
        yield place
    finally:
        place.close()
