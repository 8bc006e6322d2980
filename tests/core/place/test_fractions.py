"""Fractions of devices: no share and no memory is given twice, and a device is in one mode at a time."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.fit import Need, capacity, devices_free, eligible, pick_devices, put_on
from penstock.core.place.gang import NoFit, place_gang
from penstock.testing.builders import GIB, ask, chips, device, node
from penstock.testing.harness import World, cluster, finish, follow
from tests.properties import examples

QUARTER, HALF = 250, 500


def started(found):
    return {s.job_id: chips(*s.places) for s in found.starts}


def test_fractions_share_a_device_until_it_is_full():
    w = cluster(1, 2)
    jobs = [w.submit(1, share_milli=400) for _ in range(5)]
    assert started(w.cycle()) == {
        jobs[0]: [("n0", (0,))],
        jobs[1]: [("n0", (0,))],
        jobs[2]: [("n0", (1,))],
        jobs[3]: [("n0", (1,))],
    }


def test_a_fraction_goes_where_least_is_left_after_it():
    w = cluster(1, 3)
    w.run(w.submit(1, share_milli=300))
    w.run(w.submit(1, share_milli=800))
    small = w.submit(1, share_milli=200)
    assert started(w.cycle())[small] == [("n0", (1,))]


def test_memory_bounds_fractions_as_their_share_does():
    w = cluster(1, 1)  # a device of 80 GiB
    jobs = [w.submit(1, share_milli=QUARTER, share_memory_bytes=30 * GIB) for _ in range(3)]
    assert list(started(w.cycle())) == jobs[:2]


def test_without_a_limit_of_its_own_a_fraction_takes_its_part_of_the_memory():
    w = cluster(1, 1)
    w.run(w.submit(1, share_milli=HALF))
    big = w.submit(1, share_milli=QUARTER, share_memory_bytes=41 * GIB)
    fits = w.submit(1, share_milli=QUARTER, share_memory_bytes=40 * GIB)
    assert list(started(w.cycle())) == [fits]
    assert w.phase(big) == "waiting"


def test_a_device_given_out_in_parts_is_no_whole_device():
    w = cluster(1, 2)
    w.run(w.submit(1, share_milli=QUARTER))
    whole = [w.submit(1), w.submit(1)]
    assert started(w.cycle()) == {whole[0]: [("n0", (1,))]}
    w.submit(1, share_milli=HALF)
    assert [chip for found in started(w.cycle()).values() for chip in found] == [("n0", (0,))]


def test_a_device_is_whole_again_once_its_last_part_has_left():
    w = cluster(1, 1)
    parts = [w.submit(1, share_milli=HALF), w.submit(1, share_milli=HALF)]
    w.run(*parts)
    whole = w.submit(1)
    finish(w, parts[0])
    assert started(w.cycle()) == {}
    finish(w, parts[1])
    assert started(w.cycle()) == {whole: [("n0", (0,))]}


@pytest.mark.parametrize("profile", ["1g.10gb", ""])
def test_a_device_is_cut_up_or_shared_but_not_both(profile):
    w = World(node("a", (device(0, mig=True),)))
    first, second = ({"profile": "1g.10gb"}, {"share_milli": QUARTER})[:: 1 if profile else -1]
    w.run(w.submit(1, **first))
    w.submit(1, **second)
    assert started(w.cycle()) == {}


def test_a_gang_of_fractions_may_stand_on_one_device():
    assert chips(*place_gang(ask(1, 3, share_milli=300), cluster(1, 2).free())) == [("n0", (0,))] * 3


def test_filters_hold_for_fractions_too():
    mixed = (device(0, healthy=False), device(1, model="H100"), device(2))
    w = World(node("a", mixed))
    assert chips(*place_gang(ask(1, share_milli=HALF), w.free())) == [("a", (1,))]
    assert chips(*place_gang(ask(1, share_milli=HALF, models=("A100", "H100")), w.free())) == [("a", (2,))]
    assert isinstance(place_gang(ask(1, 3, share_milli=HALF, models=("A100",)), w.free()), NoFit)


def test_no_share_left_is_told_as_such():
    w = cluster(1, 1)
    w.run(w.submit(1, share_milli=800))
    assert place_gang(ask(1, share_milli=300), w.free()) == NoFit((("share_short", 1),), 0)


def test_a_plan_that_others_overtook_gives_no_part_out_twice():
    w = cluster(1, 1)
    one = w.submit(1, share_milli=600)
    stale = w.plan()
    two = w.submit(1, share_milli=HALF, priority=900)
    assert list(started(w.cycle())) == [two]
    assert started(w.apply(stale)) == {}
    assert w.phase(one) == "waiting"


def test_a_fraction_leaves_for_a_higher_fraction_and_no_other_does():
    w = cluster(1, 1)
    parts = [w.submit(1, share_milli=HALF, priority=p) for p in (100, 200)]
    w.run(*parts)
    w.submit(1, share_milli=HALF, priority=900)
    assert [p.victim for p in w.cycle().preemptions] == [parts[0]]


def test_a_whole_device_takes_all_parts_of_the_cheapest_one():
    w = cluster(1, 2)
    parts = [w.submit(1, share_milli=HALF, priority=p) for p in (200, 200, 100, 100)]
    w.run(*parts)
    w.submit(1, priority=900)
    assert sorted(p.victim for p in w.cycle().preemptions) == [parts[2], parts[3]]


# Everything about one device, recounted.


def assert_devices_hold(w):
    """Recount every device from specs and places: one mode, shares within 1000, memory within what it has."""
    held = {}
    for job in w.state.jobs.values():
        for replica in job.attempt.replicas if job.attempt else ():
            if replica.holds:
                for index in replica.place.devices:
                    held.setdefault((replica.place.node, index), []).append(job.spec.ask.each.devices)
    for (name, index), asks in held.items():
        spec = w.state.nodes[name].spec.devices[index]
        if asks[0].whole:
            assert len(asks) == 1
            continue
        assert not any(a.whole for a in asks)
        memory = [a.share_memory_bytes or spec.memory_bytes * a.share_milli // 1000 for a in asks]
        assert sum(a.share_milli for a in asks) <= 1000
        assert sum(memory) <= spec.memory_bytes


@examples(50)
@given(st.integers(0, 2**32))
def test_nothing_of_a_device_is_given_out_twice(seed):
    rnd = random.Random(seed)
    mixed = (device(0), device(1, memory_bytes=40 * GIB), device(2, healthy=False))
    w = World(node("n0", mixed, cpus=6), node("n1", 2, cpus=6), starvation_after_ms=60_000)
    stale = w.plan()
    for _ in range(30):
        w.now += 10_000
        for _ in range(rnd.randint(0, 3)):
            part = rnd.choice([{}, {"share_milli": rnd.choice([200, 300, 500, 900])}])
            part |= {"share_memory_bytes": rnd.choice([5, 25, 39]) * GIB} if part and rnd.random() < 0.5 else {}
            priority, length_ms = rnd.choice([100, 500, 900]), rnd.choice([0, 5_000, 40_000])
            w.submit(1, rnd.randint(1, 3), priority=priority, estimated_duration_ms=length_ms, **part)
        stale = rnd.choice([stale, w.plan()])
        w.apply(stale) if rnd.random() < 0.2 else w.cycle()
        assert_devices_hold(w)
        follow(w) if rnd.random() < 0.8 else None
        for job_id in sorted(w.state.indexes.active):
            if w.phase(job_id) == "running" and rnd.random() < 0.2:
                finish(w, job_id)


@examples(100)
@given(st.lists(st.tuples(st.sampled_from([100, 250, 300, 500, 700]), st.sampled_from([0, 8, 20, 40])), max_size=8))
def test_taking_and_giving_back_in_any_order_leaves_no_trace(parts):
    free = start = empty(shape_of(World(node("a", 2)).state.nodes["a"]))
    taken = []
    for share, memory in parts:
        each = ReplicaAsk(Resources(100), DeviceAsk(1, share_milli=share, share_memory_bytes=memory * GIB))
        picked = pick_devices(each.devices, free)
        assert (picked is None) == (eligible(each.devices, free) == [])
        if picked is not None:
            assert devices_free(each.devices, free, picked)
            free = free.take(each, *picked)
            taken.append((each, picked))
    for each, picked in taken[::2] + taken[1::2]:
        free = free.put_back(each, *picked)
    assert free == start


@examples(100)
@given(st.sampled_from([100, 300, 500, 600]), st.integers(0, 50), st.integers(0, 7), st.integers(1, 12))
def test_as_many_fractions_fit_as_are_counted(share, memory, held, most):
    each = ReplicaAsk(Resources(), DeviceAsk(1, share_milli=share, share_memory_bytes=memory * GIB))
    free = empty(shape_of(World(node("a", 3)).state.nodes["a"]))
    for _ in range(held):
        small = ReplicaAsk(Resources(), DeviceAsk(1, share_milli=200))
        free = free.take(small, *pick_devices(small.devices, free))
    need = Need(each, "default")
    count = capacity(need, free, most)
    assert put_on(need, free, count) is not None
    assert count == most or put_on(need, free, count + 1) is None


def test_a_place_that_names_no_device_of_the_node_is_not_free():
    w = cluster(1, 1)
    free = w.snapshot().free["n0"]
    part = DeviceAsk(1, share_milli=HALF)
    assert not devices_free(part, free, ((7,), ()))
    assert not devices_free(None, free, ((0,), ()))
    assert devices_free(None, free, ((), ()))
    assert GangAsk(1, ReplicaAsk(Resources(), part)).device_milli == HALF
    assert ReplicaPlace("n0", "i1", (0,)).slots == ()
