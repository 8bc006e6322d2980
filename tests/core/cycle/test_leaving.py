"""Nodes that are lent for a time: nothing is placed there that would have to be moved for nothing, or must not be."""

import pytest

from penstock.core.explain import explain
from penstock.core.model.events import NodeLeaveNoted, NodeLost
from penstock.testing.builders import node
from penstock.testing.harness import World

MINUTE = 60_000
LEFT, STAYS = 30 * MINUTE, 60 * MINUTE


def world(*names, left_ms=LEFT):
    """Return a world whose nodes go in half an hour, and stay for an hour in all."""
    w = World(*(node(name, 1) for name in names or ("a",)))
    for name in names or ("a",):
        w.emit(NodeLeaveNoted(name, w.now + left_ms, STAYS))
    return w


def starts(w):
    return [(one.job_id, one.places[0].node) for one in w.plan().starts]


@pytest.mark.parametrize(
    ("limit_ms", "preemptible", "goes"),
    [
        (0, True, True),
        (20 * MINUTE, True, True),
        (40 * MINUTE, True, False),
        (70 * MINUTE, True, True),
        (0, False, False),
        (20 * MINUTE, False, True),
        (40 * MINUTE, False, False),
        (70 * MINUTE, False, False),
    ],
    ids=str,
)
def test_a_job_is_placed_where_it_ends_in_time_or_would_have_to_move_anyway(limit_ms, preemptible, goes):
    w = world()
    job = w.submit(1, time_limit_ms=limit_ms, preemptible=preemptible)
    assert starts(w) == ([(job, "a")] if goes else [])
    w.submit(1, time_limit_ms=limit_ms, preemptible=preemptible)  # beside another one that waits
    assert [job_id for job_id, _ in starts(w)] == ([job] if goes else [])


def test_jobs_that_differ_get_their_own_answers_in_one_cycle():
    w = world("a", "b")
    stays, moves = w.submit(1, preemptible=False), w.submit(1)
    assert starts(w) == [(moves, "a")]
    short = w.submit(1, preemptible=False, time_limit_ms=MINUTE)
    assert sorted(job for job, _ in starts(w)) == [moves, short]
    assert [verdict.code for verdict in w.plan().verdicts.values() if verdict.first == stays] == ["kept_back"]


def test_a_node_that_stays_takes_all_of_them():
    w = World(node("a", 1), node("b", 1))
    w.emit(NodeLeaveNoted("a", w.now + LEFT, STAYS))
    job = w.submit(1, preemptible=False)
    assert starts(w) == [(job, "b")]
    w.emit(NodeLeaveNoted("a", 0))
    second = w.submit(1, preemptible=False)
    assert sorted(starts(w)) == [(job, "a"), (second, "b")]


def test_after_its_time_a_node_takes_nothing_that_has_to_stay():
    w = world(left_ms=MINUTE)
    w.submit(1, preemptible=False, time_limit_ms=1)
    w.now += MINUTE
    assert starts(w) == []


def test_a_lost_node_goes_no_more():
    w = world()
    w.emit(NodeLost("a", "it ended"))
    assert w.state.indexes.leaving == set()


def test_the_reason_is_named_with_the_time():
    w = world("a", "b")
    job = w.submit(1, time_limit_ms=40 * MINUTE)
    found = explain(w.state, w.state.jobs[job], w.now)
    first = found.constraints[0]
    assert (found.code, first.text) == ("kept_back", "a, b go in 30m 0s at the latest, and it might still run then")
    assert (first.distance, first.unit, found.refused) == (LEFT, "ms", {"kept_back": 2})
    assert found.edits[0].text == "time_limit: 29m23s instead of 40m: it would end before the room is needed"
    other = w.submit(1, preemptible=False)
    text = explain(w.state, w.state.jobs[other], w.now).constraints[0].text
    assert text.endswith("and it might still run then, though it must not be preempted")
