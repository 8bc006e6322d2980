"""The index of free capacity: what was asked before, and how often, never shows in what is chosen."""

import pytest

from penstock.core.model.ids import PoolName
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.place import index as module
from penstock.core.place import workload_mix as mix_module
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.fit import capacity, needs_of, put_on
from penstock.core.place.gang import NoFit, place_gang, put_gang
from penstock.core.place.index import ClusterIndex, PlacementStrategy
from penstock.core.place.workload_mix import Requests, mix_of
from penstock.testing.builders import ask, chips, device, linked, node
from penstock.testing.harness import World
from tests.core.place.test_place_devices import pick


def nodes_of(found):
    return [place.node for place in found]


@pytest.mark.parametrize("devices", [0, 2])
def test_an_index_that_starts_anew_chooses_as_a_new_one(monkeypatch, devices):
    w = World(node("a", devices, cpus=4), node("b", devices, cpus=8), node("c", devices, cpus=16))
    kept = w.free()
    assert nodes_of(place_gang(ask(0, cpus=3), kept)) == ["a"]
    monkeypatch.setattr(module, "LOG_MAX", 0)
    w.submit(gang=ask(0, cpus=4))
    w.cycle()
    before = kept.generation
    kept.sync(w.state.indexes.nodes, w.state.indexes.free)
    assert kept.generation > before, "whoever kept a view has to ask for a new one"
    assert nodes_of(place_gang(ask(0, cpus=3), kept)) == nodes_of(place_gang(ask(0, cpus=3), w.free())) == ["b"]
    assert kept.free_milli == w.free().free_milli


def test_kinds_of_a_pool_are_those_that_its_nodes_have_now():
    def models(pool):
        return sorted(d.model for shape in kept.kinds_in(PoolName(pool)) for d in shape.devices)

    v100, k80 = (device(0, model="V100"),), (device(0, model="K80"),)
    w = World(node("a", v100), node("b", k80), node("c", v100, pool="q"), node("d", 0, pool="r"), node("e", v100))
    kept = w.free()
    assert (models("default"), models("q"), models("r"), models("s")) == (["K80", "V100"], ["V100"], [], [])
    for name in "ae":
        w.hello(node(name, k80), "i2")
    kept.sync(w.state.indexes.nodes, w.state.indexes.free)
    assert (models("default"), models("q")) == (["K80"], ["V100"])


def test_an_index_that_starts_anew_without_nodes_has_none(monkeypatch):
    kept, other = World(node("a", 2)).free(), World(node("b", 1))
    put_gang(ask(1), kept)
    monkeypatch.setattr(module, "LOG_MAX", 0)
    kept.sync({}, {})
    assert (kept.names, kept.free_milli, kept.kinds_in(PoolName("default"))) == ([], {}, [])
    kept.sync(other.state.indexes.nodes, other.state.indexes.free)
    assert nodes_of(put_gang(ask(1), kept)) == ["b"]


def test_an_index_is_kept_up_to_its_limit(monkeypatch):
    w = World(node("a", 2), node("b", 3))
    kept = w.free()
    monkeypatch.setattr(module, "LOG_MAX", len(kept.table))
    before = kept.generation
    kept.sync(w.state.indexes.nodes, w.state.indexes.free)
    assert kept.generation == before


def test_an_index_whose_nodes_change_chooses_as_a_new_one():
    w = World(node("b", 2), node("c", 4))
    kept = w.free()
    assert nodes_of(place_gang(ask(2), kept)) == ["b"]
    for spec in (node("a", 2), node("d", 3)):
        w.hello(spec)
        w.run(w.submit(2))
        kept.sync(w.state.indexes.nodes, w.state.indexes.free)
        fresh = w.free()
        for gang in (ask(1), ask(2), ask(3), ask(4), ask(1, 7), ask(0)):
            assert place_gang(gang, kept) == place_gang(gang, fresh)
        in_use = [
            [[c.nodes_in(s) for s in c.states_in_use(rich=rich)] for rich in (True, False)] for c in (kept, fresh)
        ]
        assert in_use[0] == in_use[1]
        assert [kept.count(s) for s in kept.states_in_use(rich=False)] == [
            len(kept.nodes_in(s)) for s in kept.states_in_use(rich=False)
        ]


def test_a_version_comes_back_with_its_content():
    w = World(node("a", 0, cpus=4), node("b", 0, cpus=4))
    kept = w.free()
    before = kept.version
    put_gang(ask(0, 6), kept)
    kept.sync(w.state.indexes.nodes, w.state.indexes.free, ())
    assert (kept.version, kept.free_of(0).cpu_milli) == (before, 4_000)
    put_gang(ask(0, 6), kept)
    w.run(w.submit(0, 6, cpus=1))
    kept.sync(w.state.indexes.nodes, w.state.indexes.free, ["a", "b"])
    assert kept.version != before, "these places are taken indeed now"
    assert [kept.free_of(i) for i in range(2)] == [w.free().free_of(i) for i in range(2)]
    before = kept.version
    w.drain("b")
    kept.sync(w.state.indexes.nodes, w.state.indexes.free)
    assert kept.version != before


def test_places_of_a_node_that_came_back_are_not_given_back_to_it():
    w = World(node("a", 2))
    free = w.free()
    before = free.free_of(0)
    free.put_back(ask(1), [(0, ReplicaPlace("a", "older", (0,))), (0, ReplicaPlace("gone", "i1", (0,)))])
    assert free.free_of(0) == before


def test_what_is_free_is_counted_by_pool_on_open_nodes():
    w = World(node("a", 2, pool="x"), node("b", 3), node("c", 4))
    w.drain("c")
    free = w.free()
    assert {pool: milli for pool, milli in free.free_milli.items() if milli} == {"x": 2_000, "default": 3_000}
    mark = free.mark()
    put_gang(ask(2), free)
    assert free.free_milli[PoolName("default")] == 1_000
    free.rollback(mark)
    assert free.free_milli[PoolName("default")] == 3_000


def test_states_in_use_are_those_of_open_nodes():
    w = World(node("a", 0), node("b", 2), node("c", 2), node("d", 1))
    w.drain("d")
    free = w.free()
    assert [free.nodes_in(s) for s in free.states_in_use(rich=True)] == [[1, 2]]
    assert sorted(free.nodes_in(s) for s in free.states_in_use(rich=False)) == [[0], [1, 2]]


def test_nodes_without_a_domain_are_in_none():
    free = World(node("a", 1, rack="r", switch="s"), node("b", 1, rack="r"), node("c", 1)).free()
    assert free.domains("rack") == {"r": [0, 1]}
    assert free.domains("switch") == {"s": [0]}


def test_within_a_domain_the_tightest_node_that_holds_what_is_left_is_taken():
    specs = [node("a", 4, rack="r"), node("b", 2, rack="r"), node("c", 3, rack="r")]
    found = {n: nodes_of(place_gang(ask(1, n, topology="rack"), World(*specs).free())) for n in (2, 3, 6, 7)}
    assert found == {2: ["b"] * 2, 3: ["c"] * 3, 6: ["a"] * 4 + ["b"] * 2, 7: ["a"] * 4 + ["c"] * 3}


def draws(seed, count=6):
    w = World(*(node(f"n{i}", 8) for i in range(7)))
    free = ClusterIndex({PoolName("default"): PlacementStrategy("random", seed=seed)})
    free.sync(w.state.indexes.nodes, w.state.indexes.free)
    return [nodes_of(put_gang(ask(1), free))[0] for _ in range(count)]


def test_random_choices_are_those_of_the_published_generator():
    """SplitMix64 seeded with 0 begins with these numbers; a choice is the number modulo the nodes that are left."""
    published = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC)
    assert draws(0, 4) == [f"n{number % 7}" for number in published]
    assert draws(0x9E3779B97F4A7C15, 3) == [f"n{number % 7}" for number in published[1:]]


def test_random_choices_start_anew_with_each_sync():
    w = World(*(node(f"n{i}", 8) for i in range(8)))
    free = ClusterIndex({PoolName("default"): PlacementStrategy("random", seed=3)})
    free.sync(w.state.indexes.nodes, w.state.indexes.free)
    first = [nodes_of(put_gang(ask(1), free)) for _ in range(5)]
    free.sync(w.state.indexes.nodes, w.state.indexes.free)
    assert [nodes_of(put_gang(ask(1), free)) for _ in range(5)] == first


# What requests come lately.


def test_the_past_fades_when_more_is_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(mix_module, "REMEMBERED", 8)
    requests = Requests()
    for gang in (ask(1, 5), ask(2, 1), ask(3, 2)):
        requests.seen(gang)
    assert [(each.device_count, count) for each, count in requests.memory().counts] == [(1, 5), (2, 1), (3, 2)]
    requests.seen(ask(4, 1))
    assert [(each.device_count, count) for each, count in requests.memory().counts] == [(1, 2), (3, 1)]
    requests.seen(ask(4, 6))
    assert [count for _, count in requests.memory().counts] == [1, 3]


def test_the_picture_is_taken_anew_when_enough_is_new():
    requests = Requests()
    requests.seen(ask(1, 4))
    assert [count for _, count in requests.typical] == [4]
    requests.seen(ask(2, 2))  # 2 of 6: not half of what is known
    assert [count for _, count in requests.typical] == [4]
    requests.seen(ask(2, 3))  # 5 of 9
    assert [(each.device_count, count) for each, count in requests.typical] == [(2, 5), (1, 4)]


def test_without_requests_or_devices_nothing_is_expected():
    requests = Requests()
    requests.seen(ask(1))
    kinds = World(node("a", 1)).free().table.kinds
    assert mix_of(requests.typical, kinds).kinds == 1
    assert mix_of(requests.typical, []) is None
    assert mix_of((), kinds) is None


# Joined devices.


def bow():
    """Five devices: 0 is joined to 1 and 2, which are not joined to each other; 2, 3 and 4 all are."""
    pairs = ((0, 1), (0, 2), (2, 3), (2, 4), (3, 4))
    peers = {i: [b if a == i else a for a, b in pairs if i in (a, b)] for i in range(5)}
    return tuple(linked(i, "nvlink", *peers[i]) for i in range(5))


def test_neighbours_that_are_not_joined_to_each_other_are_passed_over():
    wanted = ask(3, link="nvlink")
    assert chips(*place_gang(wanted, World(node("a", bow())).free())) == [("a", (2, 3, 4))]


def test_only_sets_in_which_all_are_joined_count():
    need, _ = needs_of(ask(3, 2, link="nvlink", cpus=0))[0]
    free = empty(shape_of(World(node("a", bow())).state.nodes["a"]))
    assert capacity(need, free, 2) == 1
    assert put_on(need, free, 2) is None


def test_replicas_for_which_the_host_is_short_are_not_packed():
    chain = tuple(linked(i, "nvlink", *(j for j in (i - 1, i + 1) if 0 <= j < 4)) for i in range(4))
    free = empty(shape_of(World(node("a", chain, cpus=3)).state.nodes["a"]))
    need, _ = needs_of(ask(2, 2, link="nvlink", cpus=2))[0]
    assert put_on(need, free, 2) is None
    assert [picked for picked, _ in put_on(need, free, 1)[1]] == [(0, 1)]


def test_where_the_first_pair_would_leave_none_other_pairs_are_taken():
    pairs = ((0, 1), (0, 2), (1, 3))
    peers = {i: [b if a == i else a for a, b in pairs if i in (a, b)] for i in range(4)}
    zigzag = tuple(linked(i, "nvlink", *peers[i]) for i in range(4))
    places = place_gang(ask(2, 2, link="nvlink"), World(node("a", zigzag)).free())
    assert chips(*places) == [("a", (0, 2)), ("a", (1, 3))]
    free = empty(shape_of(World(node("a", zigzag)).state.nodes["a"]))
    need, _ = needs_of(ask(2, 2, link="nvlink", cpus=8))[0]
    after, picked = put_on(need, free, 2)
    assert (after.cpu_milli, after.devices, [devices for devices, _ in picked]) == (0, (0,) * 4, [(0, 2), (1, 3)])
    assert put_on(needs_of(ask(2, 2, link="nvlink", cpus=9))[0][0], free, 2) is None
    assert capacity(need, free, 9) == 2


def test_two_models_neither_of_which_is_joined_as_required_do_not_fit():
    mixed = tuple(device(i, model="AH"[i % 2]) for i in range(4))
    assert pick(ask(2, models=("H", "A"), link="nvlink").each.devices, mixed) is None


def test_the_largest_node_bounds_replicas_that_have_to_share_one():
    wide = [node("a", 2, memory_gib=4), node("b", 3, memory_gib=4)]
    found = place_gang(ask(1, 4, topology="node"), World(*wide).free())
    assert found == NoFit((("gang_short", 2),), 3)
    assert place_gang(ask(1, 6, topology="spread"), World(*wide).free()).replicas_possible == 2
    assert place_gang(ask(4, topology="node"), World(*wide).free()).replicas_possible == 0
    assert place_gang(ask(4, topology="rack"), World(*wide).free()).replicas_possible == 0
    assert place_gang(ask(1, 6, memory_gib=2), World(*wide).free()).replicas_possible == 4


def test_a_cluster_that_lives_long_remembers_no_more():
    """Nodes come into the same few states again and again: what is kept of that does not grow with time."""
    w = World(*(node(f"n{i}", 4) for i in range(6)))
    free = w.free()
    whole = [free.free_of(i) for i in range(6)]
    for turn in range(500):
        at = turn % 6
        free.change(at, whole[at].take(ask(1).each, (0,), ()))
        free.change(at, whole[at])
    assert free.nodes_in(free.state_of[0]) == [0, 1, 2, 3, 4, 5]
    assert sum(len(bucket) for bucket in free._buckets.values()) < 100
