"""What strategies of a cycle decide differently from `immediate`, on one state."""

import pytest

from penstock.core.model.cluster import Queue
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import config, node
from penstock.testing.harness import World
from tests.sim.replay.builders import job, ran, times, trace

CHEAP, DEAR = (10, 10, 10, 60), (50, 50, 50, 50)
"""Priorities of the jobs on two nodes; together the first ones cost less, and its last one costs most of all."""
IMMEDIATE = {"immediate_utilisation_milli": 1_000, "preemptive_utilisation_milli": 1_000}


def full(**settings):
    """Return a world in which a critical job needs one of two full nodes, and a third node has one device."""
    costs = {"priority_cost_ms_per_point": 1_000, "checkpoint_cost_ms": 0, "restart_cost_ms": 0}
    w = World(node("n0", 4), node("n1", 4), node("n2", 1), victim_sets_tried_max=16, **costs, **settings)
    for priority in (*CHEAP, *DEAR):
        w.run(
            w.submit(gang=GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1)), placement="first_fit"), priority=priority)
        )
    w.submit(4, priority=1_000)
    return w


@pytest.mark.parametrize(
    ("settings", "strategy", "victims"),
    [({}, "preemptive", CHEAP), (IMMEDIATE, "immediate", DEAR)],
)
def test_preemptive_finds_victims_that_cost_less(settings, strategy, victims):
    w = full(**settings)
    found = w.plan()
    assert found.strategy.startswith(strategy)
    assert sorted(w.job(order.victim).spec.priority for order in found.preemptions) == sorted(victims)


@pytest.mark.parametrize(
    ("settings", "started_s"),
    [
        ({"batching_window_ms": 30_000}, {"small": 84, "urgent": 40}),
        ({"batching_window_ms": 0}, {"small": 12, "urgent": 112}),
        ({"batching_window_ms": 30_000, "immediate_utilisation_milli": 1_000}, {"small": 12, "urgent": 112}),
    ],
)
def test_delayed_lets_a_job_pass_that_came_shortly_after_another(settings, started_s):
    """Both want what is left of the pool; under `delayed` they are decided about together, the urgent one first."""
    rules = config(queues=(Queue("default", policy="priority", preemption="never"),), **settings)
    jobs = [job(0, 1_000, 4), job(10, 5, 0), job(12, 100, 1, priority=100), job(14, 44, 4, priority=900)]
    found = times(ran(trace(*jobs, nodes=(node("a", 4), node("b", 4)), rules=rules)))
    assert {"small": found[2][0], "urgent": found[3][0]} == started_s
