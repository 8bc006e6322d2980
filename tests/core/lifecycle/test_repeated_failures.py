"""A job that fails in the same way at the same step is not tried for ever; who failed first is blamed."""

import pytest

from penstock.core.messages.reports import ProgressSeen, ReplicaKey
from penstock.testing.harness import cluster

PATIENCE = 40


def fails(w, job, step, code=1, note="ValueError: bad row 17"):
    """Run the job's next attempt to `step`, saved, and let it fail there."""
    w.now += 400_000
    w.run(job)
    number = w.job(job).last_attempt
    seen = ProgressSeen(ReplicaKey(job, number, 0), "checkpoint", step)
    w.report(w.where(job), w.seen(job), inventory=False, progress=(seen,))
    w.exit_replica(job, 0, code, note=note)


def test_three_times_the_same_is_enough():
    w = cluster(1, 1)
    job = w.submit(retries_max=PATIENCE)
    for _ in range(2):
        fails(w, job, 120)
    assert w.phase(job) == "waiting"
    fails(w, job, 120)
    assert w.ended[job] == "failed"
    assert w.reasons[job] == "failed 3 times in the same way at step 120: exit 1 (ValueError: bad row 17)"


@pytest.mark.parametrize(
    "other", [{"step": 121}, {"step": 120, "code": 2}, {"step": 120, "note": "KeyError: 'x'"}], ids=str
)
def test_another_step_or_another_way_counts_anew(other):
    w = cluster(1, 1)
    job = w.submit(retries_max=PATIENCE)
    for _ in range(2):
        fails(w, job, 120)
    fails(w, job, **other)
    assert (w.phase(job), w.job(job).failure.times) == ("waiting", 1)


def test_numbers_within_a_message_make_no_difference():
    w = cluster(1, 1)
    job = w.submit(retries_max=PATIENCE)
    for address in ("0x7f01", "0x7f02", "0x7f93"):
        fails(w, job, 5, note=f"RuntimeError: bad pointer {address}")
    assert w.ended[job] == "failed"


def test_how_many_processes_the_kernel_killed_makes_no_difference():
    w = cluster(1, 1)
    job = w.submit(retries_max=PATIENCE)
    for killed in ("1 process", "2 processes", "11 processes"):
        fails(w, job, 5, 137, note=f"out of memory: limit 1 GiB, killed by the kernel ({killed})")
    assert w.ended[job] == "failed"


def test_a_program_that_reports_no_steps_has_all_its_retries():
    w = cluster(1, 1)
    job = w.submit(retries_max=5)
    for _ in range(5):
        w.now += 400_000
        w.run(job)
        w.exit_replica(job, 0, 1)
    assert w.phase(job) == "waiting"


def test_it_can_be_switched_off():
    w = cluster(1, 1, same_failures_max=0)
    job = w.submit(retries_max=10)
    for _ in range(6):
        fails(w, job, 120)
    assert w.phase(job) == "waiting"


def test_who_ended_first_is_blamed():
    w = cluster(1, 3)
    job = w.submit(1, 3)
    w.run(job)
    w.exit_replica(job, 2, None, signal=9)
    w.now += 50
    w.exit_replica(job, 0, 1, note="RuntimeError: Connection closed by peer")
    w.exit_replica(job, 1, 1)
    assert w.reasons[job] == "replica 2: signal 9"
