"""When a cycle is due, for every driver of the loop."""

from msgspec.structs import replace

from penstock.core.cycle import triggers
from penstock.core.cycle.triggers import PlanClock
from penstock.core.model import events as ev
from penstock.core.model.cluster import OthersLoad
from penstock.core.model.ids import NodeName
from penstock.core.model.plan import Plan
from penstock.testing.builders import node
from penstock.testing.harness import World


def decided(w: World, **fields: int) -> Plan:
    return replace(w.plan(), **fields)


def test_a_new_clock_wants_a_cycle_at_once():
    clock = PlanClock()
    assert (clock.due(0), clock.wake_ms(5)) == (True, 5)


def test_only_what_may_change_a_decision_makes_a_cycle_due():
    w, clock = World(node("a", 1)), PlanClock()
    clock.begin()
    assert (clock.due(0), clock.wake_ms(0)) == (False, 0)
    seen = len(w.records)
    w.emit()
    clock.observe(w.records[seen:], w.state)
    assert not clock.wanted
    w.submit()
    clock.observe(w.records[seen:], w.state)
    assert clock.due(0)
    clock.observe([], w.state)
    assert clock.wanted


def test_jobs_gather_for_the_pause_of_the_last_plan():
    w, clock = World(node("a", 1)), PlanClock()
    clock.begin()
    clock.committed(decided(w, pause_ms=500), 1_000, 9_000, w.state)
    assert (clock.due(1_200), clock.wake_ms(1_200)) == (False, 0)
    w.submit()
    clock.observe(w.records, w.state)
    assert (clock.due(1_499), clock.wake_ms(1_200), clock.due(1_500)) == (False, 1_500, True)


def test_a_plan_names_the_moment_from_which_it_may_change():
    w, clock = World(node("a", 1)), PlanClock()
    clock.begin()
    clock.committed(decided(w, again_ms=9_500), 1_000, 9_000, w.state)
    assert (clock.wanted, clock.wake_ms(1_000)) == (False, 9_500)
    clock.time_passes(9_499)
    assert not clock.wanted
    clock.time_passes(9_500)
    assert clock.due(1_000)


def test_what_a_commit_dropped_is_planned_again():
    w, clock = World(node("a", 1)), PlanClock()
    w.submit()
    proposed = w.plan()
    w.submit()
    w.cycle()
    dropped = w.apply(proposed)
    assert dropped.dropped
    clock.begin()
    clock.committed(dropped, 0, 0, w.state)
    assert clock.wanted
    clock.skip()
    assert (clock.wanted, clock.last_plan) == (False, None)


def test_room_that_others_leave_while_a_cycle_runs_makes_another_one_due():
    w, clock = World(node("a", 1)), PlanClock()
    w.emit(ev.OthersLoadChanged(NodeName("a"), OthersLoad(devices=(0,))))
    clock.begin()
    clock.committed(w.plan(), 0, 0, w.state)
    seen = len(w.records)
    w.submit()
    clock.observe(w.records[seen:], w.state)
    clock.begin()
    proposed, seen = w.plan(), len(w.records)
    w.emit(ev.OthersLoadChanged(NodeName("a"), OthersLoad()))
    clock.observe(w.records[seen:], w.state)
    clock.committed(w.apply(proposed), 0, 0, w.state)
    assert clock.wanted


def test_a_job_submitted_while_a_cycle_runs_is_compared_with_its_plan(monkeypatch):
    """The last plan had no room for jobs of its class; the one that is made has."""
    w, clock = World(node("a", 4)), PlanClock()
    first = w.submit(3)
    w.run(first)
    w.submit(2)
    clock.begin()
    clock.committed(w.cycle(), 0, 0, w.state)
    w.exit_replica(first)
    clock.begin()
    proposed, seen = w.plan(), len(w.records)
    w.submit(2)
    clock.observe(w.records[seen:], w.state)
    assert not clock.wanted
    clock.committed(w.apply(proposed), 0, 0, w.state)
    assert clock.wanted
    w.cycle()
    w.submit(2)
    clock.begin()
    clock.committed(w.cycle(), 0, 0, w.state)
    clock.begin()
    proposed, seen = w.plan(), len(w.records)
    w.submit(2)
    clock.observe(w.records[seen:], w.state)
    clock.committed(w.apply(proposed), 0, 0, w.state)
    assert not clock.wanted, "it does not fit, as the one before"
    monkeypatch.setattr(triggers, "COMPARED_MAX", 0)
    clock.begin()
    seen = len(w.records)
    w.submit(2)
    clock.observe(w.records[seen:], w.state)
    assert clock.wanted
