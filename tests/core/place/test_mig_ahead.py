"""Instances that are there and idle: used first where the pool divides devices ahead of demand, counted elsewhere."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config.cluster import parse_cluster
from penstock.core.model.cluster import Pool
from penstock.core.model.nodes import DeviceInstances
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources, Sharing
from penstock.core.place import mig
from penstock.core.place.capacity import empty, shape_of, unheld
from penstock.core.place.fit import Need, capacity, devices_free, put_on
from penstock.core.place.instances import idle_on, repartitions
from penstock.core.place.mig_plan import STRATEGIES, CutDevice, PresentInstance, is_divided, strategy_plan
from penstock.testing.builders import GIB, device, node
from penstock.testing.harness import World
from tests.properties import examples

SMALL = 40 * GIB


def cut(index):
    return device(index, memory_bytes=SMALL, mig=True)


def world(*nodes, strategy="none"):
    """Return a cluster of nodes, each as its devices' instances; what is not given is not known."""
    w = World(pools=(Pool("default", mig_strategy=strategy),))
    for name, *devices in nodes:
        w.hello(node(name, tuple(map(cut, range(len(devices))))))
        w.report(name, inventory=True, instances=tuple(DeviceInstances(i, tuple(on)) for i, on in enumerate(devices)))
    return w


def placed(w, profile, replicas=1):
    job = w.submit(1, replicas, profile=profile)
    (start,) = [one for one in w.cycle().starts if one.job_id == job]
    return [(place.node, place.devices[0], place.slots[0]) for place in start.places]


HALVES = [("3g.20gb", 0), ("3g.20gb", 4)]
SMALLEST = [("1g.5gb", at) for at in range(7)]


def test_a_job_goes_to_an_idle_instance_of_its_profile_first():
    w = world(("a", [], HALVES, SMALLEST), ("b", HALVES), strategy="balanced")
    assert placed(w, "1g.5gb") == [("a", 2, 4)]
    assert [placed(w, "3g.20gb")[0][:2] for _ in range(4)] == [("b", 0), ("b", 0), ("a", 1), ("a", 1)]


@pytest.mark.parametrize(("strategy", "start"), [("inference", 1), ("none", 4)])
def test_where_devices_are_divided_ahead_an_idle_instance_goes_before_a_better_place(strategy, start):
    w = world(("a", [("1g.5gb", 1)]), strategy=strategy)
    assert placed(w, "1g.5gb") == [("a", 0, start)]


def test_where_none_is_idle_fewest_are_destroyed_and_made():
    w = world(("a", SMALLEST, [("1g.5gb", 0)], HALVES), strategy="balanced")
    assert placed(w, "2g.10gb") == [("a", 1, 4)]  # one is made, none is in the way


def test_without_a_strategy_instances_are_packed_first():
    w = world(("a", [], SMALLEST))
    assert placed(w, "3g.20gb") == [("a", 0, 4)]
    assert placed(w, "1g.5gb") == [("a", 0, 0)]


def test_without_a_strategy_the_device_with_fewer_steps_is_taken_of_equal_ones():
    w = world(("a", SMALLEST, HALVES))
    assert placed(w, "3g.20gb") == [("a", 1, 4)]


def test_of_equal_nodes_the_one_with_an_idle_instance_is_taken():
    for strategy in ("none", "training"):
        w = world(("a", []), ("b", HALVES), ("c", SMALLEST), strategy=strategy)
        assert placed(w, "3g.20gb") == [("b", 0, 4)]


def test_replicas_of_a_gang_fill_idle_instances_of_several_devices():
    w = world(("a", HALVES, SMALLEST, HALVES), strategy="training")
    assert sorted(placed(w, "3g.20gb", 4)) == [("a", 0, 0), ("a", 0, 4), ("a", 2, 0), ("a", 2, 4)]


def test_an_instance_that_a_job_has_or_that_is_in_its_way_is_not_idle():
    w = world(("a", SMALLEST), strategy="inference")
    assert placed(w, "2g.10gb") == [("a", 0, 4)]
    free = w.state.indexes.free["a"]
    assert idle_on(free, 0) == tuple(("1g.5gb", at) for at in (0, 1, 2, 3, 6))
    assert [repartitions(free, 0, *one) for one in (("1g.5gb", 6), ("2g.10gb", 0), ("1g.5gb", 4))] == [0, 3, 1]


def test_a_node_that_comes_back_says_its_instances_anew():
    w = world(("a", HALVES), strategy="training")
    w.hello(node("a", (cut(0),)), "another life")
    known = w.state.nodes["a"]
    assert (known.instances, unheld(known, w.state.indexes.free["a"].shape).present) == (None, ())


def layouts(seed, name):
    """Return legal instances at random on a device, some of them in use."""
    rnd, geometry = random.Random(seed), next(one for one in mig.GEOMETRIES if one.name == name)
    found: list[tuple[str, int]] = []
    for _ in range(rnd.randrange(7)):
        profile = rnd.choice(geometry.profiles).name
        if possible := mig.starts(geometry, found, profile):
            found.append((profile, rnd.choice(possible)))
    return CutDevice(0, geometry, tuple(PresentInstance(*one, rnd.random() < 0.4) for one in found))


@given(st.integers(0, 10**6), st.sampled_from(["A100 40GB", "A30 24GB", "H100 80GB"]), st.sampled_from(STRATEGIES))
def test_a_device_is_divided_exactly_when_the_plan_of_its_strategy_has_no_steps(seed, name, strategy):
    one = layouts(seed, name)
    made = strategy_plan(one, strategy)
    assert is_divided(one, strategy) == (not made.steps)
    running = {(i.profile, i.start) for i in one.instances if i.in_use}
    after = tuple(PresentInstance(*i, (i.profile, i.start) in running) for i in made.layouts[0][1])
    assert is_divided(CutDevice(0, one.geometry, after), strategy)
    assert running <= {(i.profile, i.start) for i in after}


@examples(60)
@given(st.integers(0, 10**6), st.sampled_from(["none", *STRATEGIES]), st.integers(1, 9))
def test_what_is_idle_decides_where_instances_go_and_never_how_many_fit(seed, strategy, most):
    rnd = random.Random(seed)
    shape = shape_of(World(node("a", (cut(0), cut(1)))).state.nodes["a"], {"default": Sharing(mig_strategy=strategy)})
    free = empty(shape)
    for index in (0, 1):
        on = layouts(rnd.random(), "A100 40GB").instances
        free = free._replace(present=(*free.present, (index, tuple((one.profile, one.start) for one in on))))
    for profile in rnd.choices(["1g.5gb", "2g.10gb", "3g.20gb"], k=4):
        need = Need(ReplicaAsk(Resources(), DeviceAsk(1, profile=profile)), "default")
        bare = free._replace(present=())
        count = capacity(need, free, most)
        assert count == capacity(need, bare, most)
        if count:
            free, ((devices, slots),) = put_on(need, free, 1)
            assert devices_free(need.each.devices, bare, (devices, slots))
            idle = [(i, at) for i in (0, 1) for name, at in idle_on(bare._replace(present=free.present), i)
                    if name == profile and devices_free(need.each.devices, bare, ((i,), (at,)))]  # fmt: skip
            assert strategy == "none" or not idle or (devices[0], slots[0]) in idle


def test_a_strategy_is_read_from_a_cluster_file():
    raw = {"pools": [{"name": "p", "mig_strategy": "inference"}, {"name": "q"}]}
    file, problems = parse_cluster(raw)
    assert (problems, [pool.mig_strategy for pool in file.config.pools]) == ([], ["inference", "none"])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mig_strategy": "halves"}, "one of none, training, inference, balanced"),
        ({"mig_strategy": "training", "virtualization": "mps"}, "none where virtualization is mps"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(fields, expected):
    (problem,) = parse_cluster({"pools": [{"name": "p", **fields}]})[1]
    assert (problem.field, expected in problem.message) == ("pools[0].mig_strategy", True)
