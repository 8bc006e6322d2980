"""The log on SQLite: durability settings, all-or-none, two servers on one folder, readers in other threads."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import StaleEpoch, StoreError, StoreFull
from penstock.core.model.events import LeaderElected, Record
from penstock.store.sqlite import SCHEMA_VERSION, SqliteStore
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


@pytest.mark.parametrize(("pragma", "value"), [("synchronous", 2), ("journal_mode", "wal"), ("user_version", 1)])
def test_every_commit_is_synced_in_full(store, pragma, value):
    assert store._writer.execute(f"PRAGMA {pragma}").fetchone()[0] == value


def test_a_batch_with_one_bad_record_is_not_kept_at_all(store):
    term = store.acquire_epoch()
    store.append(records(1, 2), [], term)
    with pytest.raises(StoreError):
        store.append([record(3), record(2)], [finished(3)], term)
    assert (kept(store), store.outcome(3)) == (records(1, 2), None)


def test_a_job_cannot_end_twice(store):
    term = store.acquire_epoch()
    store.append(records(1, 1), [finished(1)], term)
    with pytest.raises(StoreError):
        store.append(records(2, 2), [finished(1, "failed")], term)
    assert (kept(store), store.outcome(1)) == (records(1, 1), "succeeded")


def test_what_was_appended_is_there_for_the_next_process(tmp_path):
    first = SqliteStore(tmp_path / "log")
    first.append(records(1, 3), [finished(1)], first.acquire_epoch())
    second = SqliteStore(tmp_path / "log")
    assert (kept(second), second.outcome(1), second.acquire_epoch()) == (records(1, 3), "succeeded", 2)
    first.close()
    second.close()


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12))
def test_of_two_servers_only_the_newest_ever_commits(steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    stores, terms, length = [SqliteStore(folder), SqliteStore(folder)], [-1, -1], 0
    for who, begins in steps:
        if begins:
            terms[who] = stores[who].acquire_epoch()
        elif terms[who] == max(terms) > 0:
            length += 1
            stores[who].append(records(length, length), [], terms[who])
        else:
            with pytest.raises(StaleEpoch):
                stores[who].append(records(length + 1, length + 1), [], terms[who])
    assert kept(stores[0]) == records(1, length)
    for made in stores:
        made.close()


def test_a_really_full_disk_is_named_and_nothing_is_half_done(small_disk):
    store = SqliteStore(small_disk / "log")
    term = store.acquire_epoch()
    store.append(records(1, 1), [], term)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (700 << 10))
    big = [record(seq, "x" * 5_000) for seq in range(2, 150)]
    with pytest.raises(StoreFull, match="full"):
        store.append(big, [finished(2)], term)
    assert (kept(store), store.outcome(2)) == (records(1, 1), None)
    ballast.unlink()
    store.append(records(2, 9), [finished(2)], term)
    assert (kept(store), store.outcome(2)) == (records(1, 9), "succeeded")
    store.close()


def test_the_log_of_a_newer_program_is_refused_and_left_alone(tmp_path):
    SqliteStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(StoreError, match=f"has schema {SCHEMA_VERSION + 1}") as refused:
        SqliteStore(tmp_path)
    assert refused.value.hint == "use the newer program that wrote it"


def test_a_file_that_is_no_log_is_refused(tmp_path):
    (tmp_path / "log.sqlite").write_bytes(b"not a database, " * 1000)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(tmp_path)


def test_readers_in_other_threads_see_whole_batches_while_it_grows(store):
    term, problems, over = store.acquire_epoch(), [], threading.Event()

    def read() -> None:
        while not over.is_set():
            seen = [r.seq for r in store.records(0, 1_000)]
            if seen != list(range(1, len(seen) + 1)) or len(seen) % 4:
                problems.append(seen)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for first in range(1, 160, 4):
        store.append(records(first, first + 3), [], term)
    over.set()
    for reader in readers:
        reader.join(10)
    assert (problems, len(store.records(0, 1_000))) == ([], 160)


def test_a_reader_cannot_write(store):
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store._reader().execute("DELETE FROM events")


def test_reads_begin_after_a_number_and_end_at_the_limit(store):
    store.append(records(1, 9), [], store.acquire_epoch())
    assert [r.seq for r in store.records(3, 4)] == [4, 5, 6, 7]
    assert store.records(9, 4) == []


def test_the_records_of_a_job_are_those_about_it_and_no_others(store):
    election = Record(3, 2_000, LeaderElected(1, "server"))
    store.append([*records(1, 2), election], [], store.acquire_epoch())
    assert (store.records_of_job(2), store.records_of_job(9)) == ([record(2)], [])


def test_finished_jobs_come_newest_first_and_page_by_page(store):
    store.append(records(1, 5), [finished(i) for i in (2, 5, 1, 4)], store.acquire_epoch())
    assert [j.id for j in store.finished_jobs(3)] == [5, 4, 2]
    assert [j.id for j in store.finished_jobs(3, before=2)] == [1]
    assert (store.finished_job(4), store.finished_job(3)) == (finished(4), None)


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
