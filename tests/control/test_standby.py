"""A controller beside another: it follows the log, says who leads, and takes over with all that is in the log."""

import queue
import random
import threading
from typing import Any

import pytest

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.service import ControlService
from penstock.control.standby import LOOK_MS, Standby
from penstock.core.messages.requests import Submitted
from penstock.core.model.errors import StaleEpoch, StoreError
from penstock.core.model.events import LeaderElected
from penstock.core.model.ids import UserName
from penstock.core.model.jobs import Dependency
from penstock.core.state.state import fold
from penstock.sim.world.disk import SimDisk
from tests.control.rig import Clock, Rig, submit
from tests.store.builders import same


class Seats:
    """A seat that a test gives and takes."""

    def __init__(self) -> None:
        self.free, self.at, self.held = False, "http://other:1", queue.SimpleQueue[int]()

    def take(self) -> bool:
        return self.free

    def leader(self) -> str:
        return self.at

    def hold(self, epoch: int, on_lost: Any) -> None:
        self.held.put(epoch)

    def leave(self) -> None:
        self.free = False


class Flaky(SimDisk):
    """A log that may be away, and may keep what it says that it did not."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.away, self.lose_answer = False, False

    def append(self, records: Any, finished: Any, epoch: Any) -> None:
        if self.away:
            raise StoreError("the log is away")
        super().append(records, finished, epoch)
        if self.lose_answer:
            self.away, self.lose_answer = True, False
            raise StoreError("nobody can say")

    def load(self) -> Any:
        if self.away:
            raise StoreError("the log is away")
        return super().load()

    def tail(self, after: int) -> Any:
        if self.away:
            raise StoreError("the log is away")
        return super().tail(after)

    def outcomes(self, job_ids: Any) -> Any:
        if self.away:
            raise StoreError("the log is away")
        return super().outcomes(job_ids)


@pytest.fixture
def leader() -> Rig:
    return Rig("a", store=Flaky())


@pytest.fixture
def other(leader: Rig) -> Controller:
    return Controller(leader.store, leader.clock, name="d", check_invariants=True)


def failed(reply: Any) -> str:
    assert isinstance(reply, msg.RequestFailed)
    return reply.code


def test_what_follows_has_the_state_of_what_leads(leader, other):
    leader.running()
    other.follow()
    assert same(other.state, leader.state)
    for _ in range(3):
        leader.submit()
        leader.cycle()
    other.follow()
    assert same(other.state, leader.state)
    assert (other.leads, leader.controller.leads) == (False, True)


def test_following_returns_what_is_new_and_nothing_twice(leader, other):
    other.follow()
    seq = other.state.seq
    leader.submit()
    assert [r.seq for r in other.follow()] == list(range(seq + 1, leader.state.seq + 1))
    assert other.follow() == ()


def test_a_takeover_goes_on_from_what_was_followed(leader, other):
    leader.running()
    other.follow()
    job = leader.submit()  # committed, and not followed yet
    leader.store.load = lambda: pytest.fail("the log is not read from its beginning")
    (elected,) = other.open()
    assert (elected.event.epoch, other.epoch) == (2, 2)
    assert job in other.state.jobs
    assert same(other.state, fold(leader.store.records))
    with pytest.raises(StaleEpoch):
        leader.submit()


def test_nodes_keep_a_whole_lease_when_another_takes_over(leader, other):
    other.follow()
    leader.clock.now += 5_000
    other.open()
    assert other.leases.left_ms("a", leader.clock.now) == other.state.config.settings.lease_ttl_ms


def test_a_takeover_that_fails_half_way_can_be_tried_again(leader, other):
    other.follow()
    leader.store.lose_answer = True
    with pytest.raises(StoreError):
        other.open()
    assert other.behind
    leader.store.away = False
    other.open()
    assert (other.behind, same(other.state, fold(leader.store.records))) == (False, True)


def test_a_takeover_that_was_tried_for_long_gives_every_node_a_whole_lease(leader, other):
    other.follow()
    leader.store.lose_answer = True
    with pytest.raises(StoreError):
        other.open()
    leader.store.away = False
    leader.clock.now += 60_000
    other.open()
    assert other.leases.left_ms("a", leader.clock.now) == other.state.config.settings.lease_ttl_ms


def test_a_log_that_goes_away_while_a_group_is_decided_fails_it_whole(leader):
    leader.exit(leader.running())
    leader.store.away = True
    handled = leader.handle(submit(), submit(after=(Dependency(1, "after_ok"),)))
    assert [failed(reply) for reply in handled.replies] == ["store_unavailable"] * 2
    assert leader.controller.behind
    leader.store.away = False
    assert leader.ask(submit(after=(Dependency(1, "after_ok"),))) == Submitted((2,))
    assert leader.fits_log()


def test_a_commit_that_had_seemed_to_fail_is_in_the_state_and_told(leader):
    leader.store.lose_answer = True
    handled = leader.handle(submit(key="k"))
    assert [failed(reply) for reply in handled.replies] == ["store_unavailable"]
    assert (handled.records, leader.controller.behind, leader.controller.plan_clock.wanted) == ((), True, False)
    leader.store.away = False
    again = leader.handle(submit(key="k"))
    (reply,) = again.replies
    assert isinstance(reply, Submitted)
    assert reply.repeated
    assert [r.seq for r in again.records] == [leader.state.seq]
    assert leader.fits_log()


def test_while_the_log_is_away_nothing_is_decided(leader):
    leader.store.away = True
    before = len(leader.store.records)
    for _ in range(3):
        assert [failed(r) for r in leader.handle(submit(), msg.Cancel(1, UserName("x"))).replies] == [
            "store_unavailable"
        ] * 2
        assert not leader.controller.snapshot_due()
    leader.store.away = False
    assert leader.submit() == 1
    assert (len(leader.store.records), leader.controller.plan_clock.wanted) == (before + 1, True)
    assert leader.fits_log()


def test_a_log_that_cannot_be_read_leaves_the_state_whole(leader, other):
    other.follow()
    state = other.state
    leader.submit()
    leader.store.away = True
    with pytest.raises(StoreError):
        other.follow()
    assert other.state is state
    leader.store.away = False
    other.follow()
    assert same(other.state, leader.state)


# The live driver.


@pytest.fixture
def standby(leader: Rig, other: Controller) -> Standby:
    other.follow()
    return Standby(other, Seats(), leader.clock)


def test_what_would_change_something_is_sent_to_who_leads(standby):
    reply = standby.answer(submit())
    assert isinstance(reply, msg.RequestFailed)
    assert (reply.code, reply.leader) == ("not_leader", "http://other:1")
    assert reply.hint == "the server at http://other:1 leads"


def test_where_nobody_leads_the_answer_says_so(standby):
    standby._seat.at = ""
    reply = standby.answer(submit())
    assert (reply.code, reply.leader, "come back" in reply.hint) == ("not_leader", "", True)


def test_what_only_reads_is_answered(standby, leader):
    assert standby.answer(msg.TakeImage()).image.seq == leader.state.seq
    assert standby.answer(msg.NoteEstimates(0, ())) == msg.Done(found=False)


def test_the_log_is_looked_at_now_and_then(standby, leader):
    leader.submit()
    leader.clock.now += LOOK_MS
    assert len(standby.look()) == 1
    leader.submit()
    assert (standby.look(), standby.wait_ms()) == ((), LOOK_MS)
    leader.clock.now += LOOK_MS
    assert len(standby.look()) == 1


def test_a_standby_waits_while_the_log_is_away(standby, leader):
    leader.clock.now += LOOK_MS
    leader.store.away = True
    assert standby.look() == ()
    leader.store.away, standby._seat.free = False, True
    leader.clock.now += LOOK_MS
    (elected,) = standby.look()
    assert isinstance(elected.event, LeaderElected)


class Machine(Clock):
    """A clock that goes on by itself."""

    def monotonic_ms(self) -> int:
        import time

        return time.monotonic_ns() // 1_000_000


class Nothing:
    def send(self, orders: Any) -> None:
        pass


def test_a_service_stands_by_until_it_has_the_seat_and_leads_then():
    leader, seats, led = Rig("a"), Seats(), threading.Event()
    other = Controller(leader.store, Machine(), name="d")
    other.follow()
    faults: list[BaseException] = []
    service = ControlService(
        other, leader.store, Nothing(), Machine(), on_fault=faults.append, seat=seats, on_lead=led.set
    )
    assert service.shares_log
    service.start()
    replies: queue.SimpleQueue[msg.Reply] = queue.SimpleQueue()
    try:
        service.ask(submit(), replies.put)
        assert failed(replies.get(timeout=10)) == "not_leader"
        assert not led.is_set()
        seats.free = True
        assert led.wait(10)
        assert seats.held.get(timeout=10) == other.epoch == 2
        service.ask(submit(), replies.put)
        assert isinstance(replies.get(timeout=10), Submitted)
    finally:
        service.stop()
    assert faults == []


def test_a_service_that_only_stands_by_ends_when_it_is_asked_to_and_keeps_no_snapshot():
    leader = Rig("a")
    other = Controller(leader.store, Machine(), name="d")
    other.follow()
    service = ControlService(other, leader.store, Nothing(), Machine(), on_fault=lambda _: None, seat=Seats())
    service.start()
    service.stop()
    assert leader.store.snapshot is None
    assert leader.submit() == 1
