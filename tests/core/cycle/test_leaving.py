"""Nodes that are lent for a time: nothing is placed there that would have to be moved for nothing, or must not be."""

import pytest

from penstock.core.explain import explain
from penstock.core.model.cluster import Pool, Reservation, Tenant
from penstock.core.model.events import NodeLeaveNoted, NodeLost
from penstock.testing.builders import node
from penstock.testing.harness import World

MINUTE = 60_000
RULES = {"pools": (Pool("default", backfill="easy"),), "min_runtime_before_preemption_ms": 0}
LEFT, STAYS = 30 * MINUTE, 60 * MINUTE


def world(*names, left_ms=LEFT):
    """Return a world whose nodes go in half an hour, and stay for an hour in all."""
    w = World(*(node(name, 1) for name in names or ("a",)), **RULES)
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


def occupied(grace_ms=1_000, **fields):
    """Return a world in which each of two nodes that go in half an hour runs a job of low priority, and these jobs."""
    w = world("a", "b")
    low = [w.submit(1, priority=100, grace_ms=grace_ms, **fields) for _ in range(2)]
    w.run(*low)
    return w, low


@pytest.mark.parametrize(
    ("limit_ms", "grace_ms", "preemptible", "asked"),
    [
        (20 * MINUTE, 1_000, True, True),
        (20 * MINUTE, 1_000, False, True),
        (20 * MINUTE, 10 * MINUTE, False, False),
        (40 * MINUTE, 1_000, True, False),
        (70 * MINUTE, 1_000, True, True),
        (0, 1_000, False, False),
    ],
    ids=str,
)
def test_a_job_makes_room_on_nodes_that_go_where_it_ends_in_time_once_the_others_have_left(
    limit_ms, grace_ms, preemptible, asked
):
    w, low = occupied(grace_ms)
    w.submit(1, 2, priority=1000, time_limit_ms=limit_ms, preemptible=preemptible)
    assert sorted(one.victim for one in w.plan().preemptions) == (low if asked else [])


def test_the_room_made_on_nodes_that_go_is_kept_and_taken():
    w, low = occupied(20_000)
    urgent = w.submit(1, 2, priority=1000, time_limit_ms=20 * MINUTE)
    w.cycle()
    w.leave(low[0])
    w.submit(1, priority=900, time_limit_ms=MINUTE)
    assert starts(w) == []
    assert [one.node for one in w.plan().held[urgent]] == ["a", "b"]
    w.leave(low[1])
    assert starts(w) == [(urgent, "a")]


@pytest.mark.parametrize(("limit_ms", "kept"), [(10 * MINUTE, True), (27 * MINUTE, False)], ids=str)
def test_room_is_kept_on_nodes_that_go_where_the_job_will_end_in_time(limit_ms, kept):
    w = world("a", "b", "c")
    w.run(*(w.submit(1, time_limit_ms=5 * MINUTE) for _ in range(2)))
    wide = w.submit(1, 3, time_limit_ms=limit_ms, priority=500)
    small = w.submit(1, time_limit_ms=20 * MINUTE, priority=100)
    assert [one.job_id for one in w.plan().reserved] == ([wide] if kept else [])
    assert starts(w) == ([] if kept else [(small, "c")])


def test_a_short_job_makes_room_on_reserved_nodes_before_their_window():
    window = Reservation("r", "other", 1_000_000 + LEFT, 1_000_000 + STAYS, ("a", "b"))
    tenants = (Tenant("default"), Tenant("other"))
    w = World(node("a", 1), node("b", 1), tenants=tenants, reservations=(window,), **RULES)
    low = [w.submit(1, priority=100, time_limit_ms=10 * MINUTE, grace_ms=1_000) for _ in range(2)]
    w.run(*low)
    w.submit(1, 2, priority=1000, time_limit_ms=20 * MINUTE)
    assert sorted(one.victim for one in w.plan().preemptions) == low
