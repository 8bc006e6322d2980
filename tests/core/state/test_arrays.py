"""Arrays that run a few members at a time: never more, never fewer than could, whatever happens to the members."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle import requests
from penstock.core.model.ids import UserName
from penstock.core.state.invariants import violations
from penstock.core.state.state import State
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster
from tests.properties import examples


def submitted(w, count, parallel, **fields):
    entry = requests.NewJob(job_spec(array_parallel=parallel, **fields), count, array_first=10, array_step=5)
    w.commit(lambda tx: requests.submit(tx, requests.Submit((entry,), UserName("ann")), w.ended))


def step(w):
    """Plan once, start what may start, and return the jobs that run."""
    w.cycle()
    running = sorted(w.state.indexes.active)
    w.start(*running)
    return running


def test_the_first_free_turn_goes_to_the_first_that_waits():
    w = cluster(1, 8)
    submitted(w, 5, 2)
    assert [w.job(job_id).array_index for job_id in range(1, 6)] == [10, 15, 20, 25, 30]
    seen = []
    while w.state.jobs:
        seen.append(running := step(w))
        w.exit_replica(running[-1])
    assert seen == [[1, 2], [1, 3], [1, 4], [1, 5], [1]]


def test_a_member_that_ends_without_its_turn_gives_none():
    w = cluster(1, 8)
    submitted(w, 4, 1)
    assert step(w) == [1]
    w.cancel(2)
    assert step(w) == [1]
    w.exit_replica(1)
    assert step(w) == [3]


def test_it_survives_an_image():
    w = cluster(1, 8)
    submitted(w, 4, 2)
    step(w)
    again = State.from_image(w.state.image())
    assert (again.indexes.arrays.in_turn, list(again.indexes.arrays.waiting[1])) == ({1: 2}, [3, 4])
    assert violations(again) == []


@pytest.mark.parametrize("change", ["turn", "width"])
def test_the_invariant_notices(change):
    w = cluster(1, 8)
    submitted(w, 3, 1)
    if change == "turn":
        w.state.indexes.arrays.waiting.clear()
    else:
        w.state.indexes.arrays.in_turn[1] = 2
    assert any("turns of arrays" in one.detail for one in violations(w.state))


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=3), st.data())
@examples(60)
def test_no_more_run_than_allowed_and_all_of_them_end(arrays, data):
    w = cluster(2, 4)
    for count, parallel in arrays:
        submitted(w, count, parallel)
    while w.state.jobs:
        running = step(w)
        for first in {job.array_id for job in w.state.jobs.values()}:
            members = [job for job in w.state.jobs.values() if job.array_id == first]
            active = sum(job.id in running for job in members)
            assert active <= members[0].spec.array_parallel
        assert violations(w.state) == []
        chosen = data.draw(st.sampled_from(sorted(w.state.jobs)))
        if chosen in running and data.draw(st.booleans()):
            w.exit_replica(chosen)
        else:
            w.cancel(chosen)
            if chosen in running:
                w.leave(chosen)
