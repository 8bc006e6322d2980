"""Nodes whose allocation is over leave the list: lost ones alone, and none on which an attempt has a place."""

import pytest

from penstock.core.lifecycle.draining import remove_over
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import NodeDrainChanged, NodeRemoved
from penstock.core.model.ids import NodeName, UserName
from penstock.core.state.invariants import require
from penstock.core.state.state import State, fold
from penstock.testing.builders import node
from penstock.testing.harness import World


def removed(w: World, *names: str) -> list[str]:
    return w.commit(lambda tx: remove_over(tx, [NodeName(name) for name in names], "over"))


def test_only_lost_nodes_go():
    w = World(node("a", 1), node("b", 1), node("c", 1))
    w.lose("a")
    assert removed(w, "a", "b", "never-there") == ["a"]
    assert list(w.state.nodes) == ["b", "c"]
    assert list(w.state.indexes.free) == ["b", "c"]
    assert [type(record.event) for record in w.records[-1:]] == [NodeRemoved]
    assert removed(w, "a") == []


def test_a_node_stays_while_another_rank_of_an_attempt_that_was_there_has_not_ended():
    w = World(node("a", 1), node("b", 1))
    job = w.submit(1, replicas=2)
    w.run(job)
    w.lose("a")
    assert w.job(job).attempt is not None
    assert removed(w, "a") == []
    w.lose("b")
    assert removed(w, "a", "b") == ["a", "b"]


def test_what_was_said_of_a_removed_node_is_forgotten_and_it_may_come_again():
    w = World(node("a", 1), node("b", 1))
    w.emit(NodeDrainChanged(NodeName("a"), True, UserName("op"), "repair", w.now + 1_000))
    w.lose("a")
    removed(w, "a")
    assert w.plan().starts == ()
    w.hello(node("a", 1), "i2")
    assert not w.state.nodes[NodeName("a")].draining
    first, second = w.submit(1), w.submit(1)
    assert {start.job_id for start in w.plan().starts} == {first, second}


def test_the_state_is_the_same_from_the_log_and_from_a_snapshot():
    w = World(node("a", 1), node("b", 1))
    w.lose("a")
    removed(w, "a")
    require(fold(w.records))
    assert fold(w.records).nodes == w.state.nodes == State.from_image(w.state.image()).nodes


def test_a_log_that_removes_a_node_that_lives_is_broken():
    w = World(node("a", 1))
    with pytest.raises(BrokenInvariant, match="node a is removed: it is ready"):
        w.emit(NodeRemoved(NodeName("a"), "over"))
