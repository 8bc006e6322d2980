"""Rooms of several beneficiaries at once: each goes into the places that its own victims left."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.cluster import Pool
from penstock.core.model.resources import WHOLE_DEVICE_MILLI
from penstock.testing.builders import chips, node, queues
from penstock.testing.harness import World
from tests.properties import examples


def full(*widths, **fields):
    """Return a world with one job on each node, which takes all of it, and the jobs by node."""
    w = World(*(node(f"n{i}", width) for i, width in enumerate(widths)), **fields)
    for width in sorted(widths, reverse=True):
        w.run(w.submit(width, priority=100))
    return w, {job.attempt.replicas[0].place.node: job.id for job in w.state.jobs.values()}


def room_made(w, *asks):
    """Submit jobs with these devices and priorities; return them, and the places that one cycle plans for them."""
    jobs = [w.submit(devices, priority=priority) for devices, priority in asks]
    planned = w.cycle()
    assert sorted(planned.held) == jobs
    return jobs, {job_id: chips(*places) for job_id, places in planned.held.items()}


def starts(w):
    return {s.job_id: chips(*s.places) for s in w.cycle().starts}


@pytest.mark.parametrize("priority", [1000, 900, 500])
def test_a_job_whose_room_is_empty_goes_before_one_whose_victims_still_leave(priority):
    w, at = full(1, 1)
    (first, second), planned = room_made(w, (1, priority), (1, 500))
    w.leave(at[planned[second][0][0]])
    assert starts(w) == {second: planned[second]}
    assert w.phase(first) == "waiting"
    w.leave(at[planned[first][0][0]])
    assert starts(w) == {first: planned[first]}


def test_each_of_two_jobs_gets_the_places_that_its_victims_left():
    w, at = full(2, 1, pools=(Pool("default", placement="worst_fit"),))
    (small, large), planned = room_made(w, (1, 900), (2, 800))
    assert planned == {small: [("n1", (0,))], large: [("n0", (0, 1))]}
    w.leave(at["n0"])
    w.leave(at["n1"])
    assert starts(w) == planned


def test_a_room_that_is_only_half_empty_is_taken_by_no_other_beneficiary():
    w = World(node("n0", 4))
    low = [w.submit(1, priority=100) for _ in range(4)]
    w.run(*low)
    (first, second), planned = room_made(w, (2, 900), (2, 800))
    for job_id in (first, second):
        w.leave(next(j for j in low if chips(w.attempt(j).replicas[0].place)[0][1][0] == planned[job_id][0][1][0]))
    assert starts(w) == {}
    left = next(j for j in low if w.phase(j) == "stopping" and w.attempt(j).stop.beneficiary == second)
    w.leave(left)
    assert starts(w) == {second: planned[second]}


def test_capacity_that_was_free_when_room_was_planned_belongs_to_the_room():
    w = World(node("n0", 4), node("n1", 2))
    on_n1 = w.submit(2, priority=100)
    w.run(on_n1)
    on_n0 = w.submit(2, priority=100)
    w.run(on_n0)
    (large,), room = room_made(w, (4, 500))
    small = w.submit(2, priority=900)
    assert [p.victim for p in w.cycle().preemptions] == [on_n1]
    assert starts(w) == {}
    w.leave(on_n0)
    assert starts(w) == {large: room[large]}
    w.leave(on_n1)
    assert starts(w) == {small: [("n1", (0, 1))]}


def test_a_beneficiary_starts_at_once_beside_the_rooms_of_others():
    w, _ = full(1, 1, 1)
    (first, second), _ = room_made(w, (1, 900), (1, 800))
    spared = next(j for j in w.state.jobs.values() if j.state == "running")
    w.exit_replica(spared.id)
    assert list(starts(w)) == [first]
    assert list(w.last_plan.held) == [second]


def test_a_room_on_a_lost_node_is_given_up():
    w, at = full(1, 1)
    (first, second), planned = room_made(w, (1, 900), (1, 800))
    w.leave(at[planned[second][0][0]])
    w.lose(planned[second][0][0])
    assert starts(w) == {}
    w.leave(at[planned[first][0][0]])
    assert starts(w) == {first: planned[first]}


def test_a_start_forgets_the_room():
    w, at = full(1)
    (high,), planned = room_made(w, (1, 900))
    assert chips(*w.job(high).room) == planned[high]
    w.leave(at["n0"])
    w.cycle()
    assert w.job(high).room == ()


def devices_free(snapshot, places):
    return all(snapshot.free[p.node].devices[i] == WHOLE_DEVICE_MILLI for p in places for i in p.devices)


@examples(60)
@given(st.integers(0, 2**32))
def test_whoever_finds_its_room_empty_starts_there(seed):
    """Random widths, priorities and orders in which victims leave."""
    rnd = random.Random(seed)
    widths = [rnd.choice([1, 2, 4]) for _ in range(rnd.randint(2, 5))]
    w = World(*(node(f"n{i}", width) for i, width in enumerate(widths)), queues=queues("default", policy="fifo"))
    w.run(*[w.submit(1, priority=rnd.choice([100, 200])) for _ in range(sum(widths))])
    for _ in range(rnd.randint(2, 5)):
        w.submit(min(max(widths), rnd.choice([1, 2, 4])), priority=rnd.choice([300, 500, 900]))
        w.cycle()
    for _ in range(12):
        snapshot = w.snapshot()
        empty = {j.id: j.room for j in snapshot.beneficiaries if j.room and devices_free(snapshot, j.room)}
        started = {s.job_id: s.places for s in w.cycle().starts}
        assert empty == {job_id: places for job_id, places in started.items() if job_id in empty}
        leaving = sorted(j.id for j in w.state.jobs.values() if j.state == "stopping")
        for job_id in rnd.sample(leaving, rnd.randint(0, len(leaving))):
            w.leave(job_id)
        for job in [j for j in w.state.jobs.values() if j.state == "starting"]:
            w.start(job.id)
