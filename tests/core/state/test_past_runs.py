"""How replicas ended on each node: a share, to which the node's own word counts alone."""

import pytest

from penstock.core.model.jobs import ExitInfo
from penstock.core.state.past_runs import HALVED_AT, NodeRuns, PastRuns
from penstock.core.state.state import State
from penstock.testing.harness import cluster

WELL = ExitInfo(0)
FAILED = ExitInfo(problem="cannot start: [Errno 5] Input/output error")


@pytest.mark.parametrize(
    ("ended", "failed", "points"),
    [(0, 0, 10), (1, 1, 9), (3, 3, 7), (10, 10, 0), (40, 1, 10), (40, 2, 10), (40, 3, 9), (90, 45, 5)],
)
def test_points_are_the_share_of_ends_that_were_not_the_nodes_fault(ended, failed, points):
    assert NodeRuns("a", ended, failed).points == points


@pytest.mark.parametrize(
    ("info", "failed"),
    [
        (WELL, 0),
        (FAILED, 1),
        (ExitInfo(1), 0),
        (ExitInfo(1, last_error="NVRM: Xid 79"), 0),
        (ExitInfo(1, note="uncorrectable ECC error", observed=True), 1),
        (ExitInfo(stop_sent=True, problem="stopped"), 0),
    ],
)
def test_only_the_nodes_own_word_counts_against_it(info, failed):
    runs = PastRuns()
    runs.add("a", info)
    assert runs.image() == (NodeRuns("a", 1, failed),)


def test_older_ends_count_less():
    runs = PastRuns([NodeRuns("a", HALVED_AT - 1, 60)])
    runs.add("a", WELL)
    assert runs.image() == (NodeRuns("a", HALVED_AT // 2, 30),)


def test_a_state_counts_ends_and_keeps_them_in_its_image():
    world = cluster(2, 4)
    first, second = world.submit(4), world.submit(4)
    world.run(first, second)
    here, there = world.where(first), world.where(second)
    world.exit_replica(first, code=None, problem=FAILED.problem)
    world.lose(there)
    runs = world.state.indexes.past_runs
    assert runs.image() == tuple(sorted((NodeRuns(here, 1, 1), NodeRuns(there, 1, 1)), key=lambda one: one.node))
    assert (runs.points(here), runs.points("unknown")) == (9, 10)
    assert State.from_image(world.state.image()).indexes.past_runs.image() == runs.image()
