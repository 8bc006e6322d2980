"""What becomes of the room that victims leave, and of the victims."""

import pytest

from penstock.core.model.cluster import Queue
from penstock.testing.builders import chips, queues
from penstock.testing.harness import cluster

HOUR = 3_600_000


def preempted(w, low=100, high=1000, devices=1, **fields):
    """Return a victim that is being stopped and its beneficiary, on a full node."""
    victim = w.submit(devices, priority=low)
    w.run(victim)
    beneficiary = w.submit(devices, priority=high, **fields)
    w.cycle()
    assert w.phase(victim) == "stopping"
    return victim, beneficiary


def test_the_beneficiary_starts_where_its_victim_left():
    w = cluster(1, 1)
    victim, high = preempted(w)
    w.leave(victim)
    found = w.cycle()
    assert [(s.job_id, chips(*s.places)) for s in found.starts] == [(high, [("n0", (0,))])]
    assert w.phase(victim) == "waiting"


def test_a_victim_keeps_its_submit_time_and_its_checkpoint():
    w = cluster(1, 1)
    before = w.now
    victim, _ = preempted(w)
    w.now += 500
    w.leave(victim)
    job = w.job(victim)
    assert (job.submitted_ms, job.waiting_since_ms, job.preemptions) == (before, w.now, 1)
    assert (job.retries_used, job.infrastructure_failures, job.not_before_ms) == (0, 0, 0)


def test_a_victim_gets_back_before_younger_jobs_of_its_class():
    w = cluster(1, 1)
    victim, high = preempted(w)
    younger = w.submit(1, priority=100)
    w.leave(victim)
    w.run(high)
    w.exit_replica(high)
    assert [s.job_id for s in w.cycle().starts] == [victim]
    assert w.phase(younger) == "waiting"


def test_nobody_is_asked_twice_for_one_beneficiary():
    w = cluster(1, 2)
    running = [w.submit(1, priority=100), w.submit(1, priority=100)]
    w.run(*running)
    w.submit(1, priority=1000)
    assert len(w.cycle().preemptions) == 1
    for _ in range(5):
        w.now += 1000
        assert w.cycle().preemptions == ()
    assert sorted(w.phase(j) for j in running) == ["running", "stopping"]


def test_room_is_kept_while_one_of_two_victims_still_saves():
    w = cluster(1, 2)
    one, two = w.submit(1, priority=100), w.submit(1, priority=100)
    w.run(one, two)
    high = w.submit(2, priority=500)
    assert len(w.cycle().preemptions) == 2
    w.leave(one)
    thief = w.submit(1, priority=490)
    for _ in range(5):
        found = w.cycle()
        assert found.starts == ()
        assert list(found.held) == [high]
    w.leave(two)
    assert [s.job_id for s in w.cycle().starts] == [high]
    assert w.phase(thief) == "waiting"


@pytest.mark.parametrize("policy", ["fifo", "priority"])
def test_the_room_is_the_beneficiarys_when_its_last_victim_has_left(policy):
    w = cluster(1, 2, queues=queues("default", policy=policy))
    victim = w.submit(1, priority=450)
    w.run(victim)
    w.now += HOUR  # with its waiting bonus the victim comes before the beneficiary in both orders
    other = w.submit(1, priority=900)
    w.run(other)
    high = w.submit(1, priority=500, preemptible=False)
    assert [p.victim for p in w.cycle().preemptions] == [victim]
    w.leave(victim)
    assert [s.job_id for s in w.cycle().starts] == [high]


def test_a_third_job_does_not_take_the_room_that_was_made():
    w = cluster(1, 2, queues=(Queue("default"), Queue("polite", preemption="never")))
    victim = w.submit(2, priority=100)
    w.run(victim)
    third = w.submit(1, priority=495, queue="polite")  # being small it comes before the beneficiary in order
    high = w.submit(2, priority=500)
    assert [p.victim for p in w.cycle().preemptions] == [victim]
    w.leave(victim)
    assert [s.job_id for s in w.cycle().starts] == [high]
    assert w.phase(third) == "waiting"


@pytest.mark.parametrize(("policy", "low", "high"), [("fifo", 100, 1000), ("priority", 450, 500)])
def test_two_jobs_never_push_each_other_out_in_turn(policy, low, high):
    w = cluster(1, 1, queues=queues("default", policy=policy))
    victim = w.submit(1, priority=low)
    w.run(victim)
    w.now += HOUR
    beneficiary = w.submit(1, priority=high)
    for _ in range(50):
        w.now += 1000
        w.cycle()
        for job_id in (victim, beneficiary):
            if w.phase(job_id) == "starting":
                w.start(job_id)
            elif w.phase(job_id) == "stopping":
                w.leave(job_id)
    assert w.phase(beneficiary) == "running"
    assert w.job(victim).preemptions == 1


def test_a_cascade_is_impossible():
    w = cluster(1, 1)
    jobs = [w.submit(1, priority=100)]
    for priority in (200, 300, 400):
        w.run(jobs[-1])
        jobs.append(w.submit(1, priority=priority))
        w.cycle()
        w.leave(jobs[-2])
    w.run(jobs[-1])
    for _ in range(10):
        assert w.cycle().preemptions == ()
    assert [w.phase(j) for j in jobs] == ["waiting", "waiting", "waiting", "running"]


def test_room_that_comes_by_itself_spares_other_victims():
    w = cluster(1, 2)
    leaving, staying = w.submit(1, priority=100), w.submit(1, priority=100)
    w.run(leaving, staying)
    w.cancel(leaving)
    high = w.submit(1, priority=1000)
    found = w.cycle()
    assert found.preemptions == ()
    assert list(found.held) == [high]
    assert found.verdicts[w.job(high).class_id].code == "making_room"


def test_two_beneficiaries_do_not_count_on_the_same_room():
    w = cluster(1, 2)
    low = [w.submit(1, priority=100), w.submit(1, priority=100)]
    w.run(*low)
    highs = [w.submit(1, priority=1000), w.submit(1, priority=900)]
    found = w.cycle()
    assert sorted(p.victim for p in found.preemptions) == low
    assert sorted(p.beneficiary for p in found.preemptions) == highs
    assert sorted(chips(*(p for places in found.held.values() for p in places))) == [("n0", (0,)), ("n0", (1,))]


def test_room_that_comes_by_itself_is_kept_for_one_job_only():
    w = cluster(1, 1)
    leaving = w.submit(1, priority=100)
    w.run(leaving)
    w.cancel(leaving)
    first = w.submit(1, priority=1000)
    second = w.submit(1, priority=900)
    found = w.cycle()
    assert list(found.held) == [first]
    assert found.verdicts[w.job(second).class_id].code == "no_fit"


def test_a_victim_that_finished_its_work_is_not_started_again():
    w = cluster(1, 1)
    victim, _ = preempted(w)
    w.exit_replica(victim, 0, 0, stop_sent=True, done=True)
    assert w.ended[victim] == "succeeded"


def test_a_beneficiary_that_is_cancelled_leaves_its_room_to_others():
    w = cluster(1, 1)
    victim, high = preempted(w)
    w.cancel(high)
    w.leave(victim)
    assert [s.job_id for s in w.cycle().starts] == [victim]
