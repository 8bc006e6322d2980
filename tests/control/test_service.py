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
from penstock.core.order.turns import WaitingLimit
from penstock.testing.builders import config, node
from tests.control.rig import Rig, submit
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
    began, may_end, real = threading.Event(), threading.Event(), service_module.PlanChooser.plan

    def slow(*args: Any) -> Any:
        began.set()
        assert may_end.wait(WAIT_S)
        return real(*args)

    monkeypatch.setattr(service_module.PlanChooser, "plan", slow)
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
    monkeypatch.setattr(live.service._inbox._requests, "_share", WaitingLimit(9, 9, 2))
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
    assert live.faults == [], "a full disk ends no loop"


def test_a_broken_invariant_is_told_and_ends_the_loop(live):
    live.rig.state.indexes.beneficiaries.add(77)
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


def test_a_service_is_at_rest_when_no_cycle_is_planned_or_due(live, slow_planner):
    began, may_end = slow_planner
    live.start()
    assert began.wait(WAIT_S)
    assert not live.service.at_rest
    may_end.set()
    until(lambda: live.service.at_rest, "the first cycle is over")


def test_a_service_is_not_at_rest_when_a_cycle_begins_while_it_is_asked(live, monkeypatch):
    clock = live.rig.controller.plan_clock

    def begins(now_ms: int) -> bool:
        monkeypatch.undo()
        live.service._offer_cycle()  # as the other thread may, between the two looks
        return clock.due(now_ms)

    monkeypatch.setattr(clock, "due", begins)
    assert clock.wanted
    assert not live.service.at_rest


def test_a_service_is_not_at_rest_before_the_orders_of_its_plan_are_sent(live, monkeypatch):
    rests = []
    monkeypatch.setattr(live, "send", lambda orders: rests.append(live.service.at_rest))
    live.start()
    live.ask(submit())()
    until(lambda: rests, "a start is ordered")
    assert rests == [False]


class Session:
    """Notes how a node was answered."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def welcome(self, *terms: int) -> None:
        self.answers.append(("welcome", *terms))

    def taken(self, seq: int, orders: Any, *, accepted: bool) -> None:
        self.answers.append(("taken", seq, accepted))

    def close(self) -> None:
        self.answers.append("closed")


def test_a_node_is_welcomed_and_its_report_acknowledged_once_they_are_committed(live):
    session, report = Session(), live.rig.message("b", seq=7)
    live.service.on_hello(node("b"), "i1", session)
    assert session.answers == []
    live.start()
    until(lambda: session.answers, "the node is welcome")
    live.service.on_report(report, session)
    until(lambda: len(session.answers) > 1, "its report is in the log")
    assert session.answers == [("welcome", 1, 4_000, 500), ("taken", 7, True)]
    assert ("commit", 1) in live.said


def test_a_node_that_cannot_be_heard_is_disconnected(live, monkeypatch):
    monkeypatch.setattr(inbox, "REPORTS_MAX", 0)
    session = Session()
    live.service.on_report(live.rig.message("a"), session)
    assert session.answers == ["closed"]


def test_a_node_that_cannot_be_registered_is_disconnected(live):
    live.rig.store.full = True
    session = Session()
    live.start()
    live.service.on_hello(node("b"), "i1", session)
    until(lambda: session.answers, "it is answered")
    assert session.answers == ["closed"]


def test_commits_and_cycles_are_measured(live):
    live.start()
    live.ask(submit())()
    until(lambda: live.rig.state.jobs[1].attempt, "it is placed")
    live.stop()
    measured = {series.name: series for series in live.service._metrics.series()}
    assert measured["control_events"].count == 2
    requests = measured["control_requests"].count
    assert requests >= 2
    assert 1 <= measured["control_commit_s"].count <= requests, "those that came together share a commit"
    assert 0 < measured["control_cycle_s"].last <= measured["control_cycle_s"].sum
