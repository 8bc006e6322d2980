"""What follows when replicas end: the rest of the gang, retries, losses, and the job's own outcome."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.ending import backoff_ms
from penstock.core.messages.orders import StopReplica
from penstock.core.messages.reports import ProgressSeen
from penstock.core.model import events as ev
from penstock.core.model.jobs import ExitInfo
from penstock.testing.harness import cluster


def running(w, devices=1, replicas=1, **fields):
    job = w.submit(devices, replicas, **fields)
    w.run(job)
    assert w.phase(job) == "running"
    return job


def test_a_job_runs_when_its_last_replica_has_started():
    w = cluster(1, 2)
    job = w.submit(1, 2)
    w.cycle()
    w.report("n0", w.seen(job, 0), inventory=False)
    assert w.phase(job) == "starting"
    w.now += 5
    w.report("n0", w.seen(job, 1), inventory=False)
    assert (w.phase(job), w.job(job).attempt.running_ms) == ("running", w.now)


def test_the_first_start_of_a_job_is_remembered_over_its_attempts():
    w = cluster(1, 1)
    job = running(w, retries_max=1)
    first = w.now
    w.exit_replica(job, 0, 1)
    w.now += 1_000
    w.run(job)
    assert (w.job(job).first_started_ms, w.job(job).attempt.running_ms) == (first, first + 1_000)


def test_a_gang_succeeds_when_all_replicas_have():
    w = cluster(1, 2)
    job = running(w, 1, 2)
    w.exit_replica(job, 0)
    assert w.phase(job) == "running"
    w.exit_replica(job, 1)
    assert w.ended[job] == "succeeded"


def test_one_failed_replica_stops_the_rest():
    w = cluster(1, 3)
    job = running(w, 1, 3, grace_ms=7_000)
    w.now += 60_000
    w.orders.clear()
    w.exit_replica(job, 1, 3)
    assert (w.phase(job), w.job(job).attempt.stop.reason) == ("stopping", "replica_failed")
    assert [(o.key.rank, o.grace_ms) for _, o in w.orders if isinstance(o, StopReplica)] == [(0, 7_000), (2, 7_000)]


@pytest.mark.parametrize(
    ("since_ms", "grace_ms"), [(0, 10_000), (9_999, 10_000), (40_000, 40_000), (60_000, 60_000), (100_000, 60_000)]
)
@pytest.mark.parametrize("what", ["start", "checkpoint"])
def test_survivors_may_save_for_as_long_as_the_work_since_the_last_checkpoint(what, since_ms, grace_ms):
    w = cluster(1, 3)
    job = running(w, 1, 3, grace_ms=60_000)
    if what == "checkpoint":
        w.now += 50_000
        said = ProgressSeen(w.seen(job).key, "checkpoint", 10)
        w.report("n0", w.seen(job), inventory=False, progress=(said,))
    w.now += since_ms
    w.exit_replica(job, 1, 3)
    assert w.job(job).attempt.stop.grace_ms == grace_ms


def test_a_job_without_retries_fails_with_the_first_failure_as_reason():
    w = cluster(1, 3)
    job = running(w, 1, 3)
    w.exit_replica(job, 1, 3)
    w.exit_replica(job, 0, None, signal=15, stop_sent=True)
    w.exit_replica(job, 2, 0, stop_sent=True)
    assert (w.ended[job], w.reasons[job]) == ("failed", "replica 1: exit 3")


@pytest.mark.parametrize("stopped", [{"code": None, "signal": 9}, {"code": 1}])
def test_the_exit_of_a_gang_is_that_of_the_replica_that_failed_first_by_itself(stopped):
    w = cluster(1, 3)
    job = running(w, 1, 3)
    w.exit_replica(job, 1, 42)
    w.now += 1_000
    w.exit_replica(job, 0, stop_sent=True, **stopped)
    w.exit_replica(job, 2, 0, stop_sent=True)
    (end,) = (record.event for record in w.records if isinstance(record.event, ev.JobFinished))
    assert (end.reason, end.exit) == ("replica 1: exit 42", ExitInfo(42))


def test_retries_wait_twice_as_long_each_time_and_then_fail():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=3)
    waits = []
    for _ in range(3):
        w.run(job)
        w.exit_replica(job, 0, 1)
        waits.append(w.job(job).not_before_ms - w.now)
        w.now = w.job(job).not_before_ms
    w.run(job)
    w.exit_replica(job, 0, 2)
    assert waits == [1_000, 2_000, 4_000]
    assert (w.ended[job], w.reasons[job]) == ("failed", "exit 2")


def test_the_backoff_has_a_ceiling():
    assert [backoff_ms(n, 1_000, 5_000) for n in (0, 1, 2, 3, 99)] == [1_000, 2_000, 4_000, 5_000, 5_000]
    assert [backoff_ms(n, 0, 5_000) for n in (0, 1, 2, 3, 99)] == [0, 500, 1_000, 2_000, 5_000]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_backoff_never_shrinks_and_never_exceeds_its_ceiling(used, first, most):
    assert 0 <= backoff_ms(used, first, most) <= backoff_ms(used + 1, first, most) <= max(most, 0)


def test_exit_0_after_a_stop_is_saved_not_finished():
    w = cluster(1, 1)
    job = running(w)
    w.drain("n0", evict=True)
    w.exit_replica(job, 0, 0, stop_sent=True)
    assert (w.phase(job), w.job(job).retries_used) == ("waiting", 0)


def test_exit_0_without_a_stop_sent_is_finished_even_while_stopping():
    w = cluster(1, 1)
    job = running(w)
    w.drain("n0", evict=True)
    w.exit_replica(job, 0, 0)
    assert w.ended[job] == "succeeded"


def test_work_declared_done_is_finished_however_it_ended():
    w = cluster(1, 1)
    job = running(w)
    w.drain("n0", evict=True)
    w.exit_replica(job, 0, None, signal=9, stop_sent=True, done=True)
    assert w.ended[job] == "succeeded"


def test_a_gang_of_which_one_only_saved_goes_back():
    w = cluster(1, 2)
    job = running(w, 1, 2)
    w.drain("n0", evict=True)
    w.exit_replica(job, 0, 0)
    w.exit_replica(job, 1, 0, stop_sent=True)
    assert w.phase(job) == "waiting"


def test_a_lost_node_is_not_the_users_failure():
    w = cluster(2, 1)
    job = running(w)
    w.lose(w.where(job))
    found = w.job(job)
    assert (found.state, found.retries_used, found.infrastructure_failures) == ("waiting", 0, 1)
    assert found.not_before_ms == w.now
    assert w.plan().starts[0].places[0].node == "n1"


def test_losing_one_node_of_a_gang_stops_the_rest_as_lost():
    w = cluster(2, 1)
    job = running(w, 1, 2)
    w.lose("n0")
    assert w.job(job).attempt.stop.reason == "node_lost"
    w.exit_replica(job, 1, 1, stop_sent=True)
    assert (w.phase(job), w.job(job).retries_used, w.job(job).infrastructure_failures) == ("waiting", 0, 1)


def test_a_lost_node_outweighs_the_failures_it_causes():
    w = cluster(2, 1)
    job = running(w, 1, 2)
    w.exit_replica(job, 1, 1)
    w.lose(w.where(job, 0))
    assert (w.phase(job), w.job(job).retries_used, w.job(job).infrastructure_failures) == ("waiting", 0, 1)


def test_losses_are_bounded_too():
    w = cluster(1, 1, infrastructure_retries_max=2)
    job = w.submit(1)
    for incarnation in ("i2", "i3", "i4"):
        w.now += 10_000
        w.run(job)
        w.hello(w.state.nodes["n0"].spec, incarnation)
    assert w.ended[job] == "failed"
    assert w.reasons[job].startswith("gave up after 2 losses: node n0 was lost")


def test_losses_of_nodes_leave_retries_untouched():
    w = cluster(2, 1)
    job = running(w, retries_max=1)
    w.lose(w.where(job))
    w.run(job)
    w.exit_replica(job, 0, 1)
    assert (w.phase(job), w.job(job).retries_used) == ("waiting", 1)


def test_a_job_cancelled_while_it_fails_is_cancelled():
    w = cluster(1, 1)
    job = running(w, retries_max=5)
    w.cancel(job)
    w.exit_replica(job, 0, 1)
    assert w.ended[job] == "cancelled"


def test_a_replica_that_could_not_be_started_is_the_nodes_fault():
    w = cluster(1, 1)
    job = w.submit(1)
    w.cycle()
    w.exit_replica(job, 0, None, problem="no such directory")
    assert (w.phase(job), w.job(job).infrastructure_failures) == ("waiting", 1)


def test_the_last_exit_and_nodes_are_remembered_over_a_requeue():
    w = cluster(1, 1)
    job = running(w, retries_max=1)
    w.exit_replica(job, 0, None, signal=11)
    assert (w.job(job).last_exit, w.job(job).last_nodes) == (ExitInfo(None, 11), ("n0",))
    assert (w.job(job).attempt, w.job(job).last_attempt) == (None, 1)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (ExitInfo(3), "exit 3"),
        (ExitInfo(signal=9, note="memory limit hit"), "signal 9 (memory limit hit)"),
        (ExitInfo(problem="lost"), "lost"),
        (ExitInfo(), "unknown"),
    ],
)
def test_an_exit_is_told_as_the_kernel_told_it(info, text):
    assert info.text() == text
