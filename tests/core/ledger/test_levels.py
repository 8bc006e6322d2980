"""Levels: how the cluster and each tenant stand after each record, as the state has it."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.ledger.allocations import AllocationImage, AllocationLog
from penstock.core.ledger.levels import CLUSTER, Key, LevelImage, Levels
from penstock.core.model import events as ev
from penstock.core.model.cluster import OthersLoad, Tenant
from penstock.testing.builders import device, node
from penstock.testing.harness import World
from tests.core.histories import operations, play, small_world
from tests.properties import examples

TENANTS = (Tenant("vision"), Tenant("audio"))


def folded(records, every=0):
    """Return the levels of records, and what was counted; going on from an image after each `every` of them."""
    levels, counted = Levels(AllocationLog()), Counter()
    for number, record in enumerate(records, 1):
        levels.take(record)
        counted.update(levels.counts)
        if every and number % every == 0:
            log = again(levels.log.image(), AllocationImage)
            levels = Levels(AllocationLog(log), again(levels.image(), LevelImage))
    return levels, counted


def again(image, kind):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=kind)


def stand(levels, holder=CLUSTER):
    names = ("devices_held", "devices_free", "devices_unhealthy", "jobs_waiting", "jobs_running")
    return tuple(levels.values[Key(holder, name)] for name in names)


def test_devices_are_held_free_or_unhealthy():
    w = World(node("n1", 4), node("n2", 2), tenants=TENANTS)
    w.run(w.submit(3, tenant="vision"))
    w.submit(4, tenant="audio")
    levels, _ = folded(w.records)
    assert stand(levels) == (3_000, 3_000, 0, 1, 1)
    assert stand(levels, "vision") == (3_000, 0, 0, 0, 1)
    assert stand(levels, "audio") == (0, 0, 0, 1, 0)
    w.drain("n1")
    assert stand(folded(w.records)[0]) == (3_000, 2_000, 1_000, 1, 1)
    w.lose("n2")
    assert stand(folded(w.records)[0]) == (3_000, 0, 1_000, 1, 1)


def test_an_ill_device_and_those_that_others_hold_are_not_free():
    w = World(node("n1", 4))
    sick = replace(w.state.nodes["n1"].spec.devices[3], healthy=False)
    spec = replace(w.state.nodes["n1"].spec, devices=(*w.state.nodes["n1"].spec.devices[:3], sick))
    w.hello(spec)
    assert stand(folded(w.records)[0])[:3] == (0, 3_000, 1_000)
    w.emit(ev.OthersLoadChanged("n1", OthersLoad(devices=(0, 1))))
    assert stand(folded(w.records)[0])[:3] == (0, 1_000, 1_000)


def test_a_closed_device_is_not_free_until_it_is_opened_or_gone():
    def seen(*closed):
        levels, _ = folded(w.records, every=1)
        assert stand(levels)[:3] == (0, 1_000 * (2 - len(closed)), 1_000 * len(closed))

    w = World(node("n1", tuple(device(i, uuid=uuid) for i, uuid in enumerate("ab"))))
    w.emit(ev.DeviceClosed("n1", 1, "xid", "Xid 79", "penstock"))
    seen(1)
    w.hello(node("n1", tuple(device(i, uuid=uuid) for i, uuid in enumerate("ba"))), "i2")
    seen(0)
    w.emit(ev.DeviceOpened("n1", 0, "op"))
    seen()
    w.emit(ev.DeviceClosed("n1", 0, "xid", "Xid 79", "penstock"))
    w.hello(node("n1", tuple(device(i, uuid=uuid) for i, uuid in enumerate("ca"))), "i3")
    seen()


def test_levels_are_by_model_too():
    w = World(node("n1", 2), node("n2", (device(0, model="H100"),)))
    w.run(w.submit(2))
    levels, _ = folded(w.records)
    assert levels.values[Key(CLUSTER, "devices_held", "A100")] == 2_000
    assert levels.values[Key(CLUSTER, "devices_free", "H100")] == 1_000


@pytest.mark.parametrize(
    ("name", "count"), [("starts", 3), ("ends", 1), ("preemptions", 1)], ids=["starts", "ends", "preemptions"]
)
def test_starts_ends_and_preemptions_are_counted_by_tenant(name, count):
    w = World(node("n1", 1), tenants=TENANTS)
    low = w.submit(1, priority=100, tenant="vision")
    w.run(low)
    high = w.submit(1, priority=900, tenant="audio")
    w.cycle()
    w.leave(low)
    w.cycle()
    w.start(high)
    w.exit_replica(high)
    w.now += 600_000
    w.cycle()
    _, counted = folded(w.records)
    both = counted[Key("vision", name)], counted[Key("audio", name)]
    assert (sum(both), counted[Key(CLUSTER, name)]) == (count, count)
    assert both == {"starts": (2, 1), "ends": (0, 1), "preemptions": (1, 0)}[name]


@examples(60)
@given(operations, st.integers(1, 40))
def test_they_are_what_the_state_says_however_often_the_fold_goes_on_from_an_image(found, every):
    w = play(small_world(), found)
    levels, counted = folded(w.records, every)
    assert (levels.values, counted) == (folded(w.records)[0].values, folded(w.records)[1])
    held, free, unhealthy, waiting, running = stand(levels)
    jobs = w.state.jobs.values()
    assert (waiting, running) == (sum(j.attempt is None for j in jobs), sum(j.attempt is not None for j in jobs))
    assert held == 1_000 * sum(len(load.devices) for load in w.state.indexes.loads.values())
    nodes = [one for one in w.state.nodes.values() if one.state != "lost"]
    assert held + free + unhealthy == 1_000 * sum(len(one.spec.devices) for one in nodes)
    usable = [one.spec.name for one in nodes if one.state == "ready" and not one.draining]
    well = [(name, one.index) for name in usable for one in w.state.nodes[name].spec.devices if one.healthy]
    assert free == 1_000 * sum(index not in w.state.indexes.load(name).devices for name, index in well)
