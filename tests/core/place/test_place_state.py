"""What is free on a node as a value, what is kept of it for later, and how nodes are scored."""

import pytest
from msgspec.structs import replace

from penstock.core.model.ids import PoolName, TenantName
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.place.capacity import NodeCapacity, SharedDevice, empty, shape_of
from penstock.core.place.fit import capacity, closed_refusal, devices_free, needs_of, pick_devices, refusal
from penstock.core.place.fragmentation import WEIGHT_MAX, Mix
from penstock.core.place.gang import place_gang
from penstock.core.place.holds import CapacityHold, Holds, lesser, without
from penstock.core.place.index import ClusterIndex, PlacementStrategy
from penstock.testing.builders import GIB, ask, device, linked, node
from penstock.testing.harness import World

HALF = ReplicaAsk(Resources(1_000, GIB), DeviceAsk(1, share_milli=500))
WHOLE = ReplicaAsk(Resources(1_000, GIB), DeviceAsk(1))
SLICE = ReplicaAsk(Resources(), DeviceAsk(1, profile="1g.10gb"))


def free_of(*devices, **fields) -> NodeCapacity:
    return empty(shape_of(World(node("a", devices or 2, **fields)).state.nodes["a"]))


def test_what_was_taken_is_there_again_when_it_is_put_back():
    before = free_of(device(0, mig=True), device(1))
    for each, devices, slots in ((HALF, (1,), ()), (WHOLE, (0,), ()), (SLICE, (0,), (3,))):
        after = before.take(each, devices, slots)
        assert after != before
        assert after.put_back(each, devices, slots) == before


def test_parts_of_a_device_are_counted_in_share_and_memory():
    one = free_of().take(HALF, (1,))
    assert (one.devices, one.shared, one.memory_left(1), one.whole) == (
        (1_000, 500),
        (SharedDevice(1, 40 * GIB, 1),),
        40 * GIB,
        [0],
    )
    assert one.take(HALF, (1,)).devices == (1_000, 0)
    assert one.take(HALF, (1,)).put_back(HALF, (1,)) == one
    assert (one.cpu_milli, one.memory_bytes) == (15_000, 63 * GIB)


def test_instances_are_kept_in_the_order_of_their_slices():
    cut = free_of(device(0, mig=True)).take(SLICE, (0,), (4,)).take(SLICE, (0,), (2,))
    assert (cut.devices, cut.instances(0), cut.instances(1)) == ((0,), (("1g.10gb", 2), ("1g.10gb", 4)), ())
    assert cut.put_back(SLICE, (0,), (4,)).instances(0) == (("1g.10gb", 2),)


@pytest.mark.parametrize(("each", "slots"), [(HALF, ()), (WHOLE, ()), (SLICE, (2,))])
def test_a_device_that_failed_meanwhile_is_not_free_when_it_is_given_back(each, slots):
    well = free_of(device(0, mig=True)).take(each, (0,), slots)
    ill = free_of(device(0, mig=True, healthy=False))
    failed = well._replace(shape=ill.shape, devices=(0,))
    assert failed.put_back(each, (0,), slots).devices == (0,)
    assert ill.take(HALF, (0,)).devices == (0,)


def test_nodes_that_are_alike_have_one_shape():
    one, same, other = free_of().shape, free_of().shape, free_of(cpus=8).shape
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a shape"
    assert (one < other, other < one) == (False, True)


def test_links_count_in_both_directions_and_to_known_devices_only():
    shape = free_of(linked(0, "pcie", 1, 7), device(1), linked(2, "nvlink", 1)).shape
    assert [sorted(near) for near in shape.near("nvlink")] == [[0], [1, 2], [1, 2]]
    assert [sorted(near) for near in shape.near("pcie")] == [[0, 1], [0, 1, 2], [1, 2]]
    assert (shape.groups("nvlink"), shape.groups("pcie")) == (((0,), (1, 2)), ((0, 1, 2),))
    assert (shape.meshed("nvlink"), shape.meshed("pcie"), shape.meshed("node")) == (True, False, True)


# Reserved and closed nodes, and exact places.


def test_a_node_is_kept_for_its_tenant():
    free = free_of()._replace(kept_for=TenantName("t"))
    (theirs, _), (others, _) = needs_of(ask(1), TenantName("t"))[0], needs_of(ask(1), TenantName("s"))[0]
    assert (closed_refusal(theirs, free), closed_refusal(others, free)) == ("", "reserved")
    assert (capacity(theirs, free, 9), capacity(others, free, 9)) == (2, 0)
    assert closed_refusal(others, free._replace(closed="node_lost")) == "node_lost"


def test_exactly_these_devices_are_free_or_not():
    free = free_of(device(0, mig=True), device(1)).take(HALF, (1,))
    assert devices_free(None, free, ((), ()))
    assert not devices_free(None, free, ((0,), ()))
    assert not devices_free(WHOLE.devices, free, ((2,), ()))
    assert [devices_free(WHOLE.devices, free, ((i,), ())) for i in (0, 1)] == [True, False]
    assert [devices_free(HALF.devices, free, ((i,), ())) for i in (0, 1)] == [True, True]
    assert [devices_free(SLICE.devices, free, ((0,), (slot,))) for slot in (0, 6, 7)] == [True, True, False]
    assert not devices_free(SLICE.devices, free, ((1,), (0,))), "it may not be cut"
    assert not devices_free(SLICE.devices, free, ((0,), ()))


def test_a_part_goes_on_a_device_that_is_cut_already_then_on_one_that_may_not_be():
    fresh = free_of(device(0, mig=True), device(1))
    assert pick_devices(HALF.devices, fresh) == ((1,), ())
    assert pick_devices(HALF.devices, fresh.take(WHOLE, (1,))) == ((0,), ())
    begun = fresh.take(ReplicaAsk(Resources(), DeviceAsk(1, share_milli=300)), (0,))
    assert pick_devices(HALF.devices, begun) == ((0,), ())


def test_an_instance_goes_on_the_device_that_is_cut_up_already():
    fresh = free_of(device(0, mig=True), device(1, mig=True))
    assert pick_devices(SLICE.devices, fresh)[0] == (0,)
    assert pick_devices(SLICE.devices, fresh.take(SLICE, (1,), (0,)))[0] == (1,)


def test_the_reason_names_what_is_short():
    def why(gang, free):
        return refusal(needs_of(gang)[0][0], free)

    full = free_of().take(WHOLE, (0,)).take(WHOLE, (1,))
    assert why(ask(1), full) == "devices_short"
    assert why(ask(1, share_milli=500), full) == "share_short"
    assert why(ask(1, profile="1g.10gb"), full) == "profile"
    cut = free_of(device(0, mig=True)).take(ReplicaAsk(Resources(), DeviceAsk(1, profile="7g.80gb")), (0,), (0,))
    assert why(ask(1, profile="1g.10gb"), cut) == "profile_short"
    assert why(ask(2, link="nvlink"), free_of()) == "device_links"
    assert why(ask(2, link="nvlink"), free_of().take(WHOLE, (0,))) == "devices_short"
    assert why(ask(0, cpus=15), full) == "cpu_short"
    assert why(ask(0, cpus=14), full) == ""


# What is kept for later.


def test_the_lesser_has_of_each_quantity_what_both_have():
    a = free_of(device(0), device(1), device(2)).take(HALF, (0,)).take(WHOLE, (1,))
    b = free_of(device(0), device(1), device(2)).take(ReplicaAsk(Resources(2_500), None)).take(WHOLE, (2,))
    found = lesser(a, b)
    assert found == lesser(b, a)
    assert (found.devices, found.shared) == ((500, 0, 0), (SharedDevice(0, 40 * GIB, 1),))
    assert (found.cpu_milli, found.memory_bytes) == (12_500, 62 * GIB)


def test_nodes_kept_for_different_tenants_are_nobodys():
    s, t, free = TenantName("s"), TenantName("t"), free_of()
    kept = free._replace(kept_for=s)
    assert (lesser(kept, free).kept_for, lesser(free, kept).kept_for) == (s, s)
    assert (lesser(kept, kept).closed, lesser(kept, free._replace(kept_for=t)).closed) == ("", "reserved")
    assert lesser(free._replace(closed="node_lost"), free).closed == "node_lost"
    assert lesser(free, free._replace(closed="node_lost")).closed == "node_lost"


def test_a_device_cut_otherwise_in_one_than_in_the_other_is_full():
    uncut = free_of(device(0, mig=True))
    one, other = uncut.take(SLICE, (0,), (0,)), uncut.take(SLICE, (0,), (2,))
    assert lesser(one, one).instances(0) == (("1g.10gb", 0),)
    need = needs_of(ask(1, profile="1g.10gb", cpus=0))[0][0]
    assert (capacity(need, one, 9), capacity(need, lesser(one, other), 9)) == (6, 0)
    assert capacity(need, lesser(one, uncut), 9) == 0


def test_a_part_that_meets_what_is_kept_closes_the_node():
    free = free_of().take(WHOLE, (0,))
    assert without(free, HALF, ReplicaPlace("a", "i1", (1,))) == free.take(HALF, (1,))
    assert without(free, HALF, ReplicaPlace("a", "i1", (0,))).closed == "kept_back"
    assert without(free._replace(closed="node_lost"), HALF, ReplicaPlace("a", "i1", (1,))).closed == "kept_back"
    assert without(free_of(), WHOLE, ReplicaPlace("a", "i1", (1,))) == free_of().take(WHOLE, (1,))


def kept_back(*claims):
    """Return shadows over a node of two devices; a claim is (start_ms, devices it takes, job id)."""
    cluster = World(node("a", 2), node("b", 2)).free()
    holds = Holds(cluster)
    for start_ms, devices, job_id in claims:
        holds.claim(0, CapacityHold(start_ms, cluster.free_of(1).take(WHOLE, devices), job_id))
    return cluster, holds


def beside(cluster, holds):
    """Return the devices free beside each claim on the first node."""
    return [cluster.table.frees[claim.then].devices for claim in holds._kinds[holds._kind_of[0]].claims]


def test_who_ends_before_a_claim_starts_is_not_bound_by_it():
    cluster, holds = kept_back((100, (0,), 7), (200, (1,), 8))
    assert cluster.free_of(0).devices == (0, 0)
    assert [holds.may_help(end) for end in (100, 101, 200, 201)] == [True, True, True, False]
    for end_ms, devices in ((100, (1_000, 1_000)), (101, (0, 1_000)), (200, (0, 1_000)), (201, (0, 0))):
        holds.lift(end_ms)
        assert cluster.free_of(0).devices == devices
    holds.lower()
    assert cluster.free_of(0).devices == (0, 0)
    assert (holds.real(0).devices, holds.real(1).devices) == ((1_000, 1_000), (1_000, 1_000))
    assert holds.blocker() == 7
    assert kept_back((1, (0,), None))[1].blocker() is None
    assert (bool(holds), bool(kept_back()[1])) == (True, False)


def test_what_is_kept_for_some_can_be_lifted_alone():
    cluster, holds = kept_back((100, (0,), 7), (200, (1,), 8))
    holds.lift_all_of({8})
    assert cluster.free_of(0).devices == (0, 1_000)
    holds.lift_all_of({7, 8})
    assert cluster.free_of(0).devices == (1_000, 1_000)


def test_a_gang_that_is_still_there_leaves_less_beside_a_claim():
    cluster, holds = kept_back((100, (0,), 7))
    place = ReplicaPlace("a", "i1", (1,))
    holds.taken(ask(1), [place], 100)
    assert cluster.free_of(0).devices == (0, 0)
    assert beside(cluster, holds) == [(0, 1_000)], "it has ended when the claim starts"
    holds.lift(100)
    assert cluster.free_of(0).devices == (1_000, 0)
    cluster, holds = kept_back((100, (0,), 7))
    holds.taken(ask(1), [place, ReplicaPlace("b", "i1", (0,))], 101)
    assert beside(cluster, holds) == [(0, 0)]
    assert cluster.free_of(0).cpu_milli == 14_000


@pytest.mark.parametrize(("start_ms", "end_ms", "less"), [(100, 101, True), (99, 100, False), (101, 200, False)])
def test_a_booking_leaves_less_beside_claims_that_start_while_it_runs(start_ms, end_ms, less):
    cluster, holds = kept_back((100, (0,), 7), (100, (), None))
    holds.booked(ask(1), [ReplicaPlace("a", "i1", (1,)), ReplicaPlace("b", "i1", (1,))], start_ms, end_ms)
    assert beside(cluster, holds) == [(0, 0) if less else (0, 1_000), (1_000, 1_000)]
    assert cluster.free_of(0).devices == ((0, 0) if less else (0, 1_000))
    assert cluster.free_of(1).devices == (1_000, 1_000)


# Scores.


def taken(gang, specs, name="fragmentation", speeds=()):
    w = World(*specs)
    free = ClusterIndex({PoolName("default"): PlacementStrategy(name, speeds)})
    free.sync(w.state.indexes.nodes, w.state.indexes.free)
    return place_gang(gang, free)[0].node


def of_models(*models):
    return [node(f"n{i}", (device(0, model=model),)) for i, model in enumerate(models)]


@pytest.mark.parametrize(
    ("speeds", "best"),
    [
        ((), "n0"),
        ((("X", 9, 1),), "n0"),
        ((("B", 9, 1),), "n1"),
        ((("A", 1_000, 1), ("B", 2_000, 1)), "n1"),
        ((("A", 1_000, 1), ("B", 2_000, 3)), "n0"),
        ((("A", 2_000, 2), ("B", 1_000, 1), ("C", 1_000, 0)), "n0"),
        ((("A", 1_000, 1), ("B", 1_000, 1), ("C", 2_000, 1)), "n2"),
    ],
)
def test_the_model_with_most_throughput_per_cost_is_taken(speeds, best):
    assert taken(ask(1, models=("A", "B", "C")), of_models("A", "B", "C"), speeds=speeds) == best


def test_one_model_is_not_compared():
    assert taken(ask(1, models=("B",)), of_models("A", "B", "B"), speeds=(("B", 9, 1),)) == "n1"


SIZES = [node("a", 4, cpus=8), node("b", 4, cpus=32), node("c", 2, cpus=32)]


@pytest.mark.parametrize(("strategy", "best"), [("best_fit", "c"), ("worst_fit", "b"), ("first_fit", "a")])
def test_strategies_look_at_what_is_left(strategy, best):
    assert taken(ask(2, cpus=4), SIZES, strategy) == best


def test_the_dot_product_follows_the_shape_of_the_request():
    specs = [node("cpus", 4, cpus=16), node("devices", 4, cpus=16)]
    w = World(*specs)
    free = ClusterIndex({PoolName("default"): PlacementStrategy("dot_product")})
    free.sync(w.state.indexes.nodes, w.state.indexes.free)
    free.change(0, free.free_of(0).take(replace(WHOLE, host=Resources()), (0,)))
    free.change(1, free.free_of(1).take(ReplicaAsk(Resources(8_000), None)))
    assert place_gang(ask(1, cpus=0), free)[0].node == "devices"
    assert place_gang(ask(0, cpus=4), free)[0].node == "cpus"


def test_the_least_and_the_most_of_a_request_class_are_accepted():
    rows = [(0, 0, 1, 1, None, 1), (0, 0, 1, 1_000, None, 1), (0, 0, 2, 1_000, None, 0), (0, 0, 0, 0, None, 5)]
    assert [(c.count, c.share_milli) for c in Mix.of(1, rows).classes] == [(1, 1), (1, 1_000)]
    assert [c.weight for c in Mix.of(1, [(0, 0, 1, 500, (True,), WEIGHT_MAX)]).classes] == [WEIGHT_MAX]
