"""Elastic jobs follow their own numbers: no growth into waiting, halves of those that idle, sizes by learned speed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.audit import audit
from penstock.core.elastic.reported import curve_told, largest_useful, utilisation_of, why_not_larger
from penstock.core.explain import explain
from penstock.core.model.cluster import Settings
from penstock.core.model.events import ProgressNoted
from penstock.core.model.progress import Gauges, SizeNoted
from penstock.testing.harness import cluster, finish, follow, note
from tests.core.elastic.test_elastic_plan import MINUTE, asked, elastic, size

HOUR = 60 * MINUTE
WAITS = {"data_wait_milli": 750, "step_ms": 100}
BUSY = {"data_wait_milli": 100, "step_ms": 100}


def beside(least=1, most=4, *, free=True, **settings):
    """Return a world in which an elastic job runs on one of four devices; the other three are free by now."""
    w = cluster(1, 4, **settings)
    other = w.submit(3, preemptible=False, priority=900)
    job = w.submit(gang=elastic(least, most), estimated_duration_ms=100 * MINUTE)
    w.run(other, job)
    w.now += 2 * MINUTE
    if free:
        finish(w, other)
    return w, job


def filling(**settings):
    """Return a world of 8 devices that one elastic job fills, and has for long enough to be changed."""
    w = cluster(1, 8, **settings)
    job = w.submit(gang=elastic(1, 8), estimated_duration_ms=1_000 * MINUTE)
    w.run(job)
    w.now += 10 * MINUTE
    return w, job


def as_it_was(w, job, *sizes):
    """Return the job as if it had run at these sizes: (replicas, samples a second, share of waiting for data)."""
    noted = tuple(SizeNoted(r, w.now, rate, waits) for r, rate, waits in sizes)
    told = w.job(job)
    return msgspec.structs.replace(told, progress=msgspec.structs.replace(told.progress, sizes=noted))


def test_a_job_that_mostly_waits_for_data_is_not_grown():
    w, job = beside()
    note(w, job, **BUSY)
    assert asked(w.plan()) == [(job, job, "grow")]
    note(w, job, data_wait_milli=501)
    assert asked(w.plan()) == []
    w.now += HOUR
    assert asked(w.plan()) == [(job, job, "grow")], "an hour later it may have changed"


def test_the_share_that_keeps_it_from_growing_is_a_setting():
    w, job = beside(elastic_data_wait_max_milli=1_000)
    note(w, job, data_wait_milli=1_000)
    assert asked(w.plan()) == [(job, job, "grow")]


def test_it_starts_again_no_larger_than_where_it_waited():
    w = cluster(1, 8)
    other = w.submit(6, preemptible=False, priority=900)
    job = w.submit(gang=elastic(1, 8), retries_max=1)
    w.run(other, job)
    note(w, job, **WAITS)
    finish(w, other)
    for rank in (0, 1):
        w.exit_replica(job, rank, code=1)
    w.now += MINUTE
    w.run(job)
    assert size(w, job) == 2


def test_nobody_shrinks_for_nobody_unless_that_is_switched_on():
    w, job = filling()
    note(w, job, **WAITS)
    w.now += MINUTE
    assert asked(w.plan()) == []


def test_one_that_idles_goes_on_with_half():
    w, job = filling(elastic_shrink_idle=True)
    note(w, job, **WAITS)
    w.now += MINUTE
    assert asked(w.cycle()) == [(job, job, "idle")]
    assert w.job(job).attempt.stop.reason == "resized"
    follow(w)
    w.run(job)
    assert size(w, job) == 4


def test_it_shrinks_also_while_others_wait_but_does_not_grow():
    w = cluster(1, 4, elastic_shrink_idle=True)
    job = w.submit(gang=elastic(1, 3), preemptible=False)
    w.run(job)
    w.submit(4, priority=100)
    w.now += 10 * MINUTE
    note(w, job, **BUSY)
    w.now += MINUTE
    assert asked(w.plan()) == []
    note(w, job, **WAITS)
    w.now += MINUTE
    assert asked(w.plan()) == [(job, job, "idle")]


def test_a_minute_must_have_been_seen_and_five_of_this_size():
    w = cluster(1, 4, elastic_shrink_idle=True)
    job = w.submit(gang=elastic(1, 4))
    w.run(job)
    w.now += 2 * MINUTE
    note(w, job, **WAITS)
    w.now += MINUTE
    found = w.plan()
    assert (asked(found), found.again_ms) == ([], w.now + 2 * MINUTE)
    w.now += 2 * MINUTE - 1
    note(w, job, data_wait_milli=800)
    found = w.plan()
    assert (asked(found), found.again_ms) == ([], w.now + MINUTE)
    w.now += MINUTE
    assert asked(w.plan()) == [(job, job, "idle")]


def test_one_at_its_minimum_or_busy_is_left_alone():
    for least, told in ((4, WAITS), (1, BUSY), (1, {"data_wait_milli": 400, "communication_milli": 300})):
        w = cluster(1, 4, elastic_shrink_idle=True)
        job = w.submit(gang=elastic(least, least + 1))
        w.run(job)
        w.now += 10 * MINUTE
        note(w, job, **told)
        w.now += MINUTE
        assert "idle" not in [p.rule for p in w.plan().preemptions]


def test_waiting_for_others_counts_as_idle_and_for_data_no_less():
    w, job = filling(elastic_shrink_idle=True)
    note(w, job, data_wait_milli=200, communication_milli=501)
    w.now += MINUTE
    assert asked(w.cycle()) == [(job, job, "idle")]
    follow(w)
    w.run(job)
    assert size(w, job) == 4, "and does not grow back at once"


def test_it_goes_back_where_shrinking_has_cost_speed_and_stays_there():
    w, job = filling(elastic_shrink_idle=True)
    note(w, job, samples_per_s_milli=8_000, **WAITS)
    w.now += MINUTE
    w.cycle()
    follow(w)
    w.run(job)
    w.now += 10 * MINUTE
    note(w, job, samples_per_s_milli=4_000, **WAITS)
    assert asked(w.cycle()) == [(job, job, "grow")], "each replica loads its own data: half of them load half"
    follow(w)
    w.run(job)
    assert size(w, job) == 8
    w.now += 10 * MINUTE
    note(w, job, samples_per_s_milli=8_000, **WAITS)
    w.now += MINUTE
    assert asked(w.plan()) == []


def test_it_stays_small_where_shrinking_has_cost_nothing():
    w, job = filling(elastic_shrink_idle=True)
    note(w, job, samples_per_s_milli=8_000, **WAITS)
    w.now += MINUTE
    w.cycle()
    follow(w)
    w.run(job)
    w.now += 10 * MINUTE
    note(w, job, samples_per_s_milli=7_900, **BUSY)
    assert asked(w.plan()) == []
    assert size(w, job) == 4


def test_growth_follows_the_speed_that_the_job_has_told():
    """Of two that run alike, the one that gained nothing by more replicas leaves them to the other."""
    w, job = beside()
    flat = as_it_was(w, job, (1, 5_000, 0), (4, 5_000, 0))
    steep = as_it_was(w, job, (1, 5_000, 0), (4, 20_000, 0))
    assert (curve_told(flat).speed_milli(4, 1), curve_told(steep).speed_milli(4, 1)) == (1_000, 4_000)
    snapshot = w.snapshot()
    for there, grows in ((flat, False), (steep, True)):
        known = msgspec.structs.replace(snapshot, running={**snapshot.running, job: there})
        assert bool(w.planner.plan(known, w.now).preemptions) == grows


def test_growth_pays_by_the_rest_that_the_program_tells():
    w, job = beside(restart_cost_ms=10 * MINUTE)
    note(w, job, 100, total_steps=3_100, step_ms=100)
    assert asked(w.plan()) == [], "it ends in five minutes"
    note(w, job, 100, total_steps=100_100, step_ms=100)
    assert asked(w.plan()) == [(job, job, "grow")]


def test_what_keeps_a_job_small_is_told():
    w, job = beside()
    size = (
        "it has 1 of 1 to 4 replicas; one more would bring 90 %, by Amdahl's law, and a restart costs 12s, as assumed"
    )
    assert explain(w.state, w.job(job), w.now).text == f"attempt 1 is running on n0; {size}"
    note(w, job, data_wait_milli=620, communication_milli=110)
    found = explain(w.state, w.job(job), w.now).text
    assert found == (
        "attempt 1 is running on n0; it gets no more than 1 of 4 replicas: "
        "with 1 it waits 62 % of the time for data and 11 % for other ranks"
    )
    note(w, job, data_wait_milli=620)
    assert explain(w.state, w.job(job), w.now).text.endswith("with 1 it waits 62 % of the time for data")
    w.run(plain := w.submit(1))
    assert why_not_larger(w.job(plain), Settings(), w.now) == ""


def test_nothing_is_known_of_a_job_before_its_attempt_has_told():
    w = cluster(1, 4)
    job = w.submit(gang=elastic(1, 4))
    assert utilisation_of(w.job(job), w.now) is None
    w.run(job)
    assert utilisation_of(w.job(job), w.now) is None
    note(w, job, data_wait_milli=700, communication_milli=400, data_queue=9)
    w.now += 7
    seen = utilisation_of(w.job(job), w.now)
    assert (seen.busy_milli, seen.data_queue, seen.window_ms, seen.since_change_ms) == (0, 9, 7, 7)


@pytest.mark.parametrize("shrinks", [False, True])
@given(sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9_000), st.integers(0, 1_000)), max_size=8))
def test_what_its_numbers_speak_against_stays_within_the_bounds(shrinks, sizes):
    w = cluster(1, 4)
    job = w.submit(gang=elastic(2, 4))
    there = as_it_was(w, job, *sizes)
    most = largest_useful(there, Settings(elastic_shrink_idle=shrinks), w.now)
    assert most <= 4
    assert most >= (2 if shrinks else min((r for r, _, waits in sizes if waits > 500), default=4)) or most == 4
    if all(waits <= 500 for _, _, waits in sizes):
        assert most == 4


def test_a_shrink_of_one_that_idles_comes_out_again_from_the_log():
    w, job = filling(elastic_shrink_idle=True)
    note(w, job, **WAITS)
    w.now += MINUTE
    w.cycle()
    (stop,) = [r for r in audit(w.records, job) if r.kind == "stop"]
    assert (stop.rule, stop.same, stop.lawful) == ("idle", True, True)
    (check,) = [c for c in stop.checks if c.rule == "idle"]
    assert check.text == (
        "it held 8 replicas, can run with 1, and computed 25 % of the time; below 30 % counts as idle"
    )
    at = next(i for i, r in enumerate(w.records) if isinstance(r.event, ProgressNoted))
    busy = ProgressNoted(job, 1, 1, Gauges(**BUSY))
    w.records[at] = msgspec.structs.replace(w.records[at], event=busy)
    (stop,) = [r for r in audit(w.records, job) if r.kind == "stop"]
    (check,) = [c for c in stop.checks if c.rule == "idle"]
    assert (stop.same, check.holds) == (False, False), "one that computes had to be left alone"
