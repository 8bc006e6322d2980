"""Placing many alike at once is placing one after the other."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.ids import PoolName
from penstock.core.place.gang import GangPlacer
from penstock.core.place.index import ClusterIndex, PlacementStrategy
from penstock.testing.builders import ask, node
from penstock.testing.harness import World
from tests.core.strategies import gangs, node_lists
from tests.properties import examples

STRATEGIES = ("fragmentation", "best_fit", "worst_fit", "dot_product", "host_load", "first_fit", "random")
MIX = st.lists(st.tuples(gangs(), st.integers(1, 6)), min_size=1, max_size=4)
FEW = st.lists(st.tuples(st.sampled_from([1, 1, 2, 3]), st.sampled_from([1, 4, 9])), min_size=1, max_size=4)


def free_cluster(w, strategy):
    cluster = ClusterIndex({PoolName("default"): PlacementStrategy(strategy)})
    cluster.sync(w.state.indexes.nodes, w.state.indexes.free)
    return cluster


def one_by_one(gang, cluster, times):
    found = []
    while len(found) < times and (places := GangPlacer(gang, cluster).put()) is not None:
        found.append(places)
    return found


@examples(100)
@given(node_lists(), MIX, st.sampled_from(STRATEGIES))
def test_many_alike_are_placed_as_one_by_one(specs, mix, strategy):
    check(World(*specs), mix, strategy)


@examples(200)
@given(st.permutations([(8, 32), (8, 32), (8, 32), (8, 16), (4, 64), (4, 64)]), FEW, st.sampled_from(STRATEGIES))
def test_so_it_is_where_a_node_may_be_the_best_again_and_again(sizes, few, strategy):
    w = World(*(node(f"n{i}", devices, cpus=cpus) for i, (devices, cpus) in enumerate(sizes)))
    check(w, [(ask(devices, cpus=cpus), 9) for devices, cpus in few], strategy)


def check(w, mix, strategy):
    together, apart = free_cluster(w, strategy), free_cluster(w, strategy)
    prepared = [GangPlacer(gang, together) for gang, _ in mix]
    start, mark = list(together.state_of), together.mark()
    for _ in range(2):
        for (gang, times), kept in zip(mix, prepared, strict=True):
            assert kept.put_alike(times) == one_by_one(gang, apart, times)
            assert together.free_milli == apart.free_milli
    frees = [[c.free_of(i) for i in range(len(c.names))] for c in (together, apart)]
    assert frees[0] == frees[1]
    together.rollback(mark)
    assert together.state_of == start
