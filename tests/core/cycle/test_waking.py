"""Which events call for another cycle."""

import pytest

from penstock.core.cycle.triggers import wakes
from penstock.core.model import events as ev
from penstock.testing.harness import cluster, note
from tests.core.elastic.test_elastic_plan import elastic


def waiting(w):
    """Return a job that waits in a class that did not fit, and the plan that says so."""
    w.run(w.submit(4, preemptible=False))
    first = w.submit(4)
    return first, w.cycle()


def test_a_job_behind_others_that_did_not_fit_wakes_nobody():
    w = cluster(1, 4)
    _, plan = waiting(w)
    w.submit(4)
    assert not wakes(w.records[-1].event, w.state, plan)
    assert wakes(w.records[-1].event, w.state, None)


def test_a_job_of_another_kind_wakes():
    w = cluster(1, 4)
    _, plan = waiting(w)
    w.submit(0)
    assert wakes(w.records[-1].event, w.state, plan)


def test_a_job_that_has_ended_meanwhile_wakes():
    w = cluster(1, 4)
    job, plan = waiting(w)
    submitted = next(r.event for r in w.records if isinstance(r.event, ev.JobSubmitted) and r.event.job_id == job)
    w.cancel(job)
    assert wakes(submitted, w.state, plan)


@pytest.mark.parametrize(
    ("event", "expected"),
    [(ev.NodeReady("n0"), True), (ev.ReplicaStarted(1, 1, 0), False), (ev.CheckpointSaved(1, 1, 5), False)],
)
def test_only_what_may_free_or_ask_for_something_wakes(event, expected):
    w = cluster(1, 4)
    assert wakes(event, w.state, None) == expected


def test_what_a_program_tells_wakes_where_it_may_change_a_size_or_first_tells_an_end():
    w = cluster(1, 4)
    job, other = w.submit(2), w.submit(gang=elastic(1, 2))
    w.run(job, other)
    w.submit(4)
    plan = w.cycle()
    note(w, job, 1, step_ms=10)
    assert not wakes(w.records[-1].event, w.state, plan), "it tells no end"
    note(w, other, 1)
    assert wakes(w.records[-1].event, w.state, None)
    note(w, job, 2, step_ms=10, total_steps=100)
    assert not wakes(w.records[-1].event, w.state, plan), "not the first note"


def test_the_first_end_that_is_told_wakes_while_somebody_waits():
    w = cluster(1, 4)
    job = w.submit(4)
    w.run(job)
    nobody = w.cycle()
    w.submit(4)
    somebody = w.cycle()
    note(w, job, 1, step_ms=10, total_steps=100)
    event = w.records[-1].event
    assert wakes(event, w.state, somebody)
    assert not wakes(event, w.state, nobody)
    assert not wakes(event, w.state, None)
    w.exit_replica(job)
    assert not wakes(event, w.state, somebody)


def test_a_node_that_is_open_to_a_tenant_again_wakes():
    w = cluster(1, 1)
    assert wakes(ev.NodeChecked("n0", passed=True), w.state, None)
