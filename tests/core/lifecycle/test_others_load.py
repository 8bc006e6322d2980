"""What programs hold that Penstock did not place counts as gone, on each node and at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.report_filter import heard
from penstock.core.cycle.triggers import wakes
from penstock.core.messages.reports import NodeReport
from penstock.core.model.cluster import OthersLoad
from penstock.core.model.events import OthersLoadChanged
from penstock.core.model.ids import Incarnation
from penstock.core.model.resources import Resources
from penstock.core.state import invariants
from penstock.core.state.state import State, fold
from penstock.testing.builders import node
from penstock.testing.harness import cluster
from tests.properties import examples
from tests.store.builders import same


def load(*devices, cpus=0, memory=0):
    return OthersLoad(Resources(1000 * cpus, memory), devices)


def started(w):
    return [start.job_id for start in w.plan().starts]


def test_what_others_hold_is_not_given_out():
    w = cluster(1, 4, cpus=8)
    devices, cpus = w.submit(3, cpus=1), w.submit(0, cpus=6)
    assert started(w) == [devices, cpus]
    w.report("n0", others=load(0, 2, cpus=3))
    assert started(w) == []
    assert w.state.indexes.free["n0"].devices == (0, 1000, 0, 1000)
    w.report("n0", others=load(2, cpus=2))
    assert started(w) == [devices]
    w.report("n0", others=load())
    assert started(w) == [devices, cpus]
    assert same(w.state, fold(w.records))
    assert same(w.state, State.from_image(w.state.image()))


def test_a_report_that_says_nothing_of_others_changes_nothing():
    w = cluster(1, 4)
    w.report("n0", others=load(1))
    before = len(w.records)
    w.report("n0")
    w.report("n0", others=load(1))
    assert len(w.records) == before
    assert w.state.nodes["n0"].others == load(1)


def test_a_device_of_ours_that_others_claim_too_counts_as_ours_until_it_is_free():
    w = cluster(1, 2)
    job = w.submit(1)
    w.run(job)
    w.report("n0", others=load(0, 1))
    assert w.state.nodes["n0"].others == load(1)
    w.exit_replica(job)
    assert w.state.indexes.free["n0"].devices == (1000, 0)
    w.report("n0", others=load(0, 1))
    assert w.state.indexes.free["n0"].devices == (0, 0)
    invariants.require(w.state)


def test_more_than_there_is_leaves_nothing_free_and_no_job_starts_until_it_is_less():
    w = cluster(1, 0, cpus=8)
    first = w.submit(0, cpus=6)
    w.run(first)
    w.report("n0", others=load(cpus=7))
    assert w.state.indexes.free["n0"].cpu_milli == -5000
    second = w.submit(0, cpus=1)
    assert started(w) == []
    w.exit_replica(first)
    assert started(w) == [second]
    invariants.require(w.state)


def test_a_node_that_comes_back_says_anew_what_others_hold():
    w = cluster(1, 4)
    w.report("n0", others=load(0, 1))
    w.hello(node("n0", 4), "i2")
    assert w.state.nodes["n0"].others == load()


def test_a_plan_made_before_others_came_is_checked_again():
    w = cluster(1, 4)
    job = w.submit(4)
    plan = w.plan()
    w.report("n0", others=load(3))
    w.apply(plan)
    assert w.phase(job) == "waiting"


def test_a_job_that_waits_is_looked_at_when_others_leave():
    w = cluster(1, 4)
    w.report("n0", others=load(0, 1, 2, 3))
    quiet = w.plan()
    job = w.submit(4)
    waits = w.plan()
    assert waits.verdicts[w.job(job).class_id].code == "no_fit", "it is accepted: the empty node would hold it"
    w.report("n0", others=load(0))
    event = w.records[-1].event
    assert [wakes(event, w.state, plan) for plan in (quiet, waits, None)] == [False, True, True]


@pytest.mark.parametrize(
    "impossible",
    [load(4), load(-1), load(1, 0), load(1, 1), load(cpus=-1), OthersLoad(Resources(memory_bytes=2**61))],
)
def test_an_impossible_load_is_not_believed(impossible):
    w = cluster(1, 4)
    report = NodeReport("n0", Incarnation("i1"), 9, False, others=impossible)
    assert heard(w.state, report, w.now).others is None
    assert heard(w.state, NodeReport("n0", Incarnation("i1"), 9, False, others=load(0, 3)), w.now).others == load(0, 3)


loads = st.builds(
    lambda devices, cpus: load(*sorted(devices), cpus=cpus), st.sets(st.integers(0, 3)), st.integers(0, 12)
)
steps = st.lists(st.one_of(loads, st.sampled_from(("start", "end"))), max_size=25)


@given(steps)
@examples(100)
def test_what_is_free_is_what_neither_holds_whatever_happens(steps):
    w = cluster(1, 4, cpus=8)
    running = []
    for step in steps:
        if step == "start":
            job = w.submit(1, cpus=2)
            if started(w) and job in started(w):
                w.run(job)
                running.append(job)
            else:
                w.cancel(job)
        elif step == "end" and running:
            w.exit_replica(running.pop())
        elif isinstance(step, OthersLoad):
            w.report("n0", others=step)
        invariants.require(w.state)
    assert same(w.state, fold(w.records))
    assert all(isinstance(r.event.load, OthersLoad) for r in w.records if isinstance(r.event, OthersLoadChanged))
