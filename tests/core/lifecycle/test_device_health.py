"""Devices that fail: closed, their jobs recovered, opened again by rule or by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.report_filter import FAULT_MAX_CHARS, USERS_MAX, WORD_MAX_CHARS, heard
from penstock.core.audit.rederive import audit
from penstock.core.lifecycle import device_health as health
from penstock.core.lifecycle.requests import could_never_fit
from penstock.core.messages.orders import StopReplica
from penstock.core.messages.reports import NodeReport
from penstock.core.model import events as ev
from penstock.core.model.cluster import CHECKED_BY
from penstock.core.model.ids import Incarnation, NodeName, UserName
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.nodes import DeviceFault, DeviceUser, OthersLoad
from penstock.core.state import invariants
from penstock.core.state.state import State, fold
from penstock.testing.builders import ask, device, node
from penstock.testing.harness import cluster
from tests.properties import examples
from tests.store.builders import same

QUIET_MS = 600_000


def xid(index=0, number=79, text=""):
    return DeviceFault(index, "xid", text or f"Xid {number}: it has fallen off the bus", number)


def fail(w, *indexes, name="n0"):
    """Let a node report these devices, and no others, as being at fault."""
    return w.report(name, faults=tuple(xid(index) for index in indexes))


def by_hand(w, *, on, index=0, name="n0", evict=False, by="op"):
    if on:
        return w.commit(
            lambda tx: health.close_by_hand(
                tx, NodeName(name), index, by=UserName(by), reason="to be repaired", evict=evict
            )
        )
    return w.commit(lambda tx: health.open_by_hand(tx, NodeName(name), index, by=UserName(by), reason="repaired"))


def shut(w, name="n0"):
    return [one.index for one in w.state.nodes[name].devices_closed]


def free(w, name="n0"):
    return w.state.indexes.free[name].devices


def well(w, *indexes):
    """Let the faults of all other devices be gone, past the time after which that is believed."""
    w.now += health.CLEAR_EVERY_MS
    fail(w, *indexes)


def logged(w, *kinds):
    return [r.event for r in w.records if isinstance(r.event, kinds)]


def test_a_device_at_fault_is_given_to_no_job():
    w = cluster(1, 4)
    fail(w, 2)
    assert (shut(w), free(w)) == ([2], (1000, 1000, 0, 1000))
    assert not w.state.nodes["n0"].draining
    many, few = w.submit(4), w.submit(3)
    assert [start.job_id for start in w.cycle().starts] == [few]
    assert w.attempt(few).replicas[0].place.devices == (0, 1, 3)
    assert w.phase(many) == "waiting"


def test_its_job_is_recovered_elsewhere_and_keeps_its_retries():
    w = cluster(2, 1, backoff_first_ms=1)
    job = w.submit(1, retries_max=0)
    w.run(job)
    at = w.where(job)
    w.orders.clear()
    fail(w, 0, name=at)
    stop = w.attempt(job).stop
    why = f"device 0 of {at} failed: Xid 79: it has fallen off the bus"
    assert (stop.reason, stop.rule, stop.grace_ms) == ("device_failed", why, 10_000)
    assert [(name, order.grace_ms) for name, order in w.orders if isinstance(order, StopReplica)] == [(at, 10_000)]
    w.exit_replica(job, 0, None, signal=6, stop_sent=True)
    ended = logged(w, ev.AttemptEnded)[-1]
    assert (ended.outcome, ended.detail) == ("lost", why)
    assert (w.job(job).retries_used, w.job(job).infrastructure_failures) == (0, 1)
    w.now = w.job(job).not_before_ms
    w.run(job)
    assert w.where(job) != at
    assert w.state.nodes[at].strikes == (), "the device is closed, not the node"


def test_an_exit_in_the_same_report_is_the_device_s_and_no_strike_against_the_node():
    w = cluster(1, 2)
    job = w.submit(1)
    w.run(job)
    died = w.seen(job, 0, "exited", exit=ExitInfo(1, note="CUDA error: Xid 79"))
    w.report("n0", died, inventory=False, faults=(xid(),))
    assert logged(w, ev.AttemptEnded)[-1].outcome == "lost"
    assert w.state.nodes["n0"].strikes == ()
    assert w.phase(job) == "waiting"


def test_a_gang_whose_replica_died_just_before_is_the_device_s_victim():
    w = cluster(2, 1)
    job = w.submit(1, 2)
    w.run(job)
    w.exit_replica(job, 1, 1)
    assert w.attempt(job).stop.reason == "replica_failed"
    fail(w, 0, name=w.where(job, 1))
    assert w.attempt(job).stop.reason == "device_failed"
    w.leave(job)
    assert (logged(w, ev.AttemptEnded)[-1].outcome, w.job(job).retries_used) == ("lost", 0)


@pytest.mark.parametrize("part", [{"share_milli": 250}, {"profile": "1g.10gb"}])
def test_every_holder_of_a_part_of_the_device_is_recovered(part):
    w = cluster(1, (device(0, mig=True), device(1, mig=True)))
    jobs = [w.submit(1, **part) for _ in range(3)]
    w.run(*jobs)
    on_first = [job for job in jobs if w.attempt(job).replicas[0].place.devices == (0,)]
    assert on_first
    fail(w, 0)
    assert [job for job in jobs if w.phase(job) == "stopping"] == on_first
    for job in on_first:
        w.leave(job)
    assert free(w)[0] == 0


def test_what_is_leaving_already_is_not_asked_again():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    w.cancel(job)
    fail(w, 0)
    assert [event.reason for event in logged(w, ev.AttemptStopRequested)] == ["cancelled"]


def test_a_report_that_repeats_a_fault_is_late_or_of_a_former_life_changes_nothing():
    w = cluster(1, 2)
    fail(w, 1)
    before = len(w.records)
    fail(w, 1)
    w.report("n0", faults=(xid(1, 48, "Xid 48: double bit ECC error"),))
    w.report("n0")
    w.report("n0", faults=(xid(0),), incarnation=Incarnation("former"))
    assert len(w.records) == before


def test_it_is_opened_once_it_has_stayed_without_a_fault():
    w = cluster(1, 1)
    fail(w, 0)
    w.tick(2 * QUIET_MS)
    assert shut(w) == [0], "its node still reports the fault"
    fail(w)
    w.tick(QUIET_MS - 1)
    assert shut(w) == [0]
    w.tick(1)
    assert (shut(w), free(w)) == ([], (1000,))
    assert logged(w, ev.DeviceOpened) == [ev.DeviceOpened("n0", 0, CHECKED_BY, "no fault for 10m 0s")]


def test_a_fault_that_comes_back_begins_the_time_anew():
    w = cluster(1, 1)
    fail(w, 0)
    well(w)
    w.now += QUIET_MS - 1
    fail(w, 0)
    w.tick(QUIET_MS)
    assert shut(w) == [0]
    well(w)
    w.tick(QUIET_MS)
    assert shut(w) == []


def test_a_fault_that_comes_and_goes_does_not_fill_the_log():
    w = cluster(1, 1)
    before = len(w.records)
    for i in range(600):
        fail(w, *(() if i % 2 else (0,)))
        w.now += 1_000
    assert len(w.records) - before <= 2 * 600_000 // health.CLEAR_EVERY_MS + 1
    assert shut(w) == [0]


def test_each_closure_doubles_the_time_and_it_is_a_day_at_most():
    w = cluster(1, 1)
    waits = []
    for _ in range(9):
        fail(w, 0)
        well(w)
        closure = w.state.nodes["n0"].devices_closed[0]
        waits.append((health.open_due_ms(closure, w.state.config.settings) - closure.clear_ms) // 60_000)
        w.tick(waits[-1] * 60_000)
        assert shut(w) == []
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 1440]
    w.now += w.state.config.settings.node_strikes_window_ms + 1
    fail(w, 0)
    assert w.state.nodes["n0"].devices_closed[0].closures == 1, "the earlier ones are long ago"


def test_a_time_of_zero_leaves_opening_to_people():
    w = cluster(1, 1, device_open_after_ms=0)
    fail(w, 0)
    well(w)
    w.tick(10**9)
    assert shut(w) == [0]
    assert by_hand(w, on=False) == ""
    assert shut(w) == []


def test_what_a_person_closed_no_rule_opens_and_its_job_goes_on():
    w = cluster(1, 2)
    job = w.submit(1)
    w.run(job)
    by_hand(w, on=True)
    assert (shut(w), w.phase(job)) == ([0], "running")
    fail(w)
    w.tick(10**9)
    assert shut(w) == [0]
    fail(w, 0)
    assert w.attempt(job).stop.reason == "device_failed", "a fault is another matter"
    well(w)
    w.tick(10**9)
    closure = w.state.nodes["n0"].devices_closed[0]
    assert (closure.by, closure.code, closure.closures) == ("op", "xid", 1)
    by_hand(w, on=False)
    assert shut(w) == []


def test_a_person_takes_over_what_a_fault_closed():
    w = cluster(1, 1)
    fail(w, 0)
    by_hand(w, on=True)
    well(w)
    w.tick(10**9)
    closure = w.state.nodes["n0"].devices_closed[0]
    assert (closure.by, closure.code, closure.reason) == ("op", "xid", "to be repaired")


def test_work_on_a_device_closed_by_hand_can_be_asked_to_move():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    by_hand(w, on=True, evict=True)
    assert w.attempt(job).stop.reason == "drained"
    w.leave(job)
    assert logged(w, ev.AttemptEnded)[-1].outcome == "drained"


def test_opened_by_hand_with_its_fault_it_is_closed_again():
    w = cluster(1, 1)
    fail(w, 0)
    assert by_hand(w, on=False) == "Xid 79: it has fallen off the bus"
    assert shut(w) == []
    fail(w, 0)
    assert shut(w) == [0]


@pytest.mark.parametrize("incarnation", ["i1", "i2"])
def test_it_stays_closed_when_its_node_registers_again_and_is_opened_only_after_a_report(incarnation):
    w = cluster(1, 2)
    fail(w, 1)
    well(w)
    w.now += QUIET_MS - 1
    w.hello(node("n0", 2, cpus=8), incarnation)
    w.tick(QUIET_MS)
    assert (shut(w), free(w)) == ([1], (1000, 0))
    fail(w)
    w.tick(QUIET_MS)
    assert (shut(w), free(w)) == ([], (1000, 1000))


def test_an_agent_that_says_the_same_of_its_node_again_adds_nothing_to_the_log():
    w = cluster(1, 2)
    fail(w, 1)
    before = len(w.records)
    w.hello(node("n0", 2), ready=False)
    assert len(w.records) == before
    w.hello(node("n0", (device(0), device(1, healthy=False))))
    by_hand(w, on=False, index=1)
    assert (shut(w), free(w)) == ([], (1000, 0)), "its node says so, too"


def known(*uuids):
    return node("n0", tuple(device(i, uuid=uuid) for i, uuid in enumerate(uuids)))


@pytest.mark.parametrize(
    ("after", "closed"),
    [
        (("a", "b"), [(1, "b")]),
        (("b", "a"), [(0, "b")]),
        (("a", "c"), []),
        (("a",), []),
        (("a", ""), [(1, "")]),
        (("b",), [(0, "b")]),
    ],
)
def test_a_closure_follows_its_device_and_goes_with_it(after, closed):
    w = cluster(1, tuple(device(i, uuid=uuid) for i, uuid in enumerate("ab")))
    fail(w, 1)
    w.hello(known(*after), "i2")
    assert [(one.index, one.uuid) for one in w.state.nodes["n0"].devices_closed] == closed
    assert same(w.state, fold(w.records))


def test_a_node_with_a_closed_device_still_accepts_jobs_that_need_all_of_them():
    w = cluster(1, 2)
    fail(w, 0)
    assert could_never_fit(w.state, ask(2)) == ()
    assert could_never_fit(w.state, ask(3)) == (("devices_too_few", 1),)


def test_a_lost_node_opens_no_device():
    w = cluster(1, 1)
    fail(w, 0)
    well(w)
    w.lose("n0")
    w.tick(10**9)
    assert shut(w) == [0]


def test_an_audit_finds_the_closed_device_behind_the_stop():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    fail(w, 0)
    rulings = [r for r in audit(w.records) if r.kind == "stop"]
    assert [(c.rule, c.holds, c.text) for r in rulings for c in r.checks] == [
        ("device_failed", True, "device 0 of n0: Xid 79: it has fallen off the bus")
    ]


def test_faults_of_a_report_are_bounded():
    w = cluster(1, 2)
    told = (DeviceFault(7, "x"), DeviceFault(-1, "x"), DeviceFault(1, "y" * 999, "z" * 9999), DeviceFault(1, "later"))
    seen = heard(w.state, NodeReport("n0", Incarnation("i1"), 9, False, faults=told), w.now).faults
    assert seen == (DeviceFault(1, "y" * WORD_MAX_CHARS, "z" * FAULT_MAX_CHARS),)
    assert heard(w.state, NodeReport("n0", Incarnation("i1"), 9, False), w.now).faults is None


def users(*told):
    return OthersLoad(devices=tuple(sorted({one.index for one in told})), users=told)


def test_users_of_devices_are_bounded_and_one_stands_for_all_of_a_program():
    w = cluster(1, 2)
    told = (DeviceUser(0, 12, "eve", "python"), DeviceUser(0, 11, "eve", "python"))
    told += (DeviceUser(-3, 1), DeviceUser(1, -1))
    told += tuple(DeviceUser(1, pid, f"user{pid:03}", "x" * 999) for pid in range(300))
    report = NodeReport("n0", Incarnation("i1"), 9, False, others=OthersLoad(users=told))
    seen = heard(w.state, report, w.now).others.users
    assert seen[0] == DeviceUser(0, 11, "eve", "python")
    assert len(seen) == USERS_MAX
    assert max(len(one.program) for one in seen) == WORD_MAX_CHARS


def test_other_processes_of_the_same_programs_are_no_news():
    w = cluster(1, 2)
    w.report("n0", others=users(DeviceUser(0, 11, "eve", "python")))
    before = len(w.records)
    w.report("n0", others=users(DeviceUser(0, 12, "eve", "python")))
    assert len(w.records) == before
    w.report("n0", others=users(DeviceUser(0, 12, "bob", "python")))
    assert [one.user for one in w.state.nodes["n0"].others.users] == ["bob"]


index = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sets(index)),
        st.tuples(st.just("close"), index, st.booleans()),
        st.tuples(st.just("open"), index),
        st.tuples(st.just("hello"), st.permutations("abc"), st.sampled_from(("i1", "i2"))),
        st.tuples(st.just("hello"), st.permutations("abd"), st.just("i3")),
        st.tuples(st.just("pass"), st.sampled_from((1_000, health.CLEAR_EVERY_MS, QUIET_MS))),
        st.tuples(st.just("lose")),
        st.tuples(st.sampled_from(("start", "part", "leave"))),
    ),
    max_size=30,
)


def step_on(w, step):
    match step:
        case ("report", indexes) if w.state.nodes["n0"].state != "lost":
            fail(w, *(one for one in indexes if one < len(w.state.nodes["n0"].spec.devices)))
        case ("close", at, evict):
            by_hand(w, on=True, index=at, evict=evict)
        case ("open", at):
            by_hand(w, on=False, index=at)
        case ("hello", uuids, incarnation):
            w.hello(known(*uuids), incarnation)
        case ("pass", ms):
            w.tick(ms)
        case ("lose",) if w.state.nodes["n0"].state != "lost":
            w.lose("n0")
        case ("start" | "part" as kind,):
            w.submit(1, **({"share_milli": 500} if kind == "part" else {}))
            for start in w.cycle().starts:
                node_now = w.state.nodes["n0"]
                assert not any(node_now.closure_of(i) for place in start.places for i in place.devices)
                w.start(start.job_id)
        case ("leave",):
            for job in [job for job in w.state.jobs.values() if job.state == "stopping"]:
                w.leave(job.id)


@given(steps)
@examples(150)
def test_no_closed_device_is_given_out_whatever_happens(steps):
    w = cluster(1, tuple(device(i, uuid=uuid) for i, uuid in enumerate("abc")))
    for step in steps:
        step_on(w, step)
    assert same(w.state, fold(w.records))
    assert same(w.state, State.from_image(w.state.image()))
    invariants.require(State.from_image(w.state.image()))
