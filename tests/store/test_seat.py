"""Which of several servers on one database leads: one at a time, whoever is silent loses it, and a term ends it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from penstock.core.model.errors import StaleEpoch, StoreError
from penstock.store import pgseat
from penstock.store.pgseat import PostgresSeat
from tests import postgres
from tests.store.builders import records
from tests.store.places import PostgresPlace, opened

WAIT_S = 20.0


@pytest.fixture
def place() -> Iterator[PostgresPlace]:
    for made in opened(PostgresPlace, None):
        made.open()
        yield made


@pytest.fixture
def seat(place: PostgresPlace) -> Iterator[Callable[..., PostgresSeat]]:
    """Makes seats in one database, and leaves them in the end."""
    made: list[PostgresSeat] = []

    def make(name: str, url: str = "") -> PostgresSeat:
        made.append(PostgresSeat(url or place.url, name=name, address=f"http://{name}:1"))
        return made[-1]

    yield make
    for each in made:
        each.leave()


def until(found: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def fail(error: BaseException) -> None:
    raise AssertionError("the seat was lost") from error


def silent(seat: PostgresSeat) -> None:
    """Let a server that holds the seat stand still: its sessions stay, and it does nothing more."""
    seat._ending.set()
    if seat._keeper is not None:
        seat._keeper.join()


def test_of_many_that_ask_at_once_one_gets_it(seat):
    seats, won = [seat(f"s{i}") for i in range(6)], []
    threads = [threading.Thread(target=lambda s=s: won.append(s) if s.take() else None) for s in seats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert [s for s in seats if s.take()] == won


def test_the_others_are_told_where_it_is(seat):
    leader, other = seat("one"), seat("two")
    assert (other.leader(), leader.take(), other.take()) == ("", True, False)
    assert other.leader() == "http://one:1"


def test_who_leaves_gives_it_up_at_once(seat):
    leader, other = seat("one"), seat("two")
    leader.take()
    leader.hold(1, fail)
    leader.leave()
    assert other.take()


def test_who_dies_loses_it_at_once(seat, place):
    leader, other = seat("one"), seat("two")
    assert (leader.take(), other.take()) == (True, False)
    leader._connection.close()  # as the kernel does it for a process that was killed
    until(other.take, "the other has the seat")


def test_who_renews_keeps_it(seat, place, monkeypatch):
    monkeypatch.setattr(pgseat, "LEASE_S", 0.5)
    monkeypatch.setattr(pgseat, "RENEW_S", 0.05)
    leader, other = seat("one"), seat("two")
    term = place.open().acquire_epoch()
    leader.take()
    leader.hold(term, fail)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert not other.take()


def test_it_is_kept_while_a_long_log_is_still_being_read(seat, monkeypatch):
    monkeypatch.setattr(pgseat, "LEASE_S", 0.4)
    monkeypatch.setattr(pgseat, "RENEW_S", 0.05)
    leader, other = seat("one"), seat("two")
    leader.take()
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        assert not other.take()


def test_who_is_silent_loses_it_though_its_session_lives(seat, place, monkeypatch):
    monkeypatch.setattr(pgseat, "LEASE_S", 0.3)
    leader, other = seat("one"), seat("two")
    store = place.open()
    term = store.acquire_epoch()
    leader.take()
    leader.hold(term, fail)
    silent(leader)
    assert not other.take()
    begin = time.monotonic()
    until(other.take, "the other has the seat")
    assert time.monotonic() - begin >= 0.25  # never sooner than a lease after its last sign of life
    assert other.leader() == "http://two:1"


def test_a_silent_server_that_goes_on_finds_that_it_has_lost_the_seat(seat, place, monkeypatch):
    monkeypatch.setattr(pgseat, "LEASE_S", 0.2)
    leader, other = seat("one"), seat("two")
    store, next_store = place.open(), place.open()
    term = store.acquire_epoch()
    leader.take()
    silent(leader)
    until(other.take, "the other has the seat")
    next_store.acquire_epoch()
    lost: list[BaseException] = []
    leader._ending.clear()
    leader.hold(term, lost.append)
    until(lambda: lost, "it is told")
    assert isinstance(lost[0], StaleEpoch)
    with pytest.raises(StaleEpoch):
        store.append(records(1, 1), [], term)
    assert not leader._held


def test_a_standby_that_itself_stood_still_does_not_take_over_from_a_leader_that_renewed(seat, place, monkeypatch):
    monkeypatch.setattr(pgseat, "LEASE_S", 0.3)
    monkeypatch.setattr(pgseat, "RENEW_S", 0.05)
    leader, other = seat("one"), seat("two")
    leader.take()
    leader.hold(place.open().acquire_epoch(), fail)
    assert not other.take()
    time.sleep(0.5)  # it stands still for longer than a lease: that is what is tried
    assert not other.take()


def test_a_leader_whose_session_was_lost_takes_the_seat_again(seat, place, monkeypatch):
    monkeypatch.setattr(pgseat, "RENEW_S", 0.02)
    leader, other = seat("one"), seat("two")
    leader.take()
    leader.hold(place.open().acquire_epoch(), fail)
    for _ in range(5):
        place.ask("SELECT pg_terminate_backend(pid) FROM leader")
        pid = place.ask("SELECT pid FROM leader")
        until(lambda old=pid: place.ask("SELECT pid FROM leader") != old, "it sits on another session")
        until(lambda: leader._held, "it has the lock")
    assert not other.take()


def test_after_the_database_was_restarted_the_leader_still_leads(monkeypatch):
    monkeypatch.setattr(pgseat, "RENEW_S", 0.05)
    with postgres.own() as server, contextlib.ExitStack() as stack:
        url = server.database()
        from penstock.store.postgres import PostgresStore

        store = PostgresStore(url)
        stack.callback(store.close)
        leader, other = (PostgresSeat(url, name=name, address=name) for name in ("one", "two"))
        stack.callback(leader.leave)
        stack.callback(other.leave)
        leader.take()
        leader.hold(store.acquire_epoch(), fail)
        assert not other.take()
        server.restart()
        deadline = time.monotonic() + 2 * pgseat.RETURN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(StoreError):
                assert not other.take()
            time.sleep(0.02)
        assert leader._held


def test_who_waited_lets_the_leader_come_back_first_however_long_the_database_was_away(monkeypatch):
    monkeypatch.setattr(pgseat, "RETURN_S", 0.5)
    with postgres.own() as server, contextlib.ExitStack() as stack:
        url = server.database()
        from penstock.store.postgres import PostgresStore

        PostgresStore(url).close()
        leader, other = (PostgresSeat(url, name=name, address=name) for name in ("one", "two"))
        stack.callback(leader.leave)
        stack.callback(other.leave)
        leader.take()
        assert not other.take()
        silent(leader)
        server.stop()
        end = time.monotonic() + 2 * pgseat.RETURN_S
        while time.monotonic() < end:
            with pytest.raises(StoreError):
                other.take()
            last = time.monotonic()
        server.start()
        until(other.take, "the other has the seat")
        assert time.monotonic() - last >= pgseat.RETURN_S


def test_two_logs_in_one_database_have_a_seat_each(place, seat):
    """Each in a schema of its own."""
    place.ask("CREATE SCHEMA second")
    url = f"{place.url}&options=-csearch_path%3Dsecond"
    from penstock.store.postgres import PostgresStore

    other = PostgresStore(url)
    other.append(records(1, 2), [], other.acquire_epoch())
    assert (seat("one").take(), seat("two", url).take()) == (True, True)
    assert place.open().records(0, 9) == []
    other.close()


def test_a_seat_in_a_database_that_is_away_is_an_error(place):
    seat = PostgresSeat("postgresql://penstock@/d?host=/nowhere", name="x", address="x")
    with pytest.raises(StoreError):
        seat.take()
    seat.leave()
    with psycopg.connect(place.url) as connection:
        assert connection.execute("SELECT count(*) FROM leader").fetchone() == (0,)
