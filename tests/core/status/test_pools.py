"""Statistics of pools: every device in one state, sums that add up, and what they are when counted from the jobs."""

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from penstock.core.model.answers import DeviceCounts
from penstock.core.model.cluster import Pool, Reservation
from penstock.core.state.snapshot import take_snapshot
from penstock.core.status.pools import pool_stats
from penstock.testing.builders import GIB, device, job_spec, node
from penstock.testing.harness import World, follow, running
from tests.properties import examples

POOLS = (Pool("default"), Pool("p", kind="gpu", reserve_milli=250))


def stats(w):
    return {one.name: one for one in pool_stats(take_snapshot(w.state), w.now)}


def world(*more, **config):
    broken = (*(device(i, mig=True) for i in range(3)), device(3, healthy=False))
    return World(node("a", broken), node("b", 4), node("c", 4, pool="p"), *more, pools=POOLS, **config)


def test_an_idle_pool_has_all_but_what_is_out_and_what_its_reserve_keeps():
    found = stats(world())
    assert found["default"].devices == DeviceCounts(available=7, failed=1)
    assert (found["default"].total_milli, found["default"].available_milli, found["default"].out_milli) == (
        8_000,
        7_000,
        1_000,
    )
    assert (found["p"].kind, found["p"].reserved_milli, found["p"].available_milli) == ("gpu", 1_000, 3_000)


def test_what_is_held_counts_in_its_parts():
    w = world()
    for shape in ({"profile": "2g.20gb"}, {"share_milli": 300}, {"devices": 2}):
        w.run(w.submit(shape.pop("devices", 1), cpus=2, memory_gib=1, **shape))
    found = stats(w)["default"]
    assert found.allocated_milli == 2_000 + 300 + 2_000 // 7
    assert (found.devices.allocated, found.devices.available) == (4, 3)
    assert found.utilisation_milli == found.allocated_milli * 1000 // 7_000
    assert (found.cpu_held_milli, found.memory_held_bytes) == (6_000, 3 * GIB)


def test_what_is_free_on_a_node_that_is_drained_or_lost_is_not_to_be_had():
    w = world()
    job = w.submit(2, pool="p")
    w.run(job)
    for name in "bc":
        w.drain(name)
    found = stats(w)
    assert (found["default"].devices, found["default"].nodes_open) == (DeviceCounts(3, maintenance=4, failed=1), 1)
    assert found["p"].devices == DeviceCounts(allocated=2, maintenance=2)
    assert (found["p"].out_milli, found["p"].reserved_milli, found["p"].utilisation_milli) == (2_000, 0, 1_000)
    w.lose("c")
    lost = stats(w)["p"]
    assert (lost.devices, lost.out_milli, lost.cpu_milli) == (DeviceCounts(failed=4), 4_000, 0)
    assert (lost.reserved_milli, lost.utilisation_milli) == (0, 0)


def test_what_is_reserved_for_a_tenant_is_told_apart_while_the_window_lasts():
    w = world()
    window = Reservation("w", "default", w.now, w.now + 1_000, ("b",))
    w.state.config = replace(w.state.config, reservations=(window,))
    assert (stats(w)["default"].devices.reserved, stats(w)["default"].reserved_milli) == (4, 4_000)
    w.now += 1_000
    assert stats(w)["default"].devices.reserved == 0


def recounted(w, pool):
    """Return the thousandths of devices of a pool that are held, from jobs alone."""
    found = 0
    for job_id in running(w):
        job = w.state.jobs[job_id]
        for replica in job.attempt.replicas:
            if replica.holds and w.state.nodes[replica.place.node].spec.pool == pool:
                found += job.ask.each_of(replica.rank).device_milli
    return found


@examples(30)
@given(st.integers(0, 2**32))
def test_sums_add_up_and_are_those_of_the_jobs_whatever_happens(seed):
    rnd = random.Random(seed)
    w = world(allow_waiting_for_nodes=True)
    for _ in range(20):
        w.now += 5_000
        shape = rnd.choice([{}, {"share_milli": rnd.choice((200, 500))}, {"profile": "1g.10gb"}])
        w.request(job_spec(1 if shape else rnd.randint(0, 2), pool=rnd.choice(("default", "p")), **shape))
        w.cycle()
        follow(w)
        if rnd.random() < 0.3 and running(w):
            w.cancel(rnd.choice(sorted(running(w))))
        if rnd.random() < 0.2:
            w.drain("b", on=rnd.random() < 0.5)
        for name, one in stats(w).items():
            assert sum(asdict(one.devices).values()) * 1_000 == one.total_milli
            parts = (one.allocated_milli, one.reserved_milli, one.available_milli, one.out_milli)
            assert sum(parts) == one.total_milli
            assert min(parts) >= 0
            assert one.allocated_milli == recounted(w, name)


def test_a_pool_with_a_limit_of_power_says_what_its_devices_in_use_are_expected_to_draw():
    limited = tuple(device(i, power_limit_mw=400_000) for i in range(4))
    w = World(node("a", limited), node("c", 4, pool="p"), pools=(Pool("default", power_limit_mw=2_000_000), Pool("p")))
    for fields in ({"devices": 2}, {"share_milli": 500}, {"pool": "p"}):
        w.run(w.submit(**fields))
    found = stats(w)
    assert (found["default"].power_mw, found["default"].power_limit_mw) == (1_000_000, 2_000_000)
    assert (found["p"].power_mw, found["p"].power_limit_mw) == (None, None)
