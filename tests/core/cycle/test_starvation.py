"""No job that fits the cluster waits for ever: after a settled time room is kept for it that nobody may take."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.cluster import Pool
from penstock.core.model.events import RunTimesPredicted
from penstock.testing.builders import ask, node, queues
from penstock.testing.harness import World, cluster, finish, follow
from tests.properties import examples

HOUR = 3_600_000


def started(found):
    return [s.job_id for s in found.starts]


def reserved(found):
    return [(r.job_id, r.start_ms) for r in found.reserved]


def held_up(**fields):
    """Return a node of 2 with one device held for ever, and a job of 2 that has waited an hour."""
    w = cluster(1, 2, starvation_after_ms=HOUR, queues=queues("default", preemption="never"), **fields)
    w.run(w.submit(1, preemptible=False))
    starving = w.submit(2, priority=100)
    w.now += HOUR
    return w, starving


@pytest.mark.parametrize(("waited_ms", "goes"), [(HOUR * 3 // 2 - 1, True), (HOUR * 3 // 2, False)])
def test_after_the_settled_time_nobody_goes_past(waited_ms, goes):
    """The job behind asks for half of the pool: so the bound is half as long again."""
    w, starving = held_up()
    w.now += waited_ms - HOUR
    later = w.submit(1, priority=900)
    found = w.plan()
    assert started(found) == ([later] if goes else [])
    assert reserved(found) == ([] if goes else [(starving, 0)])


def test_who_keeps_the_others_back_is_told():
    w, starving = held_up()
    later = w.submit(1, priority=900)
    w.now += HOUR
    said = {v.first: (v.code, v.blocker) for v in w.plan().verdicts.values()}
    assert said == {starving: ("no_fit", None), later: ("kept_back", starving)}


def test_a_job_that_is_kept_from_another_shape_alone_is_told():
    w = World(node("a", 2), node("b", 1, pool="q"), pools=(Pool("default"), Pool("q")), starvation_after_ms=HOUR)
    w.run(w.submit(1, preemptible=False), w.submit(1, pool="q", preemptible=False))
    starving = w.submit(2)
    w.now += HOUR
    later = w.submit(1, pool="q", alternatives=(ask(1),))
    verdicts = {v.first: (v.code, v.blocker) for v in w.plan().verdicts.values()}
    assert verdicts == {starving: ("no_fit", None), later: ("kept_back", starving)}


def test_a_short_job_goes_before_a_start_that_is_known():
    w = cluster(1, 2, starvation_after_ms=HOUR, queues=queues("default", policy="fifo"))
    w.run(w.submit(1, preemptible=False, estimated_duration_ms=3 * HOUR))
    starving = w.submit(2, preemptible=False)
    w.now += HOUR
    short, long = w.submit(1, estimated_duration_ms=HOUR), w.submit(1, estimated_duration_ms=4 * HOUR)
    found = w.plan()
    assert started(found) == [short]
    assert reserved(found) == [(starving, w.now + 2 * HOUR)]
    assert w.phase(long) == "waiting"


def test_a_starving_job_that_fits_starts_before_those_of_higher_priority():
    w = cluster(1, 1, starvation_after_ms=HOUR)
    old = w.submit(1, priority=100)
    w.now += HOUR
    w.submit(1, priority=900)
    assert started(w.plan()) != [old]
    w.now += HOUR
    assert started(w.plan()) == [old]


def test_only_the_one_that_waited_longest_is_looked_after():
    w, starving = held_up()
    w.submit(2, priority=900, cpus=2)
    w.now += HOUR
    assert reserved(w.plan()) == [(starving, 0)]


def test_nodes_that_the_starving_job_does_not_need_go_on():
    w = World(node("a", 2), node("b", 1), starvation_after_ms=HOUR, pools=(Pool("default", placement="best_fit"),))
    w.run(w.submit(1), w.submit(1, preemptible=False))
    starving = w.submit(2)
    w.now += 2 * HOUR
    finish(w, 1)
    other = w.submit(1)
    found = w.plan()
    assert starving not in started(found)
    assert started(found) == [other]
    assert found.starts[0].places[0].node == "b"


def test_each_pool_has_its_own():
    w = World(node("a", 1), node("b", 1, pool="q"), pools=(Pool("default"), Pool("q")), starvation_after_ms=HOUR)
    w.run(w.submit(1, preemptible=False), w.submit(1, pool="q", preemptible=False))
    both = [w.submit(1), w.submit(1, pool="q")]
    w.now += HOUR
    assert [job for job, _ in reserved(w.plan())] == both


def test_a_job_over_its_maximum_keeps_nothing():
    limit = queues("default", max=(("devices", 2_000),), preemption="never") + queues("other")
    w = cluster(1, 4, starvation_after_ms=HOUR, queues=limit)
    w.run(w.submit(1, preemptible=False))
    w.submit(2)
    w.now += HOUR
    other = w.submit(3, queue="other")
    assert started(w.plan()) == [other]


def test_a_job_that_backs_off_keeps_nothing():
    w = cluster(1, 2, starvation_after_ms=1_000, backoff_first_ms=60_000)
    old = w.submit(2, retries_max=1)
    w.run(old)
    w.exit_replica(old, code=1)
    w.now += 1_000
    later = w.submit(1)
    assert started(w.plan()) == [later]


@examples(25)
@given(st.integers(0, 2**32))
def test_no_job_that_fits_waits_for_ever_in_an_endless_stream(seed):
    """A stream of small jobs of higher priority keeps the cluster full; the wide gang starts all the same."""
    rnd = random.Random(seed)
    w = cluster(2, 4, starvation_after_ms=HOUR)
    wide = w.submit(rnd.randint(2, 4), 2, priority=100, preemptible=False)
    w.drain("n0")
    w.drain("n1")
    w.now += 1
    for _ in range(8):
        w.submit(1, priority=900, preemptible=False, estimated_duration_ms=rnd.choice([0, HOUR]))
    w.drain("n0", on=False)
    w.drain("n1", on=False)
    w.cycle()
    for _ in range(120):
        follow(w)
        w.now += HOUR // 8
        busy = [j for j in sorted(w.state.indexes.active) if w.phase(j) == "running"]
        if busy and rnd.random() < 0.7:
            finish(w, rnd.choice(busy))
        w.submit(1, priority=900, preemptible=False, estimated_duration_ms=rnd.choice([0, HOUR]))
        w.cycle()
        if w.phase(wide) != "waiting":
            return
    pytest.fail("the wide gang never started")


# The bound.


def waiting(*asks, **fields):
    """Return a full cluster of 2 x 4 devices and jobs that wait for these numbers of devices."""
    w = cluster(2, 4, starvation_after_ms=HOUR, queues=queues("default", preemption="never"), **fields)
    w.run(*(w.submit(4, preemptible=False) for _ in range(2)))
    return w, [w.submit(ask) for ask in asks]


@pytest.mark.parametrize(("others", "bound_ms"), [((), HOUR), ((4,), HOUR * 3 // 2), ((4, 4, 4, 4), 3 * HOUR)])
def test_the_more_others_wait_the_longer_a_job_waits_before_it_starves(others, bound_ms):
    w, jobs = waiting(4, *others)
    since_ms = w.now
    w.now += bound_ms - 1
    assert reserved(w.plan()) == []
    assert w.plan().again_ms == since_ms + bound_ms
    w.now += 1
    assert reserved(w.plan()) == [(jobs[0], 0)]


def test_what_waits_for_another_pool_does_not_count():
    nodes = (node("a", 4), node("b", 4, pool="q"))
    w = World(*nodes, pools=(Pool("default"), Pool("q")), starvation_after_ms=HOUR)
    w.run(w.submit(4, preemptible=False), w.submit(4, pool="q", preemptible=False))
    here = w.submit(2)
    for _ in range(5):
        w.submit(4, pool="q")
    w.now += HOUR
    assert reserved(w.plan()) == [(here, 0)]


def test_where_there_are_no_devices_cpus_count():
    w = World(node("a", 0, cpus=4), starvation_after_ms=HOUR)
    w.run(w.submit(0, cpus=4, preemptible=False))
    first, _ = w.submit(0, cpus=4), w.submit(0, cpus=2)
    w.now += HOUR
    assert reserved(w.plan()) == []
    w.now += HOUR // 2
    assert reserved(w.plan()) == [(first, 0)]


def test_a_job_that_runs_long_waits_longer_before_it_starves():
    w, (long, short) = waiting(3, 3, starvation_ratio=2)
    predict = ((long, HOUR, HOUR), (short, HOUR // 8, HOUR // 8))
    w.emit(RunTimesPredicted(predict))
    w.now += HOUR * 3 // 8 + HOUR + HOUR // 4 - 1
    assert reserved(w.plan()) == []
    w.now += 1
    assert reserved(w.plan()) == [(short, 0)]


def test_room_is_kept_while_others_leave_for_a_third_job_and_while_that_starts():
    """What these hold becomes free some day, too: else the cycles in which jobs change places keep nothing."""
    w = cluster(1, 3, starvation_after_ms=HOUR, starvation_ratio=0)
    low = [w.submit(1, priority=200) for _ in range(3)]
    w.run(*low)
    starving = w.submit(3, priority=100)
    w.now += 2 * HOUR
    high = w.submit(1, priority=900)
    assert [p.beneficiary for p in w.cycle().preemptions] == [high]
    victim = next(job_id for job_id in low if w.phase(job_id) == "stopping")
    assert reserved(w.cycle()) == [(starving, 0)], "while the victim leaves"
    w.leave(victim)
    finish(w, next(job_id for job_id in low if job_id != victim))
    small = w.submit(1, priority=300)
    found = w.cycle()
    assert (started(found), reserved(found)) == ([high], [(starving, 0)]), "while the beneficiary starts"
    assert w.phase(small) == "waiting"
