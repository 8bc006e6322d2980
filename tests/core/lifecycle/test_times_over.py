"""What ends when its time is over: leases, and work on nodes that are closed."""

from penstock.core.lifecycle.draining import drain
from penstock.testing.harness import cluster


def test_a_lease_whose_time_is_over_has_succeeded():
    w = cluster(1, 4)
    lease = w.submit(1, lease=True, time_limit_ms=60_000, preemptible=False)
    job = w.submit(1, time_limit_ms=60_000)
    w.run(lease)
    w.run(job)
    w.now += 60_001
    w.tick()
    for one in (lease, job):
        assert w.job(one).attempt.stop.reason == "time_limit"
        w.leave(one)
    assert (w.ended[lease], w.ended[job]) == ("succeeded", "failed")


def test_work_on_a_closed_node_is_asked_to_move_when_its_time_is_over():
    w = cluster(2, 1)
    job = w.submit(1)
    w.run(job)
    node = w.job(job).attempt.replicas[0].place.node
    w.commit(lambda tx: drain(tx, node, on=True, by="op", reason="", evict=False, evict_at_ms=w.now + 60_000))
    w.tick(59_000)
    assert w.job(job).attempt.stop is None
    w.tick(1_000)
    assert w.job(job).attempt.stop.reason == "drained"
    seq = w.state.seq
    w.tick(1_000)
    assert w.state.seq == seq


def test_a_node_that_is_opened_again_has_no_time_left_over():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    w.commit(lambda tx: drain(tx, "n0", on=True, by="op", reason="", evict=False, evict_at_ms=w.now + 60_000))
    w.drain("n0", on=False)
    w.drain("n0")
    w.tick(120_000)
    assert w.job(job).attempt.stop is None
