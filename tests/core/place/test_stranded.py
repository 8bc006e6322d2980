"""Free devices that no typical request could use."""

from penstock.core.place.stranded import stranded_milli
from penstock.testing.builders import ask, node
from penstock.testing.harness import World, cluster


def stranded(w, *gangs):
    typical = tuple((gang.each, 1) for gang in gangs)
    return stranded_milli(w.state.indexes.free.values(), typical)


def test_what_every_request_can_use_is_not_stranded():
    assert stranded(cluster(2, 4), ask(1)) == 0


def test_free_devices_beside_too_few_others_are_stranded():
    w = cluster(2, 4)
    w.run(w.submit(3))
    assert stranded(w, ask(4)) == 1_000
    assert stranded(w, ask(4), ask(1)) == 500


def test_devices_of_nodes_that_take_no_work_do_not_count():
    w = World(node("a", 1), node("b", 1))
    w.drain("a")
    assert stranded(w, ask(2)) == 1_000


def test_where_nothing_is_typical_nothing_is_stranded():
    assert stranded(cluster(1, 4)) == 0
