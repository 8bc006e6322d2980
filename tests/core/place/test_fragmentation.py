"""The fragmentation rule: values worked by hand, and what must hold for every mix and every node."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.place.fragmentation import CHUNK, NO_FIT, RANKS_MAX, TIE_BITS, WEIGHT_MAX, Ask, Mix, scores, unusable

GIB = 1 << 30
KINDS = 2
AMPLE_CPU, AMPLE_MEMORY = 1_000_000, 1 << 44
HALF = (1_000, GIB, 1, 500, None, 1)
WHOLE = (8_000, 16 * GIB, 1, 1000, None, 1)


def node(*free, cpu=AMPLE_CPU, memory=AMPLE_MEMORY, kind=0):
    return (cpu, memory, free, kind)


def arrays(nodes):
    slots = max(len(n[2]) for n in nodes)
    free = [[*n[2], *[-1] * (slots - len(n[2]))] for n in nodes]
    shape = (len(nodes), slots)
    columns = [[n[0] for n in nodes], [n[1] for n in nodes], free, [n[3] for n in nodes]]
    cpu, memory, device, kind = (np.array(c, dtype=np.int64) for c in columns)
    return cpu, memory, device.reshape(shape), kind


def lost(mix, *nodes):
    return unusable(mix, *arrays(nodes)).tolist()


def scored(mix, ask, *nodes):
    score, slot = scores(mix, ask, *arrays(nodes))
    return list(zip(score.tolist(), slot.tolist(), strict=True))


def growth(mix, ask, *nodes):
    return [score >> TIE_BITS for score, _ in scored(mix, ask, *nodes)]


# Values.


def test_a_free_part_below_every_request_is_all_lost():
    assert lost(Mix.of(1, [HALF]), node(499)) == [499_000]


def test_a_free_part_that_fits_once_is_lost_only_if_nobody_comes():
    # w_i(500) = w_{i-1}(500) / 12: 500000, 41666, 3472, 289, 24; a wholly free device is not wasted.
    assert lost(Mix.of(1, [HALF]), node(500), node(1000), node(500, 1000)) == [24, 0, 24]


def test_a_free_part_that_fits_twice_counts_what_is_left_after_one():
    # w_i(300): 300000, 25000, 2083, 173, 14; w_i(600) = (w_{i-1}(600) + 11 w_i(300)) / 12: 72916, 7985, 824, 81.
    assert lost(Mix.of(1, [(0, 0, 1, 300, None, 1)]), node(600)) == [81]


def test_between_two_sizes_all_that_is_over_is_lost():
    mix = Mix.of(1, [(0, 0, 1, 300, None, 1)])
    assert lost(mix, node(650), node(299)) == [81 + 50_000, 299_000]


def test_waste_weighs_requests_by_popularity():
    # p = 1/4: w_i(500) = w_{i-1}(500) * 4 / 15: 500000, 133333, 35555, 9481, 2528.
    mix = Mix.of(1, [(0, 0, 1, 500, None, 1), (0, 0, 1, 900, None, 3)])
    assert lost(mix, node(500)) == [2_528]


def test_devices_beyond_the_cpu_are_lost():
    assert lost(Mix.of(1, [WHOLE]), node(*[1000] * 8, cpu=16_000)) == [6_000_000]


def test_devices_beyond_the_memory_are_lost():
    assert lost(Mix.of(1, [WHOLE]), node(*[1000] * 8, memory=48 * GIB)) == [5_000_000]


def test_a_class_too_big_for_the_cpu_left_counts_devices_as_wasted():
    assert lost(Mix.of(1, [(8_000, 0, 1, 100, None, 1)]), node(100, cpu=7_999)) == [100_000]


def test_cpu_that_is_just_enough_is_enough():
    assert lost(Mix.of(1, [HALF]), node(500, cpu=1_000), node(500, cpu=999)) == [24, 500_000]


def test_whole_devices_that_make_no_group_are_lost():
    assert lost(Mix.of(1, [(0, 0, 4, 1000, None, 1)]), node(*[1000] * 7, 500), node(*[1000] * 3)) == [
        3_500_000,
        3_000_000,
    ]


def test_classes_are_averaged_by_weight():
    # Four at a time can use 4 devices; two with the CPU of one device each can use 1.
    mix = Mix.of(1, [(0, 0, 4, 1000, None, 3), (2_000, 0, 2, 1000, None, 1)])
    assert lost(mix, node(*[1000] * 4, cpu=1_000)) == [4_000_000 - (3 * 4_000_000 + 1_000_000) // 4]


def test_only_classes_that_accept_the_kind_count():
    mix = Mix.of(KINDS, [(0, 0, 2, 1000, (True, False), 1), (0, 0, 1, 1000, (False, True), 1)])
    assert lost(mix, node(1000, kind=0), node(1000, 1000, kind=0), node(1000, kind=1)) == [1_000_000, 0, 0]


def test_a_kind_newer_than_the_mix_counts_classes_of_any_kind():
    mix = Mix.of(KINDS, [(0, 0, 2, 1000, None, 1), (0, 0, 4, 1000, (True, False), 1)])
    assert lost(mix, node(1000, 1000, kind=0), node(1000, 1000, kind=7)) == [1_000_000, 0]


def test_failed_and_missing_devices_are_neither_free_nor_lost():
    assert lost(Mix.of(1, [HALF]), node(0, -1, 500)) == lost(Mix.of(1, [HALF]), node(500))


# Choices.


def test_a_fraction_goes_on_the_device_already_cut():
    assert scored(Mix.of(1, [HALF]), Ask(0, 0, 1, 500), node(1000, 500, 1000))[0][1] == 1


def test_a_fraction_leaves_no_remainder_that_nobody_wants():
    mix = Mix.of(1, [(0, 0, 1, 300, None, 1), (0, 0, 1, 400, None, 1)])
    tight, exact = scored(mix, Ask(0, 0, 1, 300), node(400), node(700))
    assert tight[0] > exact[0]


def test_growth_is_lost_after_less_lost_before():
    before, after = lost(Mix.of(1, [WHOLE]), node(1000, 1000, cpu=20_000), node(1000, 0, cpu=5_000))
    assert growth(Mix.of(1, [WHOLE]), Ask(15_000, 0, 1, 1000), node(1000, 1000, cpu=20_000)) == [after - before]


def test_whole_devices_are_taken_from_free_ones_only():
    # Nobody can use less than four: 3.5 devices lost before, 1.5 after.
    mix = Mix.of(1, [(0, 0, 4, 1000, None, 1)])
    assert growth(mix, Ask(0, 0, 2, 1000), node(500, 1000, 1000, 1000)) == [-2_000_000]


def test_equal_devices_fall_to_the_fullest_then_the_first():
    mix = Mix.of(1, [(0, 0, 4, 1000, None, 1)])
    assert scored(mix, Ask(0, 0, 1, 300), node(800, 400, 600, 400))[0][1] == 1


def test_a_fraction_goes_on_the_tightest_device_where_no_request_is_typical():
    third = Ask(0, 0, 1, 300, (True,))
    assert [slot for _, slot in scored(Mix.of(1, []), third, node(1000, 400, 300), node(200, 500, 500))] == [2, 1]


def test_what_is_lost_counts_before_what_is_free():
    part = Ask(0, 0, 1, 200, (True,))
    assert [slot for _, slot in scored(Mix.of(1, [HALF]), part, node(500, 700), node(700, 500))] == [1, 0]


def test_a_request_without_devices_avoids_nodes_with_devices():
    with_devices, without = scored(Mix.of(1, [WHOLE]), Ask(8_000, 0, 0, 1000), node(1000, cpu=9_000), node(kind=-1))
    assert without[0] < with_devices[0]


def test_more_thresholds_than_ranks_still_tell_small_from_big():
    mix = Mix.of(1, [(100 * i, 0, 1, 100, None, 1) for i in range(1, 2 * RANKS_MAX)])
    assert lost(mix, node(100, cpu=0)) == [100_000]
    assert lost(mix, node(100, cpu=20_000)) < lost(mix, node(100, cpu=2_000)) < [100_000]


def test_exact_ties_fall_to_the_fuller_node():
    devices = scored(Mix.of(1, []), Ask(0, 0, 1, 1000), node(1000, 1000), node(1000))
    cpus = scored(Mix.of(1, []), Ask(0, 0, 1, 1000), node(1000, cpu=9_000), node(1000, cpu=8_000))
    assert (devices[1] < devices[0], cpus[1] < cpus[0]) == (True, True)


def test_ties_tell_large_nodes_apart():
    whole = Ask(0, 0, 1, 1000, (True,))
    large, small = scored(Mix.of(1, [WHOLE]), whole, node(*[1000] * 8), node(*[1000] * 4))
    assert large[0] >> TIE_BITS == small[0] >> TIE_BITS
    assert large[0] > small[0]


def test_a_kind_not_accepted_or_not_known_to_the_request_does_not_fit():
    ask = Ask(0, 0, 1, 1000, (False, True))
    found = scored(Mix.of(KINDS, [WHOLE]), ask, *(node(1000, kind=k) for k in (0, 1, 2, -1)))
    assert [score == NO_FIT for score, _ in found] == [True, False, True, True]


def test_more_nodes_than_a_chunk_score_as_one():
    mix, ask = Mix.of(1, [HALF, WHOLE]), Ask(500, GIB, 1, 300)
    nodes = [node(1000, 400, cpu=1_000 + i) for i in range(2 * CHUNK + 3)]
    assert scored(mix, ask, *nodes) == [scored(mix, ask, n)[0] for n in nodes]


# The mix.


def test_equal_mixes_are_equal_whatever_the_order():
    one, other = Mix.of(1, [HALF, WHOLE, HALF]), Mix.of(1, [WHOLE, (*HALF[:5], 2)])
    assert (one == other, hash(one) == hash(other), len({one, other})) == (True, True, 1)


def test_a_mix_of_other_content_differs():
    assert Mix.of(1, [HALF]) != Mix.of(1, [WHOLE])


def test_classes_without_devices_or_weight_say_nothing():
    assert Mix.of(1, [(4_000, 0, 0, 1000, None, 9), (*HALF[:5], 0)]) == Mix.of(1, [])


@pytest.mark.parametrize(
    "row",
    [
        (-1, 0, 1, 500, None, 1),
        (0, 0, 1, 500, None, -1),
        (0, 0, 1, 0, None, 1),
        (0, 0, 1, 1001, None, 1),
        (0, 0, 2, 500, None, 1),
        (0, 0, 1, 500, (True, True), 1),
        (0, 0, 1, 500, None, WEIGHT_MAX + 1),
    ],
)
def test_a_class_that_cannot_be_is_refused(row):
    with pytest.raises(ValueError, match=r"negative|share_milli|kinds|weights"):
        Mix.of(1, [row])


# For every mix and node.

MASKS = st.one_of(st.none(), st.tuples(*[st.booleans()] * KINDS))
SHAPES = st.one_of(
    st.tuples(st.just(1), st.integers(1, 40).map(lambda s: 25 * s)),
    st.tuples(st.integers(0, 4), st.just(1000)),
)
CPUS, MEMORIES = st.integers(0, 20_000), st.integers(0, 64).map(lambda g: g * GIB)


@st.composite
def mixes(draw):
    rows = draw(st.lists(st.tuples(CPUS, MEMORIES, SHAPES, MASKS, st.integers(0, 100)), max_size=5))
    return Mix.of(KINDS, [(cpu, memory, *shape, mask, weight) for cpu, memory, shape, mask, weight in rows])


@st.composite
def asks(draw):
    count, share = draw(SHAPES)
    return Ask(draw(CPUS), draw(MEMORIES), count, share, draw(MASKS))


FREE = st.one_of(st.just(1000), st.integers(-1, 1000))
NODES = st.tuples(CPUS, MEMORIES, st.lists(FREE, max_size=5), st.integers(-1, KINDS))


def fits(ask, cpu, memory, free, kind):
    if cpu < ask.cpu_milli or memory < ask.memory_bytes:
        return False
    accepted = ask.count == 0 or ask.kinds is None or (0 <= kind < KINDS and ask.kinds[kind])
    return accepted and sum(f >= ask.share_milli for f in free) >= ask.count


@given(mixes(), asks(), st.lists(NODES, min_size=1, max_size=6))
def test_a_batch_scores_as_each_node_alone(mix, ask, nodes):
    assert scored(mix, ask, *nodes) == [scored(mix, ask, one)[0] for one in nodes]


@given(mixes(), asks(), st.lists(NODES, min_size=1, max_size=6), st.randoms())
def test_node_order_never_matters(mix, ask, nodes, chance):
    order = chance.sample(range(len(nodes)), len(nodes))
    found = scored(mix, ask, *nodes)
    assert scored(mix, ask, *(nodes[i] for i in order)) == [found[i] for i in order]


@given(mixes(), asks(), NODES, st.randoms())
def test_device_order_never_matters(mix, ask, one, chance):
    cpu, memory, free, kind = one
    other = (cpu, memory, chance.sample(free, len(free)), kind)
    (score, slot), (other_score, other_slot) = scored(mix, ask, one, other)
    assert score == other_score
    assert slot == other_slot == -1 or free[slot] == other[2][other_slot]


@given(mixes(), asks(), st.lists(NODES, min_size=1, max_size=6), st.data())
def test_a_kind_that_no_node_has_never_matters(mix, ask, nodes, data):
    """An index goes on knowing kinds of nodes that have left; `at` is the number of one."""
    at = data.draw(st.integers(0, KINDS))
    nodes = [(cpu, memory, free if kind >= 0 else [], kind) for cpu, memory, free, kind in nodes if kind < KINDS]
    rows = [(c.cpu_milli, c.memory_bytes, c.count, c.share_milli, c.kinds, c.weight) for c in mix.classes]
    more = [(*row[:4], (*row[4][:at], data.draw(st.booleans()), *row[4][at:]), row[5]) for row in rows]
    kinds = ask.kinds and (*ask.kinds[:at], data.draw(st.booleans()), *ask.kinds[at:])
    moved = [(*one[:3], one[3] + (one[3] >= at)) for one in nodes]
    if nodes:
        assert scored(Mix.of(KINDS + 1, more), replace(ask, kinds=kinds), *moved) == scored(mix, ask, *nodes)


@given(mixes(), asks(), NODES)
def test_no_fit_exactly_where_it_does_not_fit(mix, ask, one):
    score, slot = scored(mix, ask, one)[0]
    assert (score != NO_FIT) == fits(ask, *one)
    wants_slot = ask.count == 1 and ask.share_milli < 1000 and score != NO_FIT
    assert one[2][slot] >= ask.share_milli if wants_slot else slot == -1


@given(mixes(), NODES)
def test_lost_is_never_below_nothing_nor_above_what_is_free(mix, one):
    assert 0 <= lost(mix, one)[0] <= 1000 * sum(max(f, 0) for f in one[2])


@given(mixes(), asks(), NODES)
def test_the_score_is_the_growth_of_what_is_lost(mix, ask, one):
    score, slot = scored(mix, ask, one)[0]
    if score == NO_FIT or (ask.count and ask.share_milli == 1000):
        return
    cpu, memory, free, kind = one
    free = [f - ask.share_milli if i == slot else f for i, f in enumerate(free)]
    before, after = lost(mix, one, (cpu - ask.cpu_milli, memory - ask.memory_bytes, free, kind))
    assert score >> TIE_BITS == after - before


@given(mixes(), NODES, st.integers(0, 3))
def test_more_cpu_never_loses_more(mix, one, more):
    cpu, memory, free, kind = one
    less, richer = lost(mix, one, (cpu + 1_000 * more, memory, free, kind))
    assert richer <= less


def test_asks_are_values():
    assert replace(Ask(1, 2, 1, 500), count=1) == Ask(1, 2, 1, 500)
