"""What time brings: limits of attempts and of waits."""

from penstock.testing.harness import cluster


def test_an_attempt_over_its_limit_is_stopped_and_fails():
    w = cluster(1, 1)
    job = w.submit(1, time_limit_ms=60_000, grace_ms=5_000, retries_max=9)
    w.run(job)
    w.tick(59_999)
    assert w.phase(job) == "running"
    w.tick(1)
    assert w.job(job).attempt.stop.reason == "time_limit"
    w.exit_replica(job, 0, 0, stop_sent=True)
    assert (w.ended[job], w.reasons[job]) == ("failed", "time limit of 60 s reached")


def test_the_limit_counts_from_running_and_for_each_attempt():
    w = cluster(1, 1)
    job = w.submit(1, time_limit_ms=1_000, retries_max=1)
    w.cycle()
    w.tick(5_000)
    w.start(job)
    w.tick(999)
    w.exit_replica(job, 0, 1)
    w.now += 1_000
    w.run(job)
    w.tick(999)
    assert w.phase(job) == "running"


def test_the_limit_holds_for_a_gang_of_which_one_ended_before_the_last_started():
    w = cluster(1, 2)
    job = w.submit(1, 2, time_limit_ms=1_000)
    w.cycle()
    w.report("n0", w.seen(job, 0), inventory=False)
    w.exit_replica(job, 0)
    w.report("n0", w.seen(job, 1), inventory=False)
    w.tick(5_000)
    assert w.phase(job) == "stopping"


def test_a_stop_that_is_under_way_is_not_asked_again():
    w = cluster(1, 1)
    job = w.submit(1, time_limit_ms=1_000)
    w.run(job)
    w.tick(1_000)
    seq = w.state.seq
    w.tick(5_000)
    assert w.state.seq == seq


def test_a_job_that_waits_too_long_is_cancelled():
    w = cluster(1, 1)
    w.submit(1, preemptible=False)
    w.cycle()
    job = w.submit(1, max_wait_ms=60_000)
    w.tick(59_999)
    assert w.phase(job) == "waiting"
    w.tick(1)
    assert (w.ended[job], w.reasons[job]) == ("cancelled", "waited longer than max_wait (60 s)")


def test_running_is_not_waiting():
    w = cluster(1, 1)
    job = w.submit(1, max_wait_ms=1_000)
    w.run(job)
    w.tick(9_000)
    assert w.phase(job) == "running"


def test_a_requeued_job_waits_anew():
    w = cluster(1, 1)
    job = w.submit(1, max_wait_ms=1_000)
    w.run(job)
    w.now += 9_000
    w.drain("n0", evict=True)
    w.leave(job)
    w.tick(999)
    assert w.phase(job) == "waiting"
    w.tick(1)
    assert w.ended[job] == "cancelled"


def test_a_wait_that_ends_takes_those_with_it_that_needed_it():
    w = cluster(1, 1)
    w.submit(1, preemptible=False)
    w.cycle()
    from penstock.core.model.jobs import Dependency

    job = w.submit(1, max_wait_ms=1_000)
    after = w.submit(1, after=(Dependency(job, "after_ok"),), max_wait_ms=1_000)
    w.tick(1_000)
    assert (w.ended[job], w.ended[after]) == ("cancelled", "cancelled")
