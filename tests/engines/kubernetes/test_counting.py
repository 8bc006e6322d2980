"""Counting of what nodes have of devices."""

from types import SimpleNamespace
from typing import Any

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.devices.counting import Counting

N1 = NodeName("n1")


def counting(free: dict[str, int]) -> Counting:
    planned: Any = SimpleNamespace(counting=lambda name, found: found.update(free) or iter(()), work=0, signatures={})
    starting: Any = SimpleNamespace(all=lambda: ())
    nothing: Any = SimpleNamespace()
    return Counting(nothing, planned, nothing, starting, {}, lambda name: ())


def test_a_node_is_told_of_when_its_count_changes():
    free = {"gpu": 1}
    c = counting(free)
    c.node(N1)
    assert c.turn() == (N1,)
    c.node(N1)
    assert c.turn() == ()
    free["gpu"] = 2
    c.node(N1)
    assert c.turn() == (N1,)


def test_a_node_that_had_less_than_was_counted_is_told_of_at_its_next_count():
    """A device is given back between two counts: both come to the same, and who was refused in between waited."""
    c = counting({"gpu": 1})
    c.node(N1)
    c.turn()
    c.doubt(N1)
    assert c.turn() == (), "it is counted once something of it changes"
    for told in ((N1,), ()):
        c.node(N1)
        assert c.turn() == told
