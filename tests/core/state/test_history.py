"""The history of a job says what its log says, and agrees with the state."""

from penstock.core.lifecycle import requests
from penstock.core.model import events as ev
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import ExitInfo
from penstock.core.state.history import History
from penstock.testing.builders import node
from penstock.testing.harness import World


def history(w: World) -> History:
    found = History()
    for record in w.records:
        found.take(record)
    for job_id, job in found.jobs.items():
        assert job.state == w.phase(job_id)
    return found


def test_a_preempted_job_waits_twice_and_goes_on_from_its_checkpoint():
    w = World(node("a", 1))
    low = w.submit(priority=100)
    w.now += 10
    w.cycle()
    w.now += 5
    w.start(low)
    w.emit(ev.CheckpointSaved(low, 1, 40))
    high = w.submit(priority=900)
    w.cycle()
    asked_ms = w.now
    w.now += 100
    w.leave(low)
    w.run(high)
    w.now += 50
    w.exit_replica(high)
    w.run(low)
    w.emit(ev.JobResumed(low, 2, 40))
    job = history(w).jobs[JobId(low)]
    first, second = job.attempts
    assert job.waits == [(1_000_000, 1_000_010), (asked_ms + 100, asked_ms + 150)]
    assert (first.allocated_ms, first.running_ms, first.ended_ms) == (1_000_010, 1_000_015, asked_ms + 100)
    assert (first.outcome, first.requeued, first.asked_to_leave()) == ("preempted", True, (asked_ms, "preempted"))
    assert (first.nodes, first.to_start, first.saved_step) == (("a",), 0, 40)
    assert (second.saved_step, second.resumed.step, second.asked_to_leave()) == (40, 40, None)
    assert (job.saves, job.finished_ms, job.attempt) == (True, None, second)
    assert job.intervals(w.now) == job.waits


def test_a_job_that_waits_has_an_open_interval():
    w = World(node("a", 1))
    job_id = w.submit()
    w.now += 30
    assert history(w).jobs[JobId(job_id)].intervals(w.now) == [(1_000_000, w.now)]
    w.commit(lambda tx: requests.cancel(tx, job_id, "ann"))
    job = history(w).jobs[JobId(job_id)]
    assert (job.intervals(w.now + 5), job.exit) == ([(1_000_000, w.now)], "")


def test_the_worst_exit_is_kept():
    w = World(node("a", 2))
    job_id = w.submit(1, 2)
    w.run(job_id)
    w.exit_replica(job_id, 0, 3)
    w.exit_replica(job_id, 1, 0, stop_sent=True)
    job = history(w).jobs[JobId(job_id)]
    assert job.exit == ExitInfo(3).text()
    assert (job.finished is not None, job.finished_ms) == (True, w.now)


def test_a_suspended_attempt_is_idle_until_it_resumes():
    w = World(node("a", 0, cpus=4))
    job_id = w.submit(0, cpus=4, on_preempt="suspend")
    w.run(job_id)
    urgent = w.submit(0, cpus=4, priority=1_000)
    w.cycle()
    w.report("a", w.seen(job_id, state="frozen"), inventory=False)
    w.now += 700
    job = history(w).jobs[JobId(job_id)]
    assert (job.state, job.attempt.idle_ms, job.attempt.idle_until_ms(w.now)) == ("suspended", 0, 700)
    assert job.attempt.asked_to_leave() is None
    w.run(urgent)
    w.exit_replica(urgent)
    w.cycle()
    job = history(w).jobs[JobId(job_id)]
    assert (job.attempt.idle_ms, job.attempt.suspended_ms) == (700, None)
    assert job.attempt.idle_until_ms(w.now + 99) == 700
