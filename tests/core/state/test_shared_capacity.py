"""What is left on nodes that share one value of their free capacity."""

from penstock.core.model.jobs import ReplicaPlace
from penstock.core.state.shared_capacity import SharedCapacity
from penstock.testing.builders import ask, node
from penstock.testing.harness import World

PLACE = ReplicaPlace("a", "i1")


def test_alike_nodes_go_on_sharing_and_each_ask_has_its_own_answer():
    free, shared = World(node("a", 1, cpus=8)).state.indexes.free["a"], SharedCapacity()
    small, large = ask(0, cpus=1).each, ask(0, cpus=3, memory_gib=2).each
    left = shared.without(free, small, PLACE, 1)
    assert left == free.take(small)
    assert shared.without(free, small, PLACE, 1) is left
    assert shared.without(free, large, PLACE, 1) == free.take(large)
    assert SharedCapacity().without(left, small, PLACE, -1) == free


def test_devices_are_taken_as_the_place_says():
    free, shared, one = World(node("a", 2)).state.indexes.free["a"], SharedCapacity(), ask(1).each
    for index in (1, 0):
        place = ReplicaPlace("a", "i1", (index,))
        left = shared.without(free, one, place, 1)
        assert left == free.take(one, (index,))
        assert shared.without(left, one, place, -1) == free
