"""Which devices of a node a replica gets."""

import pytest

from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.place.fit import pick_devices
from penstock.core.place.gang import NoFit, place_gang
from penstock.testing.builders import GIB, ask, chips, device, linked, node
from penstock.testing.harness import World


def pairs(*kinds):
    """Return devices 0-1, 2-3, ... each pair joined by a link of the given kind."""
    return tuple(linked(2 * i + j, kind, 2 * i + 1 - j) for i, kind in enumerate(kinds) for j in (0, 1))


def pick(wanted, devices, *held):
    """Return the indexes that a replica takes of a node on which `held` are taken, or None."""
    free = World(node("a", devices)).free().free_of(0)
    picked = pick_devices(wanted, free.take(ReplicaAsk(Resources(), DeviceAsk(len(held))), held))
    return None if picked is None else picked[0]


def test_the_closest_link_wins_over_the_lowest_index():
    assert pick(DeviceAsk(2), pairs("pcie", "nvlink")) == (2, 3)


def test_numa_neighbours_are_closer_than_the_node():
    halves = tuple(device(i, numa_node=i % 2) for i in range(4))
    assert pick(DeviceAsk(2), halves) == (0, 2)


def test_big_groups_stay_whole_for_big_requests():
    workspace = tuple(linked(i, "nvlink", *range(4)) for i in range(4))
    workspace += tuple(linked(i, "nvlink", 4, 5) for i in (4, 5))
    assert pick(DeviceAsk(2), workspace) == (4, 5)
    assert pick(DeviceAsk(1), workspace, 4) == (5,)


def test_equal_groups_fall_to_the_lowest_index():
    assert pick(DeviceAsk(2), pairs("nvlink", "nvlink")) == (0, 1)


def test_a_required_link_is_never_softened():
    workspace = pairs("nvlink", "nvlink")
    assert pick(DeviceAsk(2, link="nvlink"), workspace, 0, 2) is None
    assert pick(DeviceAsk(2), workspace, 0, 2) == (1, 3)


def test_a_closer_link_than_required_will_do():
    assert chips(*place_gang(ask(2, link="pcie"), World(node("a", pairs("nvlink"))).free())) == [("a", (0, 1))]


def test_every_replica_of_a_gang_gets_joined_devices():
    w = World(node("a", pairs("nvlink", "nvlink", "nvlink")))
    assert chips(*place_gang(ask(2, 3, link="nvlink"), w.free())) == [("a", (0, 1)), ("a", (2, 3)), ("a", (4, 5))]


def test_the_preferred_model_is_taken_before_the_others():
    mixed = tuple(device(i, model=m) for i, m in enumerate(["A100", "A100", "H100", "H100"]))
    assert pick(DeviceAsk(2, models=("H100", "A100")), mixed) == (2, 3)
    assert pick(DeviceAsk(2, models=("A100", "H100")), mixed) == (0, 1)
    assert pick(DeviceAsk(3, models=("H100", "A100")), mixed) == (0, 1, 2)


def test_the_preferred_model_is_taken_under_a_required_link_too():
    mixed = pairs("nvlink", "nvlink")
    mixed = tuple(device(d.index, model="H100" if d.index > 1 else "A100", links=d.links) for d in mixed)
    assert pick(DeviceAsk(2, models=("H100", "A100"), link="nvlink"), mixed) == (2, 3)


def test_the_node_with_the_preferred_model_is_taken_before_a_tighter_one():
    old, new = node("a", 1), node("b", tuple(device(i, model="H100") for i in range(2)))
    assert chips(*place_gang(ask(1, models=("H100", "A100")), World(old, new).free())) == [("b", (0,))]


def test_two_devices_of_a_replica_are_joined_directly():
    chain = (linked(0, "nvlink", 1), linked(1, "nvlink", 0, 2), linked(2, "nvlink", 1))
    assert pick(DeviceAsk(2, link="nvlink"), chain) == (0, 1)
    assert pick(DeviceAsk(2, link="nvlink"), chain, 0) == (1, 2)
    assert pick(DeviceAsk(2, link="nvlink"), chain, 1) is None
    assert pick(DeviceAsk(3, link="nvlink"), chain) is None


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"vendor": "amd"}, (1,)),
        ({"models": ("H100",)}, (2,)),
        ({"memory_min_bytes": 81 * GIB}, (3,)),
        ({"capability_min": (9, 0)}, (4,)),
    ],
)
def test_every_filter_is_asked_of_every_device(fields, wanted):
    workspace = (
        device(0, healthy=False),
        device(1, vendor="amd"),
        device(2, model="H100"),
        device(3, memory_bytes=96 * GIB),
        device(4, capability=(9, 0)),
    )
    assert chips(*place_gang(ask(1, **fields), World(node("a", workspace)).free())) == [("a", wanted)]
    assert isinstance(place_gang(ask(2, **fields), World(node("a", workspace)).free()), NoFit)


def test_failed_devices_are_never_given_out():
    workspace = (device(0, healthy=False), device(1))
    assert chips(*place_gang(ask(1), World(node("a", workspace)).free())) == [("a", (1,))]


def test_capability_is_compared_as_numbers_not_as_text():
    workspace = (device(0, capability=(10, 0)),)
    assert chips(*place_gang(ask(1, capability_min=(9, 9)), World(node("a", workspace)).free())) == [("a", (0,))]
