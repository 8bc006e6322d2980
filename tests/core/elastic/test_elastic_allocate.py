"""The elastic allocator: devices go where they gain most, changes pay for themselves, and nobody swings."""

from itertools import product

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.elastic.allocate import allocate, choose_sizes, give_back
from penstock.core.elastic.speedup import AmdahlCurve, PointsCurve
from penstock.core.elastic.worth import (
    ElasticJob,
    ElasticSettings,
    Worth,
    envelope,
    explored_maximum,
    replicas_of,
    served_weight_milli,
    sizes_of,
)
from tests.properties import examples

HOUR = 3_600_000
PLAIN = ElasticSettings(fair_normalised=False)


def job(number, minimum=1, maximum=16, serial=50, held=(), rest_ms=HOUR, **fields):
    curve = fields.pop("curve", AmdahlCurve(serial))
    return ElasticJob(number, minimum, maximum, curve, tuple(held), rest_ms=rest_ms, **fields)


def nodes(*free):
    return {f"n{i}": count for i, count in enumerate(free)}


def room_of(jobs, free):
    room = dict(free)
    for one in jobs:
        for node, count in one.held:
            room[node] = room.get(node, 0) + count * one.devices_each
    return room


def idle(jobs, room):
    """Return the devices by node that these jobs leave of `room`."""
    left = dict(room)
    for one in jobs:
        for node, count in one.held:
            left[node] -= count * one.devices_each
    return left


def applied(jobs, found):
    return [msgspec.structs.replace(one, held=found.places[one.id]) for one in jobs]


@st.composite
def rounds(draw, nodes_max=4, jobs_max=5, each=(1,)):
    """Return jobs, some of which run, and the devices that are left on each node."""
    free = {f"n{i}": draw(st.integers(1, 4)) for i in range(draw(st.integers(1, nodes_max)))}
    jobs = []
    for number in range(draw(st.integers(1, jobs_max))):
        per, minimum = draw(st.sampled_from(each)), draw(st.integers(1, 3))
        maximum = minimum + draw(st.integers(0, 12))
        held = []
        if draw(st.booleans()):
            wanted = draw(st.integers(minimum, maximum))
            for node in sorted(free, key=lambda n: (-free[n], n)):
                count = min(wanted - sum(c for _, c in held), free[node] // per)
                if count:
                    held.append((node, count))
            if sum(c for _, c in held) < minimum:
                held = []
            for node, count in held:
                free[node] -= count * per
        serial = draw(st.integers(0, 500))
        more = {"devices_each": per, "may_pause": draw(st.booleans()), "weight_milli": draw(st.integers(100, 3000))}
        rest_ms = draw(st.integers(0, 2 * HOUR))
        jobs.append(job(number, minimum, maximum, serial, sorted(held), rest_ms, **more))
    return jobs, free


def test_idle_devices_go_where_they_gain_most():
    jobs = [job(1, serial=10), job(2, serial=900)]
    found = allocate(jobs, nodes(4), PLAIN)
    assert found.sizes == {1: 3, 2: 1}


def test_weight_pulls_devices():
    jobs = [job(1, weight_milli=4000), job(2)]
    assert allocate(jobs, nodes(4), PLAIN).sizes == {1: 3, 2: 1}


def test_everybody_starts_before_anybody_grows():
    found = allocate([job(n) for n in range(4)], nodes(4))
    assert found.sizes == {0: 1, 1: 1, 2: 1, 3: 1}


def test_growth_that_does_not_pay_for_its_restart_is_left_out():
    held = (("n0", 2),)
    short, long = job(1, held=held, rest_ms=60_000), job(1, held=held, rest_ms=HOUR)
    assert allocate([short], nodes(2)).sizes == {1: 2}
    assert allocate([long], nodes(2)).sizes == {1: 4}


def test_growth_pays_exactly_from_the_break_even_on():
    """Twice the speed halves the rest: it pays from twice the restart, 30 s x 1.5, on."""
    straight = PointsCurve([(2, 2000), (4, 4000)])
    sizes = [
        allocate([job(1, held=(("n0", 2),), curve=straight, rest_ms=rest, maximum=4)], nodes(2)).sizes[1]
        for rest in (90_000, 90_500)
    ]
    assert sizes == [2, 4]


def test_no_gain_no_growth():
    flat = PointsCurve([(2, 1800), (16, 1800)])
    assert allocate([job(1, curve=flat)], nodes(4, 4)).sizes == {1: 2}


def test_large_sizes_are_whole_nodes():
    found = allocate([job(1, serial=0)], nodes(4, 4, 3))
    assert found.places == {1: (("n0", 4), ("n1", 4))}


def test_two_spread_jobs_never_share_a_node():
    jobs = [job(1, minimum=6, maximum=6), job(2, minimum=6, maximum=6)]
    found = allocate(jobs, nodes(4, 4, 4, 4))
    on = [{n for n, _ in found.places[i]} for i in (1, 2)]
    assert not on[0] & on[1]
    assert allocate(jobs, nodes(4, 4, 4)).sizes == {1: 6, 2: 0}


def test_an_unchanged_job_stays_where_it_is():
    """Though the other node would be the tighter one."""
    jobs = [job(1, maximum=2, held=(("n1", 2),)), job(2, maximum=1)]
    found = allocate(jobs, nodes(2, 2))
    assert found.places[1] == (("n1", 2),)
    assert found.sizes[2] == 1


def test_without_rebalancing_only_idle_devices_are_given():
    jobs = [job(1, maximum=4, serial=500, held=(("n0", 4),)), job(2, serial=0, held=(("n1", 1),))]
    assert allocate(jobs, nodes(0, 0, 0)).sizes != {1: 4, 2: 1}
    assert allocate(jobs, nodes(0, 0, 0), rebalance=False).sizes == {1: 4, 2: 1}


def test_nobody_loses_the_last_replica_for_a_better_place_of_another():
    """On one node the heavy job would be faster, but then no node has two devices left for the pair."""
    pair = job(1, maximum=2, devices_each=2, weight_milli=1, held=(("n0", 2),))
    heavy = job(2, minimum=4, maximum=4, weight_milli=100_000)
    found = allocate([pair, heavy], nodes(0, 1, 1), PLAIN)
    assert found.sizes == {1: 1, 2: 4}
    assert len(found.places[2]) == 3


def test_growth_that_finds_no_place_leaves_the_job_as_it_is():
    waiting, pair = job(0, maximum=1), job(2, maximum=3, devices_each=2, held=(("n1", 1), ("n2", 1), ("n3", 1)))
    jobs = [waiting, job(1, maximum=5, serial=0, held=(("n0", 3), ("n1", 1))), pair]
    found = allocate(jobs, nodes(0, 0, 1, 1), rebalance=False)
    assert found.sizes[1] >= 4


def test_a_job_may_pause_only_if_it_says_so():
    heavy = job(2, minimum=4, maximum=4, weight_milli=100_000)
    for may_pause, sizes in ((False, {1: 4, 2: 0}), (True, {1: 0, 2: 4})):
        running = job(1, held=(("n0", 1),), may_pause=may_pause)
        assert allocate([running, heavy], nodes(3), PLAIN).sizes == sizes


def test_bounds_that_moved_are_obeyed():
    assert allocate([job(1, maximum=2, held=(("n0", 4),))], nodes(0)).sizes == {1: 2}
    assert allocate([job(1, minimum=3, held=(("n0", 1),))], nodes(3), rebalance=False).sizes[1] >= 3


def test_service_lowers_weight_and_growth_is_explored_by_doubling():
    assert [served_weight_milli(h * HOUR) for h in (0, 3, 99)] == [1000, 500, 100]
    assert [explored_maximum(64, seen) for seen in (0, 1, 3, 40)] == [2, 2, 6, 64]


def test_sizes_are_single_then_whole_nodes_and_bounds():
    assert sizes_of(job(1, 1, 14), 4) == [1, 2, 3, 4, 8, 12, 14]
    assert sizes_of(job(1, 3, 9, held=(("n0", 4), ("n1", 2))), 4) == [3, 4, 6, 8, 9]


def test_the_envelope_skips_steps_that_gain_less_than_what_follows():
    assert envelope([(0, 100), (1, 99), (2, 60), (3, 61), (4, 50)]) == [(0, 100), (2, 60), (4, 50)]


@given(rounds(each=(1, 2)), st.booleans())
def test_sizes_keep_bounds_and_fit_their_nodes(given_round, rebalance):
    jobs, free = given_round
    found = allocate(jobs, free, rebalance=rebalance)
    used = dict.fromkeys(free, 0)
    for one in jobs:
        size = found.sizes[one.id]
        assert size == replicas_of(found.places[one.id])
        assert one.minimum <= size <= one.maximum or (size == 0 and (one.may_pause or not one.size))
        assert rebalance or size >= one.size
        for node, count in found.places[one.id]:
            used[node] += count * one.devices_each
    assert all(used[node] <= count for node, count in room_of(jobs, free).items())
    assert found.gain >= 0


@given(rounds())
def test_a_node_carries_at_most_one_newly_spread_job(given_round):
    jobs, free = given_round
    jobs = [msgspec.structs.replace(one, held=()) for one in jobs]
    found = allocate(jobs, free)
    spread = [node for places in found.places.values() if len(places) > 1 for node, _ in places]
    assert len(spread) == len(set(spread))


@given(rounds(each=(1, 2)), st.randoms(use_true_random=False), st.booleans())
def test_order_of_jobs_and_nodes_never_matters(given_round, rnd, rebalance):
    jobs, free = given_round
    shuffled = dict(rnd.sample(sorted(free.items()), len(free)))
    one = allocate(jobs, free, rebalance=rebalance)
    two = allocate(rnd.sample(jobs, len(jobs)), shuffled, rebalance=rebalance)
    assert (one.gain, [*one.places.items()], [*one.sizes.items()]) == (
        two.gain,
        [*two.places.items()],
        [*two.sizes.items()],
    )


@given(rounds(), st.integers(0, 20))
def test_a_device_more_never_lowers_the_gain(given_round, devices):
    jobs, _ = given_round
    worths = [Worth(msgspec.structs.replace(one, held=()), PLAIN) for one in jobs]

    def cost(count):
        """Nodes of one device each would change the menu: the widest node stays as it is."""
        sizes = choose_sizes(worths, {"n0": 4, **{f"x{i}": 1 for i in range(count)}}, rebalance=True)
        return sum(w.cost(sizes[w.job.id], -(-sizes[w.job.id] // 4), moved=True) for w in worths)

    assert cost(devices + 1) <= cost(devices)


@given(rounds(), st.booleans())
@examples(200)
def test_rounds_with_the_same_input_never_swing_back(given_round, rebalance):
    """Each round that changes anything makes the sum of costs without restarts smaller: no state comes twice."""
    jobs, free = given_round
    room = room_of(jobs, free)
    before, states = jobs, []
    for _ in range(6):
        states.append([one.held for one in before])
        found = allocate(before, idle(before, room), rebalance=rebalance)
        after = applied(before, found)
        if [one.held for one in after] == states[-1]:
            return
        assert [one.held for one in after] not in states
        before = after


def shrunk(number, size, **fields):
    return job(number, held=tuple((f"n{i}", 1) for i in range(size)), **fields)


def test_those_who_lose_least_give_back():
    jobs = [shrunk(1, 4, serial=0), shrunk(2, 4, serial=500)]
    assert give_back(jobs, 2, PLAIN) == {2: 2}


def test_one_restart_is_less_than_two():
    jobs = [shrunk(1, 3, rest_ms=600_000), shrunk(2, 3, rest_ms=600_000), shrunk(3, 9, rest_ms=600_000)]
    assert give_back(jobs, 4, PLAIN) == {3: 5}


def test_nothing_needed_nothing_given():
    assert give_back([shrunk(1, 4)], 0) == {}


def test_answers_are_in_order_of_jobs():
    jobs = [shrunk(1, 2), shrunk(2, 2), shrunk(3, 2)]
    assert [*(give_back(jobs[::-1], 3) or {}).items()] == [(1, 1), (2, 1), (3, 1)]


def test_minimums_are_never_broken_to_give_back():
    assert give_back([shrunk(1, 4, minimum=3), shrunk(2, 2, minimum=2)], 2) is None


@st.composite
def holders(draw):
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        size, per = draw(st.integers(1, 5)), draw(st.integers(1, 2))
        fields = {"serial": draw(st.integers(0, 900)), "rest_ms": draw(st.integers(0, HOUR)), "devices_each": per}
        jobs.append(shrunk(number, size, minimum=draw(st.integers(1, size)), **fields))
    return jobs


def freed_by(jobs, sizes):
    return sum((one.size - sizes.get(one.id, one.size)) * one.devices_each for one in jobs)


def loss_of(jobs, sizes):
    total = 0
    for one in jobs:
        if one.id in sizes:
            worth = Worth(one, PLAIN)
            total += worth.cost(sizes[one.id], min(len(one.held), sizes[one.id]), moved=True) - worth.cost_of(one.held)
    return total


@given(holders(), st.integers(1, 12))
def test_giving_back_is_enough_and_least_of_all_ways(jobs, needed):
    found = give_back(jobs, needed, PLAIN)
    ways = [
        {one.id: size for one, size in zip(jobs, sizes, strict=True) if size < one.size}
        for sizes in product(*(range(one.minimum, one.size + 1) for one in jobs))
    ]
    enough = [way for way in ways if freed_by(jobs, way) >= needed]
    if not enough:
        assert found is None
        return
    assert found is not None
    assert freed_by(jobs, found) >= needed
    assert loss_of(jobs, found) == min(loss_of(jobs, way) for way in enough)


@given(holders(), st.integers(1, 12))
def test_nobody_shrinks_who_need_not(jobs, needed):
    found = give_back(jobs, needed, PLAIN)
    for number, size in (found or {}).items():
        one = jobs[number]
        assert one.minimum <= size < one.size
        for less in range(size + 1, one.size + 1):
            assert freed_by(jobs, {**found, number: less}) < needed


@given(holders(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_order_never_matters_for_giving_back(jobs, needed, rnd):
    one, two = give_back(jobs, needed), give_back(rnd.sample(jobs, len(jobs)), needed)
    assert [*(one or {}).items()] == [*(two or {}).items()]


def test_whose_minimum_is_more_than_there_is_gets_nothing():
    worths = [Worth(job(1, minimum=3), PLAIN), Worth(job(2, minimum=1, maximum=2), PLAIN)]
    assert choose_sizes(worths, nodes(2), rebalance=False) == {1: 0, 2: 2}


def test_two_that_hold_more_than_there_is_by_now_are_not_both_kept():
    worths = [Worth(job(n, minimum=2, maximum=2, held=(("n0", 2),)), PLAIN) for n in (1, 2)]
    assert choose_sizes(worths, nodes(3), rebalance=True) == {1: 2, 2: 0}
