"""The log on PostgreSQL: connections that are lost, a database that is restarted, and what must never be said."""

import logging
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.core.model.errors import InvalidInput, StaleEpoch, StoreError, StoreFull
from penstock.store import pgconnect
from penstock.store.postgres import PostgresStore
from tests import postgres
from tests.smalldisk import small_file_system
from tests.store.builders import finished, kept, record, records
from tests.store.cutting import Cutter
from tests.store.places import PostgresPlace, opened


@pytest.fixture
def place() -> Iterator[PostgresPlace]:
    yield from opened(PostgresPlace, None)


@pytest.fixture
def cutter(place: PostgresPlace) -> Iterator[Cutter]:
    made = Cutter(place.url)
    yield made
    made.close()


@pytest.fixture
def store(cutter: Cutter) -> Iterator[PostgresStore]:
    made = PostgresStore(cutter.url)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[postgres.Postgres]:
    """A server that the test may end."""
    with postgres.own() as made:
        yield made


def setting(connection: psycopg.Connection, name: str) -> str:
    return connection.execute(f"SHOW {name}").fetchone()[0]


@pytest.mark.parametrize(("given", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
def test_a_commit_is_durable_whatever_the_database_is_set_to(place, given, used):
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE penstock IN DATABASE {connection.info.dbname} SET synchronous_commit = {given}")
    assert setting(place.open()._write(), "synchronous_commit") == used


def test_a_database_that_may_lose_what_it_was_told_is_complained_of(place, caplog):
    place.open()
    assert "the database runs with fsync=off: a power cut can lose accepted jobs" in caplog.text
    assert "full_page_writes" not in caplog.text


def test_terms_are_told_apart_whatever_the_database_is_set_to(place):
    with psycopg.connect(place.url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    assert setting(place.open()._write(), "transaction_isolation") == "read committed"


def test_a_reader_cannot_write(place):
    with pytest.raises(StoreError, match="takes no writes"):
        place.open()._readers.fetch("DELETE FROM events RETURNING seq")


def test_a_commit_whose_answer_was_lost_is_in_the_log_once(store, cutter):
    term = store.acquire_epoch()
    cutter.cut = "before the answer"
    with pytest.raises(StoreError, match="connection to the database was lost"):
        store.append(records(1, 3), [finished(1)], term)
    assert (kept(store), store.outcomes([1])) == (records(1, 3), {1: "succeeded"})
    store.append(records(4, 4), [], term)
    assert kept(store) == records(1, 4)


def test_a_commit_that_never_arrived_is_not_in_the_log(store, cutter):
    term = store.acquire_epoch()
    cutter.cut = "before the request"
    with pytest.raises(StoreError):
        store.append(records(1, 3), [], term)
    assert kept(store) == []
    store.append(records(1, 2), [], term)
    assert kept(store) == records(1, 2)


def test_a_commit_that_is_still_on_its_way_is_stopped_before_the_log_is_read(store, cutter):
    term = store.acquire_epoch()
    cutter.cut = "held"
    with pytest.raises(StoreError):
        store.append(records(1, 3), [], term)
    assert kept(store) == []
    assert not cutter.release()
    assert kept(store) == []


def test_the_session_of_somebody_else_is_never_ended(store, cutter, place):
    """The number of a lost session may have been given to another since."""
    store.acquire_epoch()
    with psycopg.connect(place.url) as other:
        store._writer.close()
        store._session = (other.info.backend_pid, store._session[1])
        store.acquire_epoch()
        assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
def test_it_goes_on_after_the_database_was_restarted(server, how):
    store = PostgresStore(server.database())
    term = store.acquire_epoch()
    store.append(records(1, 2), [finished(1)], term)
    assert store.finished_job(1) == finished(1)
    server.restart(how)
    assert store.finished_job(1) == finished(1)
    with pytest.raises(StoreError):
        store.append(records(3, 3), [], term)
    assert kept(store) == records(1, 2)
    store.append(records(3, 3), [], term)
    assert kept(store) == records(1, 3)
    store.close()


def test_a_database_that_is_away_is_an_error_and_no_more(server):
    store = PostgresStore(server.database())
    term = store.acquire_epoch()
    server.stop()
    for ask in (
        lambda: store.append(records(1, 1), [], term),
        store.load,
        lambda: store.records(0, 1),
        lambda: store.save_projection("p", 1, b""),
    ):
        with pytest.raises(StoreError):
            ask()
    server.start()
    store.append(records(1, 1), [], term)
    assert kept(store) == records(1, 1)
    store.close()


def test_killing_sessions_at_random_never_loses_or_doubles_a_record(place):
    """Sessions are ended while batches are committed; after each failure the log is read, as the controller does."""
    store, over, chance = place.open(), threading.Event(), random.Random(7)
    term, length, failures = store.acquire_epoch(), 0, 0

    def kill() -> None:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        while not over.wait(chance.uniform(0, 0.01)):
            place.ask(query + " AND pid <> pg_backend_pid()")

    killer = threading.Thread(target=kill)
    killer.start()
    while failures < 40:
        count = chance.randint(1, 50)
        try:
            store.append(records(length + 1, length + count), [], term)
            length += count
        except StoreError:
            failures += 1
            there = _eventually(store)
            assert there in (length, length + count)
            length = there
    over.set()
    killer.join()
    assert kept(store) == records(1, length)


def _eventually(store: PostgresStore) -> int:
    while True:
        try:
            return len(kept(store))
        except StoreError:
            continue


def test_a_server_that_stands_still_holds_up_no_other(place):
    """Its last statement was a transaction of its own: nothing is locked between two of them."""
    paused, other = place.open(), place.open()
    term = paused.acquire_epoch()
    paused.append(records(1, 1), [], term)
    paused.append([], [], term)
    next_term = other.acquire_epoch()
    other.append(records(2, 2), [], next_term)
    with pytest.raises(StaleEpoch, match=f"term {term} has ended: term {next_term} has begun"):
        paused.append(records(3, 3), [], term)


def test_a_commit_waits_for_a_term_that_is_just_beginning_and_is_refused(place):
    store = place.open()
    term = store.acquire_epoch()
    with psycopg.connect(place.url) as other:
        other.execute("UPDATE term SET epoch = epoch + 1")
        refused: list[StaleEpoch] = []

        def commit() -> None:
            with pytest.raises(StaleEpoch) as told:
                store.append(records(1, 1), [], term)
            refused.append(told.value)

        committing = threading.Thread(target=commit)
        committing.start()
        while not place.ask("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert committing.is_alive()
        other.commit()
        committing.join(10)
    assert (kept(store), len(refused)) == ([], 1)


@pytest.mark.parametrize("url", ["postgresql://u:s3cret@h/d?nonsense=1", "postgresql://u:s3cret%ZZ@h/d"])
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(InvalidInput) as refused:
        pgconnect.connect(url)
    assert "s3cret" not in f"{refused.value.message} {refused.value.hint} {refused.value.__context__!r}"


def test_no_message_and_no_log_line_holds_the_password(caplog):
    url = "postgresql://penstock:s3cret@127.0.0.1:1/db?connect_timeout=2"
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError) as failed:
        pgconnect.connect(url)
    assert failed.value.hint == "at postgresql://127.0.0.1:1/db"
    assert "s3cret" not in failed.value.message + repr(failed.value.__context__) + caplog.text


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that the database's account may enter: each start of pytest closes its own folders to all others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_a_really_full_disk_of_the_database_is_named_and_nothing_is_half_done(server, outside):
    with small_file_system(outside / "disk", "8m") as folder:
        folder.chmod(0o700)
        if server._user:
            shutil.chown(folder, server._user)
        url = server.database()
        server.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        server.execute(f"ALTER DATABASE {url.partition('?')[0].rpartition('/')[2]} SET default_tablespace = small")
        store = PostgresStore(url)
        term = store.acquire_epoch()
        store.append(records(1, 1), [], term)
        big = [record(seq, random.Random(seq).randbytes(20_000).hex()) for seq in range(2, 400)]
        with pytest.raises(StoreFull, match="full"):
            store.append(big, [finished(1)], term)
        assert (kept(store), store.outcomes([1])) == (records(1, 1), {})
        store.append(records(2, 2), [], term)
        store.close()
        server.stop()
