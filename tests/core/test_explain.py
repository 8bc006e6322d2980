"""Why a job waits: true numbers, and changes that really would let it start."""

import re

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from penstock.core.explain import explain, jobs_ahead, start_bound, suggestions
from penstock.core.model.cluster import Pool
from penstock.core.model.jobs import Dependency
from penstock.core.place.gang import NoFit, place_gang
from tests.core.builders import World, ask, cluster, node
from tests.core.histories import operations, play, small_world
from tests.core.strategies import gangs, node_lists


def why(w, job_id):
    return explain(w.state, w.job(job_id), w.last_plan, w.now)


def busy(**fields):
    """Return a world of two nodes with 2 of 4 devices free on each, after a cycle."""
    w = cluster(2, 4)
    for other in ("n1", "n0"):
        w.drain(other)
        w.run(w.submit(2, **fields))
        w.drain(other, on=False)
    return w


def test_a_job_that_does_not_fit_is_told_the_numbers():
    w = busy()
    job = w.submit(3, 2)
    w.cycle()
    found = why(w, job)
    assert (found.code, found.refused, found.replicas_possible, found.blockers) == (
        "no_fit",
        {"devices_short": 2},
        0,
        (1, 2),
    )
    assert found.text == (
        "needs 2 x 3 devices; 4 free in all, at most 2 on one node: 2 node(s) have too few devices free"
    )


def test_free_devices_of_other_pools_are_not_counted_as_free_for_it():
    w = World(node("a", 1), node("b", 8, pool="other"), pools=(Pool("default"), Pool("other")))
    w.submit(1, preemptible=False)
    w.cycle()
    job = w.submit(1)
    w.cycle()
    assert why(w, job).text.startswith("needs 1 x 1 devices; 0 free in all, at most 0 on one node")


def test_a_job_without_devices_is_told_how_many_replicas_fit():
    w = World(node("a", 0, cpus=4))
    w.submit(0, cpus=3)
    w.cycle()
    job = w.submit(0, 2, cpus=1)
    w.cycle()
    all_in_words = "1 of 2 replicas fit: 1 node(s) could take some of the replicas, but not all replicas fit together"
    assert why(w, job).text == all_in_words


def test_a_dependency_is_named():
    w = cluster(1, 4)
    first = w.submit(1)
    job = w.submit(1, after=(Dependency(first, "after_ok"),))
    found = why(w, job)
    assert (found.code, found.blockers) == ("dependency", (first,))


def test_backing_off_says_until_when():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    w.exit_replica(job, 0, 1)
    found = why(w, job)
    assert (found.code, found.start_by_ms) == ("backing_off", w.now + 1_000)
    assert "1.0 s" in found.text


def test_a_beneficiary_knows_for_whom_it_waits():
    w = cluster(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    high = w.submit(1, priority=1000)
    w.cycle()
    assert (why(w, high).code, why(w, high).blockers) == ("making_room", (low,))
    assert (why(w, low).code, why(w, low).state) == ("preempted", "stopping")
    assert f"for job {high}" in why(w, low).text


def test_a_job_behind_a_starving_one_knows_it():
    w = cluster(1, 2, starvation_after_ms=1_000)
    w.submit(1, preemptible=False)
    w.cycle()
    starving = w.submit(2)
    w.now += 1_000
    job = w.submit(1, priority=100)
    w.cycle()
    assert (why(w, job).code, why(w, job).blockers) == ("behind_starving_job", (starving,))


def test_what_fits_starts_in_the_next_cycle():
    w = cluster(1, 2)
    job = w.submit(1)
    assert (why(w, job).code, why(w, job).start_by_ms) == ("next_cycle", w.now)


def test_room_kept_for_another_is_not_free():
    w = cluster(1, 2)
    low = w.submit(1, priority=100)
    w.run(low)
    w.submit(2, priority=1000)
    job = w.submit(1, priority=100)
    w.cycle()
    assert why(w, job).code == "no_fit"


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_a_job_that_runs_says_where(phase):
    w = cluster(1, 1)
    job = w.submit(1)
    w.cycle()
    if phase == "running":
        w.start(job)
    assert (why(w, job).code, why(w, job).text) == (phase, f"attempt 1 is {phase} on n0")


def test_jobs_ahead_are_those_of_the_queue_that_come_first():
    w = cluster(1, 1)
    w.submit(1, preemptible=False, priority=1000)
    w.cycle()
    ids = [w.submit(1, priority=p) for p in (500, 900, 500, 100)]
    assert [jobs_ahead(w.state, w.job(j), w.now) for j in ids] == [1, 0, 2, 3]


def test_the_bound_of_a_start_is_when_enough_limits_have_passed():
    w = cluster(1, 4)
    for limit in (60_000, 30_000):
        w.submit(2, time_limit_ms=limit)
    w.run(1, 2)
    small, big = w.submit(1), w.submit(4)
    assert start_bound(w.state, w.job(small), w.now)[0] == w.now + 30_000
    assert start_bound(w.state, w.job(big), w.now)[0] == w.now + 60_000
    assert start_bound(w.state, w.job(big), w.now + 90_000)[0] == w.now + 90_000


def test_a_start_behind_jobs_without_a_limit_cannot_be_told():
    w = cluster(1, 1)
    w.submit(1)
    w.cycle()
    job = w.submit(1)
    at, note = start_bound(w.state, w.job(job), w.now)
    assert (at, note) == (0, "cannot be told: 1 running job(s) declare neither a time limit nor an estimate")


def test_suggestions_are_the_nearest_changes():
    w = busy()
    gang = ask(3, 2, models=("A100",), topology="node", labels_wanted=())
    assert list(suggestions(gang, w.free())) == ["devices: 1 a replica (instead of 3) would start now"]
    assert list(suggestions(ask(1, 3, topology="node"), w.free())) == [
        "replicas: 2 (instead of 3) would start now",
        "without the required topology 'node' it would start now",
    ]
    assert list(suggestions(ask(1, models=("H100",)), w.free())) == ["any device model would start now"]
    assert list(suggestions(ask(1, labels_wanted=(("a", "b"),)), w.free())) == [
        "without the node labels it would start now"
    ]


def edited(gang, text):
    """Return the gang with the change that a suggestion proposes."""
    number = int(found[1]) if (found := re.match(r"\w+: (\d+)", text)) else 0
    devices = gang.each.devices
    if text.startswith("replicas"):
        return replace(gang, replicas=number)
    if text.startswith("devices"):
        return replace(gang, each=replace(gang.each, devices=replace(devices, count=number)))
    if "model" in text:
        return replace(gang, each=replace(gang.each, devices=replace(devices, models=())))
    if "topology" in text:
        return replace(gang, topology=None)
    return replace(gang, labels_wanted=(), labels_shunned=())


@settings(max_examples=150, deadline=None)
@given(node_lists(), gangs())
def test_every_suggestion_would_let_it_start(specs, gang):
    free = World(*specs).free()
    if isinstance(place_gang(gang, free), NoFit):
        for text in suggestions(gang, free):
            assert not isinstance(place_gang(edited(gang, text), free), NoFit), text


@settings(max_examples=60, deadline=None)
@given(operations)
def test_every_job_can_be_explained_and_refusals_add_up(found):
    w = play(small_world(), found)
    for job in w.state.jobs.values():
        answer = explain(w.state, job, w.last_plan, w.now)
        assert answer.text
        assert answer.state == job.state
        assert sum(answer.refused.values()) in (0, len(w.state.nodes))
