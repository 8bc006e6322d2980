"""Room for expected demand in the fault simulator: each thing that a plan must not do with it is named."""

import pytest
from msgspec.structs import replace

from penstock.core.cycle.planner import plan
from penstock.core.model.expected import Kept
from penstock.core.state.snapshot import take_snapshot
from penstock.sim.world.expecting import Expecting
from penstock.sim.world.world import World
from tests.core.expecting import AT_H, PLAIN, at, expecting

QUEUE = "default"


@pytest.fixture
def planned(monkeypatch):
    """Return what says what is wrong with a plan: it starts twelve of twenty jobs, and four devices are kept."""
    monkeypatch.setattr("penstock.sim.world.expecting.QUEUES", (QUEUE,))
    w = at(expecting(), AT_H, 5)
    for _ in range(20):
        w.submit(1, priority=PLAIN)
    snapshot = take_snapshot(w.state)

    def said(change):
        world = World(11)
        Expecting(world, world._rng).planned(w.state, snapshot, change(plan(snapshot, w.now)))
        return [text.split(": ", 1)[1] for text in world.violations]

    return said


def test_a_plan_that_keeps_what_is_expected_is_as_it_should_be(planned):
    assert planned(lambda found: found) == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda found: replace(found, strategy="delayed: some"), ["room is kept by a cycle that is delayed: some"]),
        (
            lambda found: replace(found, kept=(Kept(found.kept[0].demand, 4),) * 3),
            ["12 of 16 devices are kept, which is more than may be"],
        ),
        (
            lambda found: replace(found, starts=(*found.starts, found.starts[0])),
            ["of 16 free devices 13 are given out though 4 are kept"],
        ),
    ],
)
def test_what_a_plan_must_not_do_is_named(planned, change, wrong):
    assert planned(change) == wrong


def test_more_than_is_expected_is_named(planned):
    (said,) = planned(lambda found: replace(found, kept=(Kept(replace(found.kept[0].demand, left=3), 4),)))
    assert said.startswith("4 devices are kept, expected are ExpectedDemand(")
