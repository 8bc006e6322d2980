"""What is said to be missing: capacity, and nothing that nodes would not bring."""

from penstock.core.status.scaleout import missing, request_of
from penstock.testing.harness import cluster


def short(w, after_ms=0):
    return missing(w.state.jobs, w.last_plan, w.now, after_ms)


def test_jobs_without_room_are_counted_by_shape():
    w = cluster(1, 4)
    w.run(w.submit(4))
    jobs = [w.submit(1, 2), w.submit(1, 2), w.submit(4)]
    w.cycle()
    w.now += 5_000
    found = short(w)
    assert [(one.count, one.job_ids, one.waited_ms) for one in found] == [
        (2, tuple(jobs[:2]), 5_000),
        (1, (jobs[2],), 5_000),
    ]


def test_short_waits_are_not_told():
    w = cluster(1, 1)
    w.run(w.submit(1))
    w.submit(1)
    w.cycle()
    assert short(w, after_ms=1) == ()
    w.now += 1
    assert len(short(w, after_ms=1)) == 1


def test_before_any_cycle_nothing_is_known():
    w = cluster(1, 1)
    assert missing(w.state.jobs, None, w.now, 0) == ()


def test_who_waits_for_room_that_is_made_misses_nothing():
    w = cluster(1, 1)
    w.run(w.submit(1, priority=100))
    w.submit(1, priority=900)
    w.cycle()
    assert short(w) == ()


def test_the_request_says_what_a_node_must_hold():
    w = cluster(1, 2)
    w.run(w.submit(1))
    job = w.submit(1, 2)
    w.cycle()
    told = request_of(short(w))["missing"][0]
    assert (told["pool"], told["jobs"], told["job_ids"], told["replicas"]) == ("default", 1, [job], 2)
    group = told["groups"][0]
    assert (group["replicas"], group["devices"], group["device_milli"]) == (2, 1, 1_000)
