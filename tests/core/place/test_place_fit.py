"""Placement of whole gangs: which nodes, and why not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.jobs import Topology
from penstock.core.model.resources import DeviceLink
from penstock.core.model.selectors import LabelRule, Taint, Toleration
from penstock.core.place.fit import capacity, needs_of, refusal
from penstock.core.place.gang import NoFit, place_gang
from penstock.testing.builders import GIB, ask, chips, device, node
from penstock.testing.harness import World
from tests.core.strategies import gangs, node_lists
from tests.properties import examples

SSD, FAST = LabelRule("disk", "in", ("ssd",)), LabelRule("net", "exists")


def place(gang, *nodes):
    return place_gang(gang, World(*nodes).free())


def test_the_tightest_node_that_holds_the_gang_wins():
    w = World(node("a", 8), node("b", 4), node("c", 2))
    assert chips(*place_gang(ask(2), w.free())) == [("c", (0, 1))]
    assert chips(*place_gang(ask(3), w.free())) == [("b", (0, 1, 2))]


def test_equal_nodes_fall_to_the_lower_name():
    assert chips(*place(ask(1), node("b"), node("a"))) == [("a", (0,))]


def test_a_request_without_devices_stays_off_free_devices():
    tight, loose = node("a", 4, cpus=1, memory_gib=1), node("z", 0, cpus=64)
    assert chips(*place(ask(0, memory_gib=1), tight, loose)) == [("z", ())]


def test_a_gang_shares_as_few_nodes_as_possible():
    places = place(ask(1, 6), node("a", 4), node("b", 4), node("c", 2))
    assert [p.node for p in places] == ["a", "a", "a", "a", "c", "c"]


def test_a_gang_is_placed_whole_or_not_at_all():
    w = World(node("a", 2), node("b", 2))
    found = place_gang(ask(1, 5), w.free())
    assert found == NoFit((("gang_short", 2),), 4)


def test_replicas_of_a_gang_do_not_share_what_only_one_can_have():
    found = place(ask(0, 3, cpus=6), node("a", 0, cpus=16))
    assert found == NoFit((("gang_short", 1),), 2)


def test_the_scarcest_host_resource_bounds_the_replicas():
    assert place(ask(0, 2, cpus=3, memory_gib=1), node("a", 0, cpus=4)) == NoFit((("gang_short", 1),), 1)
    assert place(ask(0, 2, cpus=1, memory_gib=40), node("a", 0, cpus=4)) == NoFit((("gang_short", 1),), 1)


def test_a_gang_without_replicas_is_a_fault():
    with pytest.raises(ValueError, match="0 replicas"):
        place(ask(1, 0), node())


@pytest.mark.parametrize(
    ("wanted", "spec", "reason"),
    [
        (ask(1, pool="other"), node(), "pool"),
        (ask(1, labels_wanted=(("disk", "ssd"),)), node(labels=(("disk", "hdd"),)), "label"),
        (ask(1, labels_shunned=(("disk", "hdd"),)), node(labels=(("disk", "hdd"),)), "label"),
        (ask(1, label_terms=((SSD,), (FAST,))), node(labels=(("disk", "hdd"),)), "label"),
        (ask(1), node(taints=(Taint("spot"),)), "taint"),
        (ask(1, tolerations=(Toleration("gpu"),)), node(taints=(Taint("gpu"), Taint("spot"))), "taint"),
        (ask(1, vendor="amd"), node(), "vendor"),
        (ask(1, models=("H100",)), node(), "model"),
        (ask(1, memory_min_bytes=81 * GIB), node(), "device_memory"),
        (ask(1, capability_min=(8, 1)), node(), "capability"),
        (ask(4), node("a", (*(device(i) for i in range(3)), device(3, healthy=False))), "device_failed"),
        (ask(5), node(), "devices_too_few"),
        (ask(2, link="nvlink"), node(), "device_links"),
        (ask(1, cpus=17), node(), "cpu_short"),
        (ask(1, memory_gib=65), node(), "memory_short"),
    ],
)
def test_each_filter_refuses_under_its_own_name(wanted, spec, reason):
    assert place(wanted, spec) == NoFit(((reason, 1),), 0)


def test_a_filter_that_is_just_met_does_not_refuse():
    exact = ask(4, cpus=16, memory_gib=64, vendor="nvidia", models=("A100",), capability_min=(8, 0))
    assert chips(*place(exact, node())) == [("a", (0, 1, 2, 3))]
    choosy = ask(4, label_terms=((SSD,), (FAST,)), tolerations=(Toleration("spot"),))
    assert chips(*place(choosy, node(labels=(("net", "ib"),), taints=(Taint("spot"),)))) == [("a", (0, 1, 2, 3))]


def test_nodes_that_take_no_work_are_named_for_it():
    w = World(node("a"), node("b"), node("c"))
    w.drain("a")
    w.lose("b")
    w.hello(node("d"), ready=False)
    w.submit(4)
    w.cycle()
    found = place_gang(ask(4), w.free())
    assert found == NoFit((("devices_short", 1), ("node_draining", 1), ("node_joining", 1), ("node_lost", 1)), 0)


def rack_nodes():
    return [node(f"{r}{i}", 2, rack=r, switch=f"{r}{i // 2}") for r in ("x", "y") for i in range(3)]


def test_a_required_topology_is_never_softened():
    assert isinstance(place(ask(1, 3, topology="node"), *rack_nodes()), NoFit)
    assert isinstance(place(ask(1, 5, topology="switch"), *rack_nodes()), NoFit)
    assert isinstance(place(ask(1, 7, topology="rack"), *rack_nodes()), NoFit)
    assert isinstance(place(ask(1, 7, topology="spread"), *rack_nodes()), NoFit)


def test_a_required_topology_that_can_be_met_is_met():
    assert {p.node for p in place(ask(1, 2, topology="node"), *rack_nodes())} == {"x0"}
    assert {p.node[0] for p in place(ask(1, 6, topology="rack"), *rack_nodes())} == {"x"}
    assert {p.node for p in place(ask(1, 4, topology="switch"), *rack_nodes())} == {"x0", "x1"}
    assert len({p.node for p in place(ask(1, 6, topology="spread"), *rack_nodes())}) == 6


def test_a_preferred_topology_is_taken_if_possible_and_given_up_if_not():
    wide = [node("a", 1, rack="x"), node("b", 2, rack="y"), node("c", 1, rack="y")]
    assert {p.node for p in place(ask(1, 3, topology="rack", required=False), *wide)} == {"b", "c"}
    assert len(place(ask(1, 4, topology="rack", required=False), *wide)) == 4
    assert len({p.node for p in place(ask(1, 3, topology="spread", required=False), *wide)}) == 3
    assert len(place(ask(1, 4, topology="spread", required=False), *wide)) == 4


def test_nodes_without_a_switch_are_in_no_common_switch():
    assert isinstance(place(ask(1, 2, topology="switch"), node("a", 1), node("b", 1)), NoFit)


def test_the_domain_with_least_room_goes_first():
    big = [node("a", 4, rack="x"), node("b", 4, rack="x"), node("c", 2, rack="y"), node("d", 2, rack="y")]
    assert {p.node for p in place(ask(2, 2, topology="rack"), *big)} == {"c", "d"}


@examples(100)
@given(node_lists(), gangs(), st.randoms(use_true_random=False))
def test_node_order_never_matters(specs, gang, rnd):
    assert place(gang, *specs) == place(gang, *rnd.sample(specs, len(specs)))


@examples(100)
@given(node_lists(), gangs())
def test_refusals_count_every_node_once(specs, gang):
    found = place(gang, *specs)
    if isinstance(found, NoFit):
        assert sum(count for _, count in found.refused) == len(specs)
        assert len({reason for reason, _ in found.refused}) == len(found.refused)
        assert found.replicas_possible < gang.replicas


@examples(100)
@given(node_lists(), gangs())
def test_a_node_is_refused_exactly_when_it_holds_no_replica(specs, gang):
    need, most = needs_of(gang)[0]
    for free in World(*specs).snapshot().free.values():
        assert (capacity(need, free, most) == 0) == (refusal(need, free) != "")


@examples(60)
@given(node_lists(), gangs())
def test_placing_takes_nothing_yet(specs, gang):
    free = World(*specs).free()
    before = [free.free_of(i) for i in range(len(specs))]
    place_gang(gang, free)
    assert [free.free_of(i) for i in range(len(specs))] == before


def test_a_model_that_is_asked_for_goes_where_least_of_it_is_left():
    both = (device(0, model="A100"), device(1, model="A100"))
    gang = ask(1, models=("A100",))
    found = place(gang, node("a", both), node("b", both[:1]), node("c", (device(0, model="H100"),)))
    assert chips(*found) == [("b", (0,))]


def test_a_profile_is_short_where_any_device_offers_it():
    cut, plain = device(0, mig=True), device(1)
    w = World(node("a", (cut, plain)))
    w.run(w.submit(1, profile="7g.80gb"))
    job = w.submit(1, profile="1g.10gb")
    w.cycle()
    (need, _), *_ = needs_of(w.job(job).spec.ask, "default")
    assert refusal(need, w.state.indexes.free["a"]) == "profile_short"


def test_best_fit_weighs_what_is_left_by_what_the_node_has():
    small, large = node("a", 2), node("b", 8)
    gang = replace(ask(1), placement="best_fit")
    w = World(small, large)
    for index in (0, 1, 2, 3, 4):
        w.state.indexes.free.set("b", w.state.indexes.free["b"].take(ask(1).each, (index,)))
    assert chips(*place_gang(gang, w.free())) == [("b", (5,))]


def test_a_spread_gang_takes_nodes_of_every_kind():
    gang = replace(ask(1, 3), topology=Topology("spread"))
    found = place(gang, node("a", 1), node("b", 1), node("c", 4), node("d", 4), node("e", 4))
    assert sorted({p.node for p in found}) == sorted(p.node for p in found)
    assert len(found) == 3


def test_devices_that_all_reach_each_other_are_found_beside_one_that_does_not():
    links = {0: (1, 2), 1: (0, 2), 2: (0, 1, 3), 3: (2,)}
    devices = tuple(device(i, links=tuple(DeviceLink(j, "nvlink") for j in links[i])) for i in range(4))
    assert chips(*place(ask(3, link="nvlink"), node("a", devices))) == [("a", (0, 1, 2))]
