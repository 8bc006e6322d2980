"""Room for demand that is expected: who is held back for it, who is not, and for how long."""

import pytest
from msgspec.structs import replace

from penstock.core.audit.rederive import audit
from penstock.core.cycle.planner import plan
from penstock.core.explain.why import explain
from penstock.core.model import events as ev
from penstock.core.model.cluster import Queue
from penstock.core.model.expected import HOUR_MS
from penstock.core.state.snapshot import take_snapshot
from tests.core.expecting import AT_H, MINUTE_MS, PLAIN, URGENT, at, expecting

CRITICAL = 1_000


def crowd(w, count=20, **fields):
    return [w.submit(**({"devices": 1, "priority": PLAIN} | fields)) for _ in range(count)]


def started(w):
    return len(w.cycle().starts)


def test_the_same_state_gives_another_plan_under_another_strategy():
    predictive, delayed = at(expecting(), AT_H, 5), at(expecting(), AT_H, 5)
    for w in (predictive, delayed):
        crowd(w)
    snapshot, now_ms = take_snapshot(predictive.state), predictive.now
    found = plan(snapshot, now_ms)
    assert (found.strategy[:10], len(found.starts)) == ("predictive", 12)
    w = at(expecting(predictive_waiting_min=100), AT_H, 5)
    crowd(w)
    found = w.plan()
    assert (found.strategy[:7], len(found.starts)) == ("delayed", 16)
    w = at(expecting(immediate_utilisation_milli=1_000), AT_H, 5)
    crowd(w)
    found = w.plan()
    assert (found.strategy[:9], len(found.starts)) == ("immediate", 16)


def test_without_a_past_that_paid_nothing_is_kept():
    w = at(expecting(waited_ms=0), AT_H, 5)
    crowd(w)
    assert started(w) == 16


def test_urgent_and_critical_jobs_take_the_room_at_once():
    w = at(expecting(), AT_H, 5)
    crowd(w)
    assert started(w) == 12
    urgent, critical = w.submit(2, priority=URGENT), w.submit(1, priority=CRITICAL)
    assert {start.job_id for start in w.cycle().starts} == {urgent, critical}
    assert started(w) == 0
    assert w.last_plan.kept[0].devices == 2


def test_who_starts_with_a_critical_job_leaves_the_rest_of_the_room():
    w = at(expecting(preemptive_utilisation_milli=700), AT_H, 5)
    crowd(w)
    w.cycle()
    critical = w.submit(1, priority=CRITICAL)
    found = w.cycle()
    assert found.strategy.startswith("preemptive")
    assert [start.job_id for start in found.starts] == [critical]


def test_a_critical_job_is_never_held_back_for_more_urgent_ones():
    w = at(expecting(critical_priority=PLAIN), AT_H, 5)
    crowd(w)
    assert started(w) == 16


def test_jobs_that_end_before_the_room_is_needed_use_it_until_then():
    w = at(expecting(), AT_H - 1, 40)
    crowd(w, 14, time_limit_ms=HOUR_MS)
    short = crowd(w, 6, time_limit_ms=15 * MINUTE_MS)
    found = w.cycle()
    assert len(found.starts) == 16
    assert {start.job_id for start in found.starts} >= set(short[:4])


def test_room_is_kept_from_a_settable_time_before_the_hour():
    for ahead_min, minute, count in ((30, 29, 16), (30, 31, 12), (10, 49, 16), (10, 51, 12)):
        w = at(expecting(predictive_ahead_ms=ahead_min * MINUTE_MS), AT_H - 1, minute)
        crowd(w)
        assert started(w) == count, (ahead_min, minute)


def test_room_ends_with_its_hour_and_the_plan_says_when():
    w = at(expecting(), AT_H, 5)
    crowd(w)
    found = w.cycle()
    assert found.again_ms == w.now + 55 * MINUTE_MS
    w.now = found.again_ms
    assert started(w) == 4


def test_room_too_small_for_one_replica_is_not_kept():
    w = at(expecting(predictive_share_milli=200), AT_H, 5)
    crowd(w)
    assert started(w) == 16


def test_a_job_that_starves_is_not_held_back():
    w = at(expecting(starvation_after_ms=2 * HOUR_MS, starvation_ratio=0), AT_H - 12, 5)
    waits = crowd(w, 20)
    w.now += 12 * HOUR_MS
    w.cancel(w.submit(1))
    for count in (12, 1, 1, 1, 1, 0):  # one in each cycle is looked after first
        assert started(w) == count
    assert {w.phase(job) for job in waits[:16]} == {"starting"}


def test_a_job_within_its_queues_guarantee_is_not_held_back():
    w = at(expecting(), AT_H, 5)
    own = Queue("own", policy="priority", preemption="reclaim", guaranteed=(("devices", 14_000),))
    w.emit(ev.ConfigChanged(replace(w.state.config, queues=(*w.state.config.queues, own)), "op"))
    crowd(w, 20, queue="own")
    assert started(w) == 14


def test_room_for_wide_replicas_is_kept_whole():
    w = at(expecting(devices=8), AT_H, 5)
    crowd(w)
    found = w.cycle()
    assert len(found.starts) == 8
    assert len({start.places[0].node for start in found.starts}) == 1
    wide = w.submit(8, priority=URGENT)
    assert [start.job_id for start in w.cycle().starts] == [wide]


def test_nodes_are_cleared_for_wide_replicas():
    """Three devices are free on each of two nodes: one taken of either costs nothing while the other has three."""
    w = at(expecting(devices=8), AT_H, 5)
    w.run(*crowd(w, 2, devices=5, priority=CRITICAL))
    crowd(w)
    assert len(w.cycle().starts) == 1
    assert sorted(len(free.whole) for free in w.state.indexes.free.values()) == [2, 3]


def test_jobs_that_start_in_waves_are_held_back_too():
    w = at(expecting(nodes=20, devices=8, jobs=15, predictive_share_milli=1_000), AT_H, 5)
    crowd(w, 200)
    assert started(w) == 160 - 120


def test_explain_says_for_what_and_how_often_that_was_right():
    w = at(expecting(), AT_H, 5)
    jobs = crowd(w)
    w.cycle()
    found = explain(w.state, w.job(jobs[-1]), w.now)
    assert found.code == "expected_demand"
    assert found.text == (
        "it would cut into room that pool default keeps for 4 devices that jobs of priority 900 are expected to ask "
        "for by 2024-10-20T15:00:00Z (forecast right 8 of 8 times)"
    )


def test_the_decisions_come_out_again_from_the_log():
    w = at(expecting(), AT_H, 5)
    crowd(w)
    w.cycle()
    w.submit(2, priority=URGENT)
    w.cycle()
    rulings = [ruling for ruling in audit(w.records) if ruling.kind == "start"]
    assert len(rulings) == 12 + 12 + 1
    assert all(ruling.same for ruling in rulings)


@pytest.mark.parametrize(("setting", "value"), [("predictive_waiting_min", 100), ("predictive_share_milli", 0)])
def test_it_can_be_switched_off(setting, value):
    w = at(expecting(**{setting: value}), AT_H, 5)
    crowd(w)
    assert started(w) == 16
