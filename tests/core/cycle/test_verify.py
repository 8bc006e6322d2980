"""A plan that was made on an old snapshot is cut to what still holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.cycle.verify import verify
from penstock.core.model.events import JobProtected
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster
from tests.properties import examples


def planned(w, *submits):
    jobs = [w.submit(**fields) for fields in submits]
    return jobs, w.plan()


def kept(w, proposed):
    found = w.apply(proposed)
    return [s.job_id for s in found.starts], found.dropped


def test_a_plan_on_the_present_state_holds_whole():
    w = cluster(2, 2)
    jobs, proposed = planned(w, {"devices": 2}, {"devices": 2})
    assert kept(w, proposed) == (jobs, 0)


def test_a_plan_never_holds_twice():
    w = cluster(2, 2)
    _, proposed = planned(w, {"devices": 1}, {"devices": 1, "replicas": 2})
    w.apply(proposed)
    assert kept(w, proposed) == ([], 2)


def test_a_start_of_a_cancelled_job_is_dropped():
    w = cluster(1, 2)
    (one, two), proposed = planned(w, {}, {})
    w.cancel(one)
    assert kept(w, proposed) == ([two], 1)


def reborn(w):
    w.hello(w.state.nodes["n0"].spec, "i2")


@pytest.mark.parametrize(
    "happens",
    [
        lambda w: w.lose("n0"),
        lambda w: w.drain("n0"),
        reborn,
        lambda w: w.hello(w.state.nodes["n0"].spec, "i2", ready=False),
    ],
    ids=["lost", "drained", "reborn", "joining"],
)
def test_a_start_on_a_node_that_changed_is_dropped_whole(happens):
    w = cluster(2, 1)
    (gang,), proposed = planned(w, {"devices": 1, "replicas": 2})
    happens(w)
    assert kept(w, proposed) == ([], 1)
    assert w.phase(gang) == "waiting"
    assert all(not load.replicas for load in w.state.indexes.loads.values())


def test_a_start_on_a_taken_device_is_dropped():
    w = cluster(1, 4)
    (one,), first = planned(w, {"devices": 2})
    w.cancel(one)
    (two,), second = planned(w, {"devices": 1})
    (three,), third = planned(w, {"devices": 2, "priority": 900})
    assert kept(w, second) == ([two], 0)
    assert kept(w, third) == ([], 2)
    assert kept(w, first) == ([], 1)
    assert w.phase(three) == "waiting"


def test_a_start_on_host_memory_that_is_gone_is_dropped():
    w = World(node("a", 0, cpus=4))
    (one,), first = planned(w, {"devices": 0, "cpus": 3})
    w.apply(first)
    w.exit_replica(one)
    (two,), stale = planned(w, {"devices": 0, "cpus": 3})
    other = w.submit(0, cpus=2, priority=900)
    from penstock.core.model.events import AttemptAllocated
    from penstock.core.model.jobs import ReplicaPlace

    w.emit(AttemptAllocated(other, 1, (ReplicaPlace("a", "i1"),)))
    assert kept(w, stale) == ([], 1)
    assert w.phase(two) == "waiting"


def test_what_a_dropped_gang_would_have_held_stays_free_for_later_starts():
    w = World(node("a", 1), node("b", 1))
    (gang,), first = planned(w, {"devices": 1, "replicas": 2, "priority": 900})
    w.cancel(gang)
    (one,), second = planned(w, {"devices": 1})
    (again,), third = planned(w, {"devices": 1, "replicas": 2, "priority": 900})
    w.drain("b")
    assert [s.job_id for s in third.starts] == [again]
    assert kept(w, replace(third, starts=(*third.starts, *second.starts))) == ([one], 1)
    assert kept(w, first) == ([], 1)


def test_an_attempt_number_that_moved_on_drops_the_start():
    w = cluster(1, 1)
    (one,), stale = planned(w, {"devices": 1})
    w.run(one)
    w.drain("n0", evict=True)
    w.leave(one)
    w.drain("n0", on=False)
    assert w.phase(one) == "waiting"
    assert kept(w, stale) == ([], 1)


def crowded():
    """Return a plan in which two victims leave for one beneficiary, and its world."""
    w = cluster(1, 2)
    low = [w.submit(1, priority=100), w.submit(1, priority=100)]
    w.run(*low)
    high = w.submit(2, priority=1000)
    proposed = w.plan()
    assert sorted(p.victim for p in proposed.preemptions) == low
    return w, low, high, proposed


@pytest.mark.parametrize(
    "happens",
    [
        lambda w, low, high: w.exit_replica(low[0]),
        lambda w, low, high: w.cancel(low[0]),
        lambda w, low, high: w.cancel(high),
        lambda w, low, high: w.lose("n0"),
    ],
    ids=["victim ended", "victim already stopping", "beneficiary cancelled", "node lost"],
)
def test_all_victims_of_a_beneficiary_are_asked_or_none(happens):
    w, low, high, proposed = crowded()
    happens(w, low, high)
    found = w.apply(proposed)
    assert (found.preemptions, found.dropped) == ((), 2)
    assert "preempted" not in [j.attempt.stop.reason for j in w.state.jobs.values() if j.attempt and j.attempt.stop]


def test_all_victims_are_asked_when_all_still_run():
    w, low, _, proposed = crowded()
    assert w.apply(proposed).dropped == 0
    assert [w.phase(v) for v in low] == ["stopping", "stopping"]


def test_nobody_leaves_for_a_job_that_could_not_start_there_any_more():
    w, low, _, proposed = crowded()
    w.drain("n0")
    assert w.apply(proposed).preemptions == ()
    assert [w.phase(v) for v in low] == ["running", "running"]


def test_a_preemption_of_an_older_attempt_is_dropped():
    w, _, _, proposed = crowded()
    older = tuple(replace(p, attempt=p.attempt - 1) for p in proposed.preemptions[:1])
    found = w.apply(replace(proposed, preemptions=(*older, *proposed.preemptions[1:])))
    assert (found.preemptions, found.dropped) == ((), 2)


moves = st.lists(
    st.tuples(st.sampled_from(["cancel", "drain", "lose", "rebirth", "exit", "plan", "old plan"]), st.integers(0, 7)),
    max_size=10,
)


@examples(80)
@given(moves)
def test_many_planners_at_once_never_give_one_device_to_two(found):
    w = cluster(2, 2, cpus=4)
    for i in range(8):
        w.submit(1 + i % 2, 1 + i % 3 // 2, priority=100 * (1 + i % 3))
    plans = [w.plan()]
    for what, which in found:
        spec = w.state.nodes[f"n{which % 2}"].spec
        if what == "cancel":
            w.cancel(which)
        elif what == "drain":
            w.drain(spec.name, on=which > 3)
        elif what == "lose" and w.state.nodes[spec.name].state == "ready":
            w.lose(spec.name)
        elif what == "rebirth":
            w.hello(spec, f"i{w.state.seq}")
        elif what == "exit" and which in w.state.indexes.active:
            w.report(w.where(which), w.seen(which, 0, "exited"), inventory=False)
        elif what == "plan":
            plans.append(w.plan())
        w.apply(plans[which % len(plans)])  # the world checks all invariants
    assert verify(w.plan(), w.state).dropped == 0


def test_a_plan_made_before_a_job_was_protected_does_not_stop_it():
    w = cluster(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    w.submit(1)
    plan = w.plan()
    assert plan.preemptions
    w.emit(JobProtected(low, "its budget allows 0 disruptions now"))
    assert verify(plan, w.state).preemptions == ()
