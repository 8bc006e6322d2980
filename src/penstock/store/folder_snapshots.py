"""Snapshots of folders, as submitters have sent them: on SQLite, one file a holder.

Theory. A holder is a user, and has a file of their own; so what one has sent is never looked up for another, whoever
knows its hash, and one who sends keeps nobody else from it. A chunk stays while a kept snapshot has it, and for
`PARTIAL_MS` after it came, for a snapshot that is still being sent. A snapshot stays while a live job has it, and
for `KEPT_MS` after it was last asked for; the longest unused ones leave earlier where a holder has no room.
"""

import contextlib
import hashlib
import shutil
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NewType

from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import InvalidInput, PenstockError, StoreError, StoreFull
from penstock.privatefiles import make_folder

QUOTA_BYTES = 4 * 2**30
"""Of one holder, lists of files included."""
KEPT_FREE_BYTES = 2**30
"""On the disk, for the log: with less, nothing more is taken in."""
CHUNKS_MAX = 200_000
"""Of one holder."""
SNAPSHOTS_MAX = 10_000
"""Of one holder."""
KEPT_MS = 14 * 86_400_000
PARTIAL_MS = 3_600_000
SUBMIT_MS = 30_000
"""A snapshot that was used so lately may be one of a submit that is being decided."""
BUSY_S = 5.0
LISTS_KEPT = 16
PAGE_BYTES = 8_192
_TABLES = """
CREATE TABLE chunks (hash BLOB PRIMARY KEY, size INTEGER NOT NULL, came_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE contents (hash BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE snapshots (
    name TEXT PRIMARY KEY, files BLOB NOT NULL, size INTEGER NOT NULL, used_ms INTEGER NOT NULL,
    count INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
PRAGMA user_version = 2;
"""
_FORM = 2
_TO_FORM_2 = (
    "ALTER TABLE snapshots ADD COLUMN count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE snapshots ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
    f"PRAGMA user_version = {_FORM}",
)
"""Of a file that a former version made: what it lists of its snapshots stays unknown."""


Holder = NewType("Holder", str)
"""Who has sent snapshots, in a form that is a name of a folder: see `holder`."""


def holder(user: str, *, delegated: bool, only: Collection[str]) -> Holder:
    """Return whose snapshots a token sends and uses.

    Args:
        delegated: another user issued it: what such tokens send is kept apart, as with secrets.
        only: the tenants that it is limited to; what it sends is apart, too: its keeper need not be the user.
    """
    mark = "\n".join((user, "delegated" if delegated else "", *sorted(only)))
    return Holder(hashlib.sha256(mark.encode()).hexdigest()[:32])


class NoSnapshot(PenstockError):
    """The holder has no such snapshot, or not all of it."""

    code = "not_found"


class NoRoom(PenstockError):
    """A holder has as much as one may have."""

    code = "too_large"


class StillUsed(PenstockError):
    """A snapshot is needed by jobs, or may be in a moment."""

    code = "conflict"


class Kept(NamedTuple):
    """A snapshot as a holder's list has it."""

    name: str
    files: int
    """0: a former version kept it, and did not count."""
    bytes: int
    """Of its files; what several snapshots have is kept once."""
    used_ms: int
    """When it was last sent, asked for or named by a submit (unix ms)."""


class Stored(NamedTuple):
    """What a holder has of a snapshot."""

    complete: bool
    base_known: bool
    missing: tuple[bytes, ...] = ()


class FolderSnapshots:
    """All snapshots below one folder. Any thread; each call is one transaction, on disk when it returns."""

    def __init__(self, folder: Path, now_ms: Callable[[], int], *, quota_bytes: int = QUOTA_BYTES) -> None:
        self._folder, self._now_ms, self._quota_bytes = folder, now_ms, quota_bytes
        self._making = threading.Lock()
        self._lists: OrderedDict[tuple[Holder, str], tuple[bytes, ...]] = OrderedDict()
        """Chunks of snapshots that nodes have lately asked for."""
        self.held: Callable[[], Collection[str]] = lambda: ()
        """Returns the snapshots of live jobs, as `HOLDER/NAME`."""

    def has(self, holder: Holder, name: str) -> bool:
        """Return whether a holder has a whole snapshot; if so it counts as used now."""
        if not fs.NAME.fullmatch(name) or not self._path(holder).exists():
            return False
        with self._open(holder) as base:
            return self._touch(base, name)

    def declare(self, holder: Holder, name: str, files: fs.Files, removed: Collection[str], base: str = "") -> Stored:
        """Keep a snapshot if all its chunks are there; return what is missing.

        Args:
            files: all of them; with `base`, another snapshot of the holder, those that differ from it.
            removed: paths of `base` that it does not have.
        Raises: InvalidInput when the files are no snapshot of that name; NoRoom.
        """
        with self._open(holder) as db:
            if self._touch(db, name):
                return Stored(complete=True, base_known=True)
            if base:
                former = db.execute("SELECT files FROM snapshots WHERE name = ?", (base,)).fetchone()
                if former is None:
                    return Stored(complete=False, base_known=False)
                files = fs.applied(fs.decoded(former[0]), files, removed)
            if not files:
                return Stored(complete=False, base_known=False)
            if problem := fs.problem_of(files):
                raise InvalidInput(f"the snapshot {problem}")
            data = fs.encoded(files)
            if fs.name_of(data) != name:
                raise InvalidInput(f"the files are those of snapshot {fs.name_of(data)}, not of {name}")
            known = {row[0] for row in db.execute("SELECT hash FROM chunks")}
            missing = tuple(chunk for chunk in fs.chunks_of(files) if chunk not in known)
            if missing:
                return Stored(complete=False, base_known=True, missing=missing)
            self._check_sizes(db, files)
            self._make_room(db, holder, len(data), 0)
            size = sum(one.size for one in files)
            row = (name, data, len(data), self._now_ms(), len(files), size)
            db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            return Stored(complete=True, base_known=True)

    def add(self, holder: Holder, chunks: Sequence[bytes]) -> int:
        """Keep chunks for a snapshot that follows; return how many bytes are new.

        Raises: NoRoom; StoreFull where the disk is nearly full.
        """
        by_hash = {fs.chunk_hash(data): data for data in chunks}
        with self._open(holder) as db:
            marks = ",".join("?" * len(by_hash))
            asked = f"SELECT hash FROM chunks WHERE hash IN ({marks})"  # noqa: S608 - marks alone
            for (known,) in db.execute(asked, tuple(by_hash)).fetchall():
                del by_hash[known]
            size = sum(map(len, by_hash.values()))
            self._check_disk(size)
            self._make_room(db, holder, size, len(by_hash))
            now_ms = self._now_ms()
            db.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?)", [(one, len(data), now_ms) for one, data in by_hash.items()]
            )
            db.executemany("INSERT INTO contents VALUES (?, ?)", by_hash.items())
            return size

    def files(self, holder: Holder, name: str) -> bytes:
        """Return the encoded list of a snapshot's files. Raises: NoSnapshot."""
        with self._reading(holder, name) as db:
            row = db.execute("SELECT files FROM snapshots WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise _none(name)
            return bytes(row[0])

    def contents(self, holder: Holder, name: str, wanted: Sequence[int], most_bytes: int) -> list[bytes]:
        """Return chunks of a snapshot, as many of those wanted, in their order, as have `most_bytes`; at least one.

        Args:
            wanted: numbers of chunks in the order of `chunks_of`.
        Raises: NoSnapshot; InvalidInput for a number that it has not.
        """
        all_chunks = self._chunks(holder, name)
        if any(not 0 <= number < len(all_chunks) for number in wanted):
            raise InvalidInput(f"snapshot {name} has {len(all_chunks)} chunks")
        found: list[bytes] = []
        with self._reading(holder, name) as db:
            for number in wanted:
                row = db.execute("SELECT data FROM contents WHERE hash = ?", (all_chunks[number],)).fetchone()
                if row is None:
                    raise _none(name)
                if found and most_bytes < len(row[0]):
                    break
                most_bytes -= len(row[0])
                found.append(row[0])
        return found

    def listed(self, holder: Holder) -> list[Kept]:
        """Return a holder's snapshots, those used last first."""
        if not self._path(holder).exists():
            return []
        with self._open(holder) as db:
            rows = db.execute(
                "SELECT name, count, bytes, used_ms FROM snapshots ORDER BY used_ms DESC, name"
            ).fetchall()
        return [Kept(*row) for row in rows]

    def remove(self, holder: Holder, name: str) -> None:
        """Remove a snapshot; what no other one has of its contents goes with the next cleaning.

        Raises: NoSnapshot; StillUsed where a live job or a schedule starts in it, or a submit may be about to.
        """
        if not fs.NAME.fullmatch(name) or not self._path(holder).exists():
            raise _none(name)
        with self._open(holder) as db:
            row = db.execute("SELECT used_ms FROM snapshots WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise _none(name)
            if name in self._live(holder):
                hint = "penstock snapshots list counts them; wait for them, cancel them, or remove the schedule"
                raise StillUsed(f"snapshot {name[:12]} is needed by live jobs or schedules", hint=hint)
            if (left_ms := row[0] + SUBMIT_MS - self._now_ms()) > 0:
                text = f"snapshot {name[:12]} was used a moment ago: a submit may be under way that needs it"
                raise StillUsed(text, hint=f"try again in {-(-left_ms // 1000)} s")
            db.execute("DELETE FROM snapshots WHERE name = ?", (name,))
        self._lists.pop((holder, name), None)

    def clean(self) -> int:
        """Remove what is no longer needed; return how many bytes that freed."""
        holders = sorted(path.parent.name for path in self._folder.glob("*/snapshots.sqlite"))
        return sum(self._clean(Holder(name)) for name in holders)

    # One holder.

    def _clean(self, holder: Holder) -> int:
        with self._open(holder) as db:
            live, now_ms = self._live(holder), self._now_ms()
            aged = db.execute("SELECT name FROM snapshots WHERE used_ms < ?", (now_ms - KEPT_MS,)).fetchall()
            db.executemany("DELETE FROM snapshots WHERE name = ?", [row for row in aged if row[0] not in live])
            freed = self._sweep(db)
        with contextlib.closing(sqlite3.connect(self._path(holder), isolation_level=None, timeout=BUSY_S)) as db:
            db.execute("PRAGMA incremental_vacuum").fetchall()  # gives the space back to the disk
        return freed

    def _live(self, holder: Holder) -> set[str]:
        split = (one.partition("/") for one in self.held())
        return {name for by, _, name in split if by == holder}

    def _sweep(self, db: sqlite3.Connection) -> int:
        """Remove chunks that no kept snapshot has; return their size (bytes)."""
        wanted: set[bytes] = set()
        for (data,) in db.execute("SELECT files FROM snapshots"):
            wanted.update(fs.chunks_of(fs.decoded(data)))
        old_ms = self._now_ms() - PARTIAL_MS
        rows = db.execute("SELECT hash, size FROM chunks WHERE came_ms < ?", (old_ms,)).fetchall()
        gone = [(one, size) for one, size in rows if one not in wanted]
        for table in ("chunks", "contents"):
            db.executemany(f"DELETE FROM {table} WHERE hash = ?", [(one,) for one, _ in gone])  # noqa: S608
        self._lists.clear()
        return sum(size for _, size in gone)

    def _make_room(self, db: sqlite3.Connection, holder: Holder, size: int, chunks: int) -> None:
        """Remove snapshots, the longest unused first, until there is room. Raises: NoRoom; then none is removed."""
        live: set[str] | None = None
        while (problem := self._over(db, size, chunks)) is not None:
            live = self._live(holder) if live is None else live
            old_ms = self._now_ms() - PARTIAL_MS  # one just sent may be about to be submitted
            rows = db.execute("SELECT name FROM snapshots WHERE used_ms < ? ORDER BY used_ms", (old_ms,))
            gone = [(name,) for (name,) in rows if name not in live][:8]
            db.executemany("DELETE FROM snapshots WHERE name = ?", gone)
            if not self._sweep(db) and not gone:
                raise NoRoom(problem, hint="jobs that wait or run keep their snapshots: cancel some, or send less")

    def _check_disk(self, size: int) -> None:
        """Raises: StoreFull when too little would be left for the log, which others need more."""
        free = shutil.disk_usage(self._folder).free
        if free - size < KEPT_FREE_BYTES:
            text = f"the server's disk has {free} bytes left, {KEPT_FREE_BYTES} of them are kept for its log"
            raise StoreFull(text, hint="the operator frees space; then send again")

    def _over(self, db: sqlite3.Connection, size: int, chunks: int) -> str | None:
        """Return which limit would be passed, or None."""
        count, used = db.execute("SELECT count(*), coalesce(sum(size), 0) FROM chunks").fetchone()
        lists, listed = db.execute("SELECT count(*), coalesce(sum(size), 0) FROM snapshots").fetchone()
        if used + listed + size > self._quota_bytes:
            return f"your snapshots have {used + listed} bytes, with {size} more that is over {self._quota_bytes}"
        if count + chunks > CHUNKS_MAX:
            return f"your snapshots have {count} chunks, with {chunks} more that is over {CHUNKS_MAX}"
        return f"you have {lists} snapshots, which is the most" if lists >= SNAPSHOTS_MAX else None

    def _check_sizes(self, db: sqlite3.Connection, files: fs.Files) -> None:
        """Raises: InvalidInput when chunks have another size than the list says: it would not be unpacked."""
        sizes = dict(db.execute("SELECT hash, size FROM chunks"))
        for one in files:
            for chunk, size in zip(one.chunks, fs.sizes_of(one), strict=True):
                if sizes[chunk] != size:
                    raise InvalidInput(f"{one.path[:80]!r} has a chunk of {sizes[chunk]} bytes, said to be {size}")

    def _touch(self, db: sqlite3.Connection, name: str) -> bool:
        return db.execute("UPDATE snapshots SET used_ms = ? WHERE name = ?", (self._now_ms(), name)).rowcount > 0

    def _chunks(self, holder: Holder, name: str) -> tuple[bytes, ...]:
        key = (holder, name)
        found = self._lists.get(key)
        if found is None:
            found = fs.chunks_of(fs.decoded(self.files(holder, name)))
            self._lists[key] = found
            while len(self._lists) > LISTS_KEPT:
                with contextlib.suppress(KeyError):
                    self._lists.popitem(last=False)
        return found

    # Its file.

    def _path(self, holder: Holder) -> Path:
        return self._folder / holder / "snapshots.sqlite"

    @contextlib.contextmanager
    def _reading(self, holder: Holder, name: str) -> Iterator[sqlite3.Connection]:
        """Yield the holder's file, to be read; no write waits for that. Raises: NoSnapshot where there is none."""
        path = self._path(holder)
        if not path.exists():
            raise _none(name)
        with _translated(), contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)) as db:
            yield db

    @contextlib.contextmanager
    def _open(self, holder: Holder) -> Iterator[sqlite3.Connection]:
        """Yield the holder's file in one transaction; what raises leaves it as it was."""
        path = self._path(holder)
        if not path.exists():
            self._make(path)
        with _translated(), contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            try:
                if db.execute("PRAGMA user_version").fetchone()[0] < _FORM:
                    for statement in _TO_FORM_2:
                        db.execute(statement)
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _make(self, path: Path) -> None:
        """Make a holder's file: whole under another name, then renamed."""
        with self._making:
            if path.exists():
                return
            make_folder(self._folder)
            make_folder(path.parent)
            new = path.with_suffix(".new")
            new.unlink(missing_ok=True)
            db = sqlite3.connect(new, isolation_level=None)
            try:
                db.execute(f"PRAGMA page_size={PAGE_BYTES}")
                db.execute("PRAGMA auto_vacuum=INCREMENTAL")
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(_TABLES)
            finally:
                db.close()
            new.chmod(0o600)
            new.rename(path)


def _none(name: str) -> NoSnapshot:
    return NoSnapshot(f"there is no snapshot {name[:64]}", hint="send it: penstock submit --snapshot DIR")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of SQLite as ours. Raises: StoreError, StoreFull."""
    try:
        yield
    except sqlite3.Error as error:
        kind = StoreFull if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL else StoreError
        raise kind(f"snapshots cannot be kept now: {error}") from error
