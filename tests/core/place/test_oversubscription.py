"""Device memory promised beyond what there is: by pools that do so, to fractions that allow it, beside no others."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.config.job import parse_request
from penstock.core.model.cluster import Pool
from penstock.core.model.events import ConfigChanged
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources, Sharing
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.fit import pick_devices
from penstock.core.place.holds import lesser
from penstock.core.state.invariants import no_device_beyond_capacity
from penstock.core.state.state import State
from penstock.testing.builders import GIB, device, node
from penstock.testing.harness import World, finish, follow
from tests.properties import examples

HALF_MORE = Sharing("any", 1_500)


def part(memory_gib, *, allowed, milli=100):
    return {"share_milli": milli, "share_memory_bytes": memory_gib * GIB, "oversubscribe": allowed}


def world(factor_milli, *nodes):
    return World(*nodes or (node("a", 1),), pools=(Pool("default", memory_oversubscription_milli=factor_milli),))


def started(w, *parts):
    """Return which of these jobs start together, in order of submission."""
    jobs = [w.submit(1, **one) for one in parts]
    begun = {start.job_id for start in w.cycle().starts}
    return [job in begun for job in jobs]


def test_jobs_that_allow_it_are_promised_as_much_as_the_pool_says():
    assert started(world(1_500), *[part(40, allowed=True)] * 4) == [True, True, True, False]  # of 80 GiB


def test_without_a_factor_nothing_is_promised_beyond_what_there_is():
    assert started(world(1_000), *[part(40, allowed=True)] * 3) == [True, True, False]


def test_a_job_that_does_not_allow_it_keeps_the_device_within_its_memory():
    assert started(world(1_500), part(40, allowed=False), *[part(40, allowed=True)] * 2) == [True, True, False]


def test_a_job_that_does_not_allow_it_gets_no_device_that_has_promised_more():
    w = world(1_500, node("a", 2))
    assert started(w, *[part(35, allowed=True)] * 3, part(5, allowed=False)) == [True] * 4
    assert [w.state.indexes.free["a"].memory_left(i) // GIB for i in (0, 1)] == [-25, 75]


def test_a_lower_factor_stops_nothing_that_runs_and_promises_nothing_more():
    w = world(1_500)
    jobs = [w.submit(1, **part(40, allowed=True)) for _ in range(3)]
    w.run(*jobs)
    w.emit(ConfigChanged(replace(w.state.config, pools=(Pool("default"),)), "ann"))
    assert {w.phase(job) for job in jobs} == {"running"}
    assert started(w, part(1, allowed=True)) == [False]
    assert list(no_device_beyond_capacity(w.state)) == []
    assert State.from_image(w.state.image()).indexes.free == w.state.indexes.free


PARTS = st.tuples(st.sampled_from([5, 20, 40, 60]), st.booleans(), st.sampled_from([10, 250]))


@examples(200)
@given(st.lists(st.tuples(PARTS, st.booleans()), max_size=14), st.integers(0, 2**32))
def test_no_order_of_coming_and_going_promises_too_much(steps, seed):
    rnd = random.Random(seed)
    free = start = empty(shape_of(World(node("a", 2)).state.nodes["a"], {"default": HALF_MORE}))
    held = []
    for (memory, allowed, milli), leaves in steps:
        each = ReplicaAsk(Resources(), DeviceAsk(1, **part(memory, allowed=allowed, milli=milli)))
        if leaves and held:
            free = free.put_back(*held.pop(rnd.randrange(len(held))))
        elif (picked := pick_devices(each.devices, free)) is not None:
            free = free.take(each, *picked)
            held.append((each, *picked))
        for index in range(2):
            asks = [one.devices for one, devices, _ in held if devices == (index,)]
            strict = not all(ask.oversubscribe for ask in asks)
            assert sum(ask.share_memory_bytes for ask in asks) <= (80 if strict else 120) * GIB
            assert free.memory_left(index) == 80 * GIB - sum(ask.share_memory_bytes for ask in asks)
    for one in held:
        free = free.put_back(*one)
    assert free == start


def test_what_is_free_in_both_is_strict_where_either_is():
    free = empty(shape_of(World(node("a", 1)).state.nodes["a"], {"default": HALF_MORE}))
    allowing, strict = (ReplicaAsk(Resources(), DeviceAsk(1, **part(30, allowed=one))) for one in (True, False))
    both = lesser(free.take(allowing, (0,)).take(allowing, (0,)), free.take(strict, (0,)))
    assert both.memory_left(0, oversubscribe=True) == 20 * GIB


@examples(20)
@given(st.integers(0, 2**32))
def test_no_plan_promises_more_to_jobs_that_do_not_allow_it(seed):
    rnd = random.Random(seed)
    w = world(1_500, node("a", (device(0), device(1, memory_bytes=40 * GIB)), cpus=64))
    for _ in range(10):
        w.now += 10_000
        for _ in range(rnd.randint(0, 3)):
            allowed, priority = rnd.random() < 0.6, rnd.choice([100, 900])
            w.submit(1, priority=priority, **part(rnd.choice([10, 20, 39]), allowed=allowed))
        w.cycle()
        assert list(no_device_beyond_capacity(w.state)) == []
        follow(w)
        for job_id in sorted(w.state.indexes.active):
            if w.phase(job_id) == "running" and rnd.random() < 0.3:
                finish(w, job_id)


@pytest.mark.parametrize(("raw", "milli"), [(1.5, 1_500), (1, 1_000), (8, 8_000)])
def test_a_factor_is_read_and_written_exactly(raw, milli):
    file, problems = parse_cluster({"pools": [{"name": "p", "memory_oversubscription": raw}]})
    assert (problems, file.config.pools[0].memory_oversubscription_milli) == ([], milli)
    assert parse_cluster(declaration(file.config))[0].config == file.config


@pytest.mark.parametrize("raw", [0, 0.9, 8.001, "much", -1, True])
def test_a_factor_that_makes_no_sense_is_refused(raw):
    (problem,) = parse_cluster({"pools": [{"name": "p", "memory_oversubscription": raw}]})[1]
    assert problem.field == "pools[0].memory_oversubscription"
    assert "expected a factor from 1 (none) to 8, such as 1.5" in problem.message


def test_only_a_job_with_a_share_can_allow_it():
    (entry,), _ = parse_request({"command": "true", "devices": {"share": 0.5, "oversubscribe": True}})
    assert entry.spec.ask.each.devices == DeviceAsk(1, share_milli=500, oversubscribe=True)
    (problem,) = parse_request({"command": "true", "devices": {"count": 1, "oversubscribe": True}})[1]
    assert (problem.field, "only together with a share" in problem.message) == ("devices.oversubscribe", True)
