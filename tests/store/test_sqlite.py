"""The log on SQLite: durability settings, a really full disk, locks of other processes."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.model.errors import StoreError, StoreFull
from penstock.store.migrations import SCHEMA_VERSION
from penstock.store.sqlite import SqliteStore
from tests.smalldisk import small_file_system
from tests.store.builders import finished, kept, record, records


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    with small_file_system(tmp_path / "disk", "1m") as folder:
        yield folder


@pytest.mark.parametrize(
    ("pragma", "value"), [("synchronous", 2), ("journal_mode", "wal"), ("user_version", SCHEMA_VERSION)]
)
def test_every_commit_is_synced_in_full(store, pragma, value):
    assert store._writer.execute(f"PRAGMA {pragma}").fetchone()[0] == value


def test_a_really_full_disk_is_named_and_nothing_is_half_done(small_disk):
    store = SqliteStore(small_disk / "log")
    term = store.acquire_epoch()
    store.append(records(1, 1), [], term)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (700 << 10))
    big = [record(seq, "x" * 5_000) for seq in range(2, 150)]
    with pytest.raises(StoreFull, match="full"):
        store.append(big, [finished(2)], term)
    assert (kept(store), store.outcomes([2])) == (records(1, 1), {})
    ballast.unlink()
    store.append(records(2, 9), [finished(2)], term)
    assert (kept(store), store.outcomes([2])) == (records(1, 9), {2: "succeeded"})
    store.close()


def test_a_file_that_is_no_log_is_refused(tmp_path):
    (tmp_path / "log.sqlite").write_bytes(b"not a database, " * 1000)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(tmp_path)


def test_a_log_that_cannot_be_read_is_an_error_of_the_store(tmp_path):
    SqliteStore(tmp_path).close()
    store = SqliteStore(tmp_path)
    path = tmp_path / "log.sqlite"
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * (pages - 1))
    reads = [
        store.load,
        lambda: store.records(0, 10),
        lambda: store.records_of_job(1),
        lambda: store.outcomes([1]),
        lambda: store.finished_jobs(10),
        lambda: store.projection("x"),
    ]
    for read in reads:
        with pytest.raises(StoreError, match="could not be read"):
            read()
    store.close()


def test_a_reader_cannot_write(store):
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store._reader().execute("DELETE FROM events")


def test_a_commit_waits_for_a_short_lock_of_another_process(store, tmp_path):
    term = store.acquire_epoch()
    other = sqlite3.connect(tmp_path / "log" / "log.sqlite", check_same_thread=False, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.05, lambda: other.execute("ROLLBACK"))
    timer.start()
    store.append(records(1, 1), [], term)
    timer.join()
    other.close()
    assert kept(store) == records(1, 1)
