"""How many nodes a goal takes."""

import json

import pytest

from penstock.core.model.errors import InvalidInput
from penstock.sim.replay.capacity import Goal, capacity, goal_of
from penstock.sim.replay.measures import measure
from penstock.testing.builders import config, node
from penstock.traces import write_csv
from penstock.traces.edit import with_nodes
from tests.cli.test_simulate import penstock
from tests.sim.replay.builders import MINUTE, job, ran, trace

BUSY = trace(*(job(0, 600, 4) for _ in range(12)), nodes=(node("a", 4), node("b", 4)))
"""Twelve jobs of one node and ten minutes each, all at once."""


def measured(nodes):
    return measure(ran(with_nodes(BUSY, str(nodes))))


@pytest.mark.parametrize(
    ("goal", "nodes"), [(Goal("max", 0), 12), (Goal("max", 10 * MINUTE), 6), (Goal("max", 60 * MINUTE), 2)]
)
def test_the_smallest_number_that_meets_the_goal(goal, nodes):
    found = capacity(2, goal, measured)
    assert found.nodes == nodes
    assert [point.met for point in found.points] == sorted(point.met for point in found.points)


def test_a_goal_that_nothing_meets():
    big = trace(job(0, 60, 5), nodes=(node("a", 4),), rules=config(allow_waiting_for_nodes=True))
    found = capacity(1, Goal("mean", MINUTE), lambda nodes: measure(ran(with_nodes(big, str(nodes)))))
    assert found.nodes is None
    assert [point.nodes for point in found.points] == [1, 2, 4, 8, 16, 32, 64]


def test_goals_in_words():
    assert goal_of("p99=1h") == Goal("p99", 60 * MINUTE)
    for text in ("p98=1h", "p99", "p99=soon", "=1h"):
        with pytest.raises(InvalidInput, match="wait is"):
            goal_of(text)


def test_the_command(tmp_path):
    write_csv(BUSY, tmp_path / "jobs.csv")
    done = penstock("capacity", tmp_path / "jobs.csv", "--wait", "max=10m")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("6 nodes meet it\n")
    found = json.loads(penstock("capacity", tmp_path / "jobs.csv", "--wait", "max=10m", "--json").stdout)
    assert found["found"]["nodes"] == 6
    model = penstock("capacity", tmp_path / "jobs.csv", "--wait", "max=10m", "--model", "A100")
    assert model.stdout.endswith("6 nodes with A100 meet it\n")
    none = penstock("capacity", tmp_path / "jobs.csv", "--load", "0")
    assert (none.returncode, "load is 0, expected more than 0" in none.stderr) == (2, True)
    wrong = penstock("capacity", tmp_path / "jobs.csv", "--model", "B200")
    assert (wrong.returncode, "no node has devices of model B200" in wrong.stderr) == (2, True)
