"""Who has to leave for whom: lawful victims, the cheapest set, nobody needlessly."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.cluster import Queue, Settings
from penstock.core.place.backfill import held_places
from penstock.core.place.gang import fits
from penstock.core.preempt.victims import victim_cost
from penstock.testing.builders import ask, node, queues
from penstock.testing.harness import World, cluster
from tests.properties import examples

MINUTE = 60_000


def victims(found):
    return [p.victim for p in found.preemptions]


def full(w, *priorities, devices=1, **fields):
    """Fill the world with running jobs of these priorities; later ones have run for a shorter time."""
    jobs = []
    for priority in priorities:
        jobs.append(w.submit(devices, priority=priority, **fields))
        w.run(jobs[-1])
    assert all(w.phase(j) == "running" for j in jobs)
    return jobs


def test_a_higher_job_gets_the_room_of_a_lower_one():
    w = cluster(1, 2)
    low, mid = full(w, 100, 500)
    high = w.submit(1, priority=1000)
    found = w.cycle()
    assert [(p.victim, p.attempt, p.beneficiary) for p in found.preemptions] == [(low, 1, high)]
    assert (w.phase(low), w.phase(mid), w.phase(high)) == ("stopping", "running", "waiting")
    assert w.job(low).attempt.stop.beneficiary == high


@pytest.mark.parametrize("priority", [99, 100])
def test_nobody_leaves_for_a_job_of_no_higher_priority(priority):
    w = cluster(1, 1)
    full(w, 100)
    w.submit(1, priority=priority)
    assert victims(w.cycle()) == []


def test_waiting_does_not_make_a_job_a_preemptor():
    w = cluster(1, 1)
    full(w, 500)
    w.submit(1, priority=450)
    w.now += 60 * MINUTE
    assert victims(w.cycle()) == []


def test_a_job_that_is_not_preemptible_stays():
    w = cluster(1, 1)
    full(w, 100, preemptible=False)
    w.submit(1, priority=1000)
    assert victims(w.cycle()) == []


def test_a_dearer_victim_leaves_where_the_cheaper_one_is_not_preemptible():
    w = cluster(1, 2)
    full(w, 100, preemptible=False)
    (dear,) = full(w, 500)
    w.submit(1, priority=1000)
    assert victims(w.cycle()) == [dear]


@pytest.mark.parametrize("tries", [0, 256])
def test_a_cheap_victim_that_does_not_help_stays(tries):
    w = cluster(2, 2, victim_sets_tried_max=tries)
    full(w, 100, 900)
    (wide,) = full(w, 300, devices=2)
    w.submit(2, priority=500)
    assert victims(w.cycle()) == [wide]


def test_a_queue_that_never_preempts_waits():
    w = cluster(1, 1, queues=(Queue("default"), Queue("polite", preemption="never")))
    full(w, 100)
    polite = w.submit(1, priority=1000, queue="polite")
    assert victims(w.cycle()) == []
    assert w.phase(polite) == "waiting"


def test_an_attempt_has_its_minimum_run_time():
    w = cluster(1, 1, min_runtime_before_preemption_ms=MINUTE)
    (low,) = full(w, 100)
    w.submit(1, priority=1000)
    w.now += MINUTE - 1
    assert victims(w.cycle()) == []
    w.now += 1
    assert victims(w.cycle()) == [low]


def test_freed_devices_are_never_added_up_over_nodes():
    w = cluster(2, 2)
    full(w, 900, 100, 100, 900)
    assert sorted(w.where(j) for j in (2, 3)) == ["n0", "n1"]
    w.submit(2, priority=500)
    assert victims(w.cycle()) == []


def test_nobody_leaves_when_the_room_would_not_do():
    w = cluster(1, 4)
    full(w, 100, 100, 900, 100)
    w.submit(4, priority=500)
    assert victims(w.cycle()) == []


def test_another_pool_is_left_alone():
    from penstock.core.model.cluster import Pool

    w = World(node("a", 1), node("b", 1, pool="q"), pools=(Pool("default"), Pool("q")))
    full(w, 100, pool="q")
    w.submit(1, priority=200)
    w.cycle()
    w.submit(1, priority=1000)
    assert victims(w.cycle()) == [2]


def test_the_victim_that_loses_least_work_is_chosen():
    w = cluster(1, 2)
    old = w.submit(1, priority=100)
    w.run(old)
    w.now += 10 * MINUTE
    young = w.submit(1, priority=100)
    w.run(young)
    w.submit(1, priority=1000)
    assert victims(w.cycle()) == [young]


def test_a_checkpoint_makes_a_victim_cheaper():
    from penstock.core.messages.reports import ProgressSeen

    w = cluster(1, 2)
    old, _ = full(w, 100, 100)
    w.now += 10 * MINUTE
    saved = ProgressSeen(w.seen(old).key, "checkpoint", 7)
    w.report(w.where(old), w.seen(old), inventory=False, progress=(saved,))
    w.submit(1, priority=1000)
    assert victims(w.cycle()) == [old]


def test_the_cost_is_work_lost_by_width_plus_overheads_plus_priority():
    w = cluster(1, 4)
    job = w.submit(2, 2, priority=30)
    w.run(job)
    w.now += 7_000
    given = Settings(checkpoint_cost_ms=20, restart_cost_ms=3, priority_cost_ms_per_point=100)
    assert victim_cost(w.job(job), given, w.now) == 4 * (7_000 + 23 + 3_000)


def test_higher_priority_costs_more():
    w = cluster(1, 2)
    _, low = full(w, 500, 100)
    w.submit(1, priority=1000)
    assert victims(w.cycle()) == [low]


def test_one_wide_victim_is_better_than_two_dearer_ones():
    w = cluster(2, 2)
    wide = w.submit(2, priority=100)
    w.run(wide)
    full(w, 300, 300)
    w.submit(2, priority=1000)
    assert victims(w.cycle()) == [wide]


worlds = st.tuples(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 2), st.sampled_from([100, 200, 600]), st.integers(0, 9)),
        min_size=1,
        max_size=7,
    ),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(0, 1),
)


def running_world(drawn, **settings):
    """Return a world in which all that did not start at once was cancelled, and a job that wants to start."""
    running, devices, replicas, drained = drawn
    w = cluster(2, 4, **settings)
    for count, width, priority, pause in running:
        job = w.submit(count, width, priority=priority)
        w.cycle()
        w.now += pause * 1000
        if w.phase(job) == "waiting":
            w.cancel(job)
    if drained:
        w.drain("n0")
    return w, w.job(w.submit(gang=ask(devices, replicas, cpus=0), priority=500))


def fits_without(w, job, gone):
    """Whether `job` fits once these have left, and those that are leaving anyway."""
    free = w.free()
    for v in [*gone, *(w.job(i) for i in w.state.indexes.stopping)]:
        free.put_back(v.ask, held_places(v))
    return fits(job.spec.ask, free)


def exhaustive(w, high):
    """Return the least total cost of a set whose leaving lets `high` start, or None."""
    running = [j for j in w.state.indexes.active.values() if j.state != "stopping"]
    lower = [j for j in running if j.spec.priority < high.spec.priority]
    costs = [
        sum(victim_cost(v, w.state.config.settings, w.now) for v in chosen)
        for size in range(len(lower) + 1)
        for chosen in combinations(lower, size)
        if fits_without(w, high, chosen)
    ]
    return min(costs, default=None)


@examples(100)
@given(worlds)
def test_the_chosen_set_is_the_cheapest_of_all(drawn):
    w, high = running_world(drawn)
    found = w.plan()
    if not found.starts:
        assert sum(p.cost for p in found.preemptions) == (exhaustive(w, high) or 0)


@examples(100)
@given(worlds, st.sampled_from([0, 256]))
def test_no_victim_is_needless_and_the_beneficiary_fits(drawn, tries):
    w, high = running_world(drawn, victim_sets_tried_max=tries)
    asked = [w.job(v) for v in victims(w.plan())]
    assert all(v.spec.priority < 500 for v in asked)
    for missing in [None, *asked] if asked else []:
        assert fits_without(w, high, [v for v in asked if v is not missing]) == (missing is None)


def test_a_preemptor_in_another_queue_follows_its_own_queue():
    w = cluster(1, 1, queues=queues("default", "b"))
    (low,) = full(w, 100)
    w.submit(1, priority=1000, queue="b")
    assert victims(w.cycle()) == [low]
