"""The live driver: two threads that never wait for each other longer than a commit."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.control import inbox
from penstock.control import messages as msg
from penstock.control import service as service_module
from penstock.control.inbox import InboxFull
from penstock.control.service import ControlService
from penstock.core.messages.requests import Submitted
from penstock.core.model.errors import BrokenInvariant, StoreError
from penstock.core.order.turns import Share
from tests.control.rig import Rig, submit
from tests.core.builders import config
from tests.server.harness import until

WAIT_S = 10


class Live:
    """A service over a rig; `said` is everything that happened, in order."""

    def __init__(self) -> None:
        self.rig = Rig("a")
        self.said: list[Any] = []
        self.faults: list[BaseException] = []
        self.answers: list[msg.Reply] = []
        self._started = False
        append = self.rig.store.append
        self.rig.store.append = lambda records, *rest: (append(records, *rest), self._commit(records))
        self.service = ControlService(
            self.rig.controller, self.rig.store, self, self.rig.clock, on_fault=self._fault, on_records=self._logged
        )

    def _commit(self, records: Any) -> None:
        self.said += [("commit", len(records))] if records else []

    def _logged(self, records: Any) -> None:
        self.said.append(("records", len(records)))

    def _fault(self, error: BaseException) -> None:
        self.faults.append(error)

    def send(self, orders: Any) -> None:
        self.said.append(("orders", len(orders)))

    def start(self) -> None:
        self._started = True
        self.service.start()

    def ask(self, request: msg.Request) -> Callable[[], Any]:
        """Queue a request and return how to wait for its reply."""
        answered, found = threading.Event(), []

        def on_reply(reply: msg.Reply) -> None:
            self.said.append("reply")
            found.append(reply)
            answered.set()

        def wait() -> Any:
            assert answered.wait(WAIT_S), "never answered"
            return found[0]

        self.service.ask(request, on_reply)
        return wait

    def stop(self) -> None:
        if self._started:
            self._started = False
            self.service.stop()


@pytest.fixture
def live() -> Iterator[Live]:
    made = Live()
    yield made
    made.stop()


@pytest.fixture
def slow_planner(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """(a cycle has begun, let it end)."""
    began, may_end, real = threading.Event(), threading.Event(), service_module.Chooser.plan

    def slow(*args: Any) -> Any:
        began.set()
        assert may_end.wait(WAIT_S)
        return real(*args)

    monkeypatch.setattr(service_module.Chooser, "plan", slow)
    yield began, may_end
    may_end.set()


def test_a_reply_is_given_after_the_commit_and_after_the_readers_know(live):
    asked = live.ask(submit())
    live.start()
    asked()
    assert live.said[:3] == [("commit", 1), ("records", 1), "reply"]


def test_orders_go_out_after_the_commit_that_calls_for_them(live):
    live.start()
    live.ask(submit())()
    until(lambda: ("orders", 1) in live.said, "a start is ordered")
    assert live.said[:5] == [("commit", 1), ("records", 1), "reply", ("commit", 1), ("orders", 1)]


def test_what_waits_together_is_committed_together(live):
    asked = [live.ask(submit()) for _ in range(50)]
    live.start()
    assert [wait().job_ids[0] for wait in asked] == list(range(1, 51))
    assert live.said[0] == ("commit", 50)


def test_a_group_has_a_bound(live, monkeypatch):
    monkeypatch.setattr(inbox, "GROUP_MAX", 20)
    asked = [live.ask(submit()) for _ in range(50)]
    live.start()
    assert all(isinstance(wait(), Submitted) for wait in asked)
    assert max(count for kind, count in (s for s in live.said if s != "reply") if kind == "commit") == 20


def test_a_slow_planner_holds_up_neither_a_submit_nor_a_heartbeat(live, slow_planner):
    began, _ = slow_planner
    live.start()
    assert began.wait(WAIT_S)
    assert live.ask(submit())() == Submitted((1,))
    assert live.ask(live.rig.message("a"))().accepted
    assert live.rig.state.jobs[1].state == "waiting"


def test_only_one_cycle_is_planned_at_a_time(live, slow_planner):
    began, may_end = slow_planner
    taken, snapshot = [], live.rig.controller.snapshot
    live.rig.controller.snapshot = lambda: taken.append(1) or snapshot()
    live.start()
    assert began.wait(WAIT_S)
    for _ in range(3):
        live.ask(submit())()
    assert len(taken) == 1
    may_end.set()
    until(lambda: len(taken) == 2, "the next cycle begins")


def test_more_than_the_inbox_holds_is_refused_at_once(live, monkeypatch):
    monkeypatch.setattr(live.service._inbox._requests, "_share", Share(9, 9, 2))
    asked = [live.ask(submit()), live.ask(submit())]
    with pytest.raises(InboxFull) as refused:
        live.ask(submit())
    assert (refused.value.code, refused.value.hint) == ("overloaded", "come back in a moment")
    live.start()
    assert [wait() for wait in asked] == [Submitted((1,)), Submitted((2,))]


def test_stop_answers_everything_that_was_asked(live):
    asked = [live.ask(submit()) for _ in range(1_100)]
    live.start()
    live.stop()
    assert [wait().job_ids[0] for wait in asked] == list(range(1, 1_101))


def test_stop_answers_what_was_asked_just_before_it(live):
    busy, may_go_on = threading.Event(), threading.Event()
    live.service.ask(submit(), lambda reply: (busy.set(), may_go_on.wait(WAIT_S)))
    live.start()
    assert busy.wait(WAIT_S)
    asked = [live.ask(submit()) for _ in range(3)]
    ending = threading.Thread(target=live.stop)
    ending.start()
    until(lambda: live.service._inbox.ending, "the end is asked for")
    may_go_on.set()
    ending.join(WAIT_S)
    assert [wait().job_ids[0] for wait in asked] == [2, 3, 4]


def test_stop_keeps_a_snapshot_of_all(live):
    live.start()
    live.ask(submit())()
    live.stop()
    assert live.rig.store.load()[0].seq == len(live.rig.store.records)


def test_a_snapshot_is_kept_after_so_many_records(live, monkeypatch):
    monkeypatch.setattr("penstock.control.controller.SNAPSHOT_EVERY_RECORDS", 5)
    saved = threading.Event()
    live.rig.store.save_snapshot = lambda image: saved.set()
    live.start()
    for _ in range(6):
        live.ask(submit())()
    assert saved.wait(WAIT_S)


def test_a_snapshot_that_cannot_be_kept_stops_nothing(live):
    def fail(image: Any) -> None:
        raise StoreError("no room")

    live.rig.store.save_snapshot = fail
    live.start()
    live.stop()
    assert live.faults == []


def test_after_a_failed_commit_of_a_plan_another_cycle_is_made(live):
    live.start()
    live.rig.store.full = True
    live.ask(submit())()
    live.rig.store.full = False
    live.ask(submit())()
    until(lambda: "AttemptAllocated" in live.rig.events(), "the job is allocated")


def test_a_broken_invariant_is_told_and_ends_the_loop(live):
    live.rig.state.derived.beneficiaries.add(77)
    live.service.ask(submit())
    live.start()
    live.stop()
    assert [type(f) for f in live.faults] == [BrokenInvariant]


def test_a_stale_controller_tells_its_process_to_end(live):
    Rig(store=live.rig.store, clock=live.rig.clock)
    live.service.ask(submit())
    live.start()
    live.stop()
    assert [f.code for f in live.faults] == ["stale_epoch"]


def test_time_passes_without_being_asked(live, monkeypatch):
    monkeypatch.setattr(service_module, "TICK_MS", 0)
    live.rig.clock.now += 60_000
    lost = threading.Event()
    live.service._on_records = lambda records: lost.set()
    live.start()
    assert lost.wait(WAIT_S)
    assert live.rig.state.nodes["a"].state == "lost"


def test_jobs_gather_where_a_cycle_calls_for_no_haste(live):
    rig = live.rig
    rig.ask(msg.Configure(config(lease_ttl_ms=10**9, lease_margin_ms=10, batching_window_ms=5_000), "op"))

    def submitted(devices):
        return live.ask(submit(devices))().job_ids[0]

    def placed(job):
        return rig.state.jobs[job].attempt is not None

    live.start()
    for devices in (2, 1):  # the first cycle finds an idle cluster, the second one that is half full
        job = submitted(devices)
        until(lambda job=job: placed(job), "it is placed at once")
    later = submitted(1)
    time.sleep(0.3)
    assert not placed(later)
    rig.clock.now += 5_000
    until(lambda: placed(later), "the window is over")
