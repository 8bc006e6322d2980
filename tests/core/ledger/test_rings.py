"""Series over time: means, lowest and highest as a slow count by the moment gives them, within a bound."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger import rings as module
from penstock.core.ledger.levels import CLUSTER, Key
from penstock.core.ledger.rings import RESOLUTIONS, RingImage, Rings, grid, summed
from tests.properties import examples

HELD, STARTS, OF_TENANT = Key(CLUSTER, "devices_held"), Key(CLUSTER, "starts"), Key("vision", "devices_held")
BEGUN, MINUTE, HOUR = 1_800_000_000, 60_000, 3_600_000


def course(*changes, key=HELD, now_ms=BEGUN + HOUR):
    """Return rings that have taken a level's changes: seconds after the begin, and value."""
    made = Rings()
    for seconds, value in changes:
        made.level(key, value, BEGUN + 1_000 * seconds, now_ms)
    return made


def again(rings):
    return Rings(msgspec.msgpack.decode(msgspec.msgpack.encode(rings.image()), type=RingImage))


def test_a_level_counts_for_as_long_as_it_lasted():
    rings = course((0, 4), (5, 8), (10, 1))
    found = rings.levels(HELD, BEGUN, 10_000, 3, BEGUN + 15_000)
    assert found == ([6.0, 1.0, None], [4, 1, None], [8, 1, None])


def test_what_was_before_the_first_change_is_not_known():
    rings = course((15, 4), (25, 0))
    found = rings.levels(HELD, BEGUN, 10_000, 3, BEGUN + 30_000)
    assert found.values == [None, 4.0, 2.0]


def test_a_level_that_comes_later_was_none_before():
    rings = course((0, 1))
    rings.level(OF_TENANT, 2, BEGUN + 15_000, BEGUN + HOUR)
    found = rings.levels(OF_TENANT, BEGUN, 10_000, 3, BEGUN + 30_000)
    assert found == ([0.0, 1.0, 2.0], [0, 0, 2], [0, 2, 2])


def test_counts_are_added_up_in_each_step():
    rings = Rings()
    for seconds in (0, 5, 61, 62, 63):
        rings.count(STARTS, BEGUN + 1_000 * seconds, BEGUN + HOUR)
    assert rings.counts(STARTS, BEGUN, MINUTE, 3, BEGUN + 2 * MINUTE) == [2, 3, None]
    assert rings.counts(STARTS, BEGUN, 10_000, 7, BEGUN + 2 * MINUTE) == [2, 0, 0, 0, 0, 0, 3]


def test_what_is_older_than_a_resolution_keeps_is_in_the_coarser_one_alone():
    rings, now_ms = Rings(), BEGUN + 3 * HOUR
    rings.level(HELD, 8, BEGUN, BEGUN)
    rings.level(HELD, 0, BEGUN + HOUR, now_ms)
    assert rings.levels(HELD, BEGUN, 10_000, 1, now_ms).values == [0.0]
    assert rings.levels(HELD, BEGUN, MINUTE, 1, now_ms).values == [8.0]
    assert (rings.since_ms(10_000, now_ms), rings.since_ms(MINUTE, now_ms)) == (now_ms - HOUR * 7 // 6, BEGUN)


def test_blocks_of_tenants_have_a_bound_and_those_of_the_cluster_stay(monkeypatch):
    monkeypatch.setattr(module, "BLOCKS_MAX", 2)
    rings, now_ms = course((0, 1)), BEGUN + HOUR
    for block in range(5):
        for key in (HELD, OF_TENANT):
            rings.level(key, 1 + block, BEGUN + 600_000 * block, now_ms)
    kept = {(key.holder, number - BEGUN // 600_000) for key, number in rings._rings[0].blocks}
    assert kept == {(CLUSTER, 0), (CLUSTER, 1), (CLUSTER, 2), (CLUSTER, 3), ("vision", 2), ("vision", 3)}
    assert rings.since_ms(10_000, now_ms) == again(rings).since_ms(10_000, now_ms) == BEGUN + 1_200_000


def test_old_blocks_go():
    rings = course((0, 1), (1, 2))
    rings.level(HELD, 3, BEGUN + 200 * 24 * HOUR, BEGUN + 200 * 24 * HOUR)
    steps = [one.step_ms for one in RESOLUTIONS]
    oldest = [
        min(number for _, number in ring.blocks) * 60 * step for ring, step in zip(rings._rings, steps, strict=True)
    ]
    assert [
        (BEGUN + 200 * 24 * HOUR - at) / HOUR < 1.3 * keep for at, keep in zip(oldest, (1.2, 25, 2184), strict=True)
    ]
    assert min(oldest) > BEGUN


@pytest.mark.parametrize(
    ("ago_ms", "length_ms", "wanted_ms", "step_ms"),
    [
        (HOUR, HOUR, 0, 10_000),
        (24 * HOUR, 24 * HOUR, 0, 120_000),
        (30 * 24 * HOUR, 30 * 24 * HOUR, 0, 2_700_000),
        (30 * 24 * HOUR, HOUR, 0, 900_000),
        (HOUR, HOUR, 45_000, 50_000),
        (HOUR, HOUR, 90_000, 120_000),
        (24 * HOUR, 24 * HOUR, 2 * HOUR, 2 * HOUR),
    ],
)
def test_the_grid_is_the_finest_that_is_kept_for_the_window(ago_ms, length_ms, wanted_ms, step_ms):
    now_ms = BEGUN + 100 * 24 * HOUR + 1_234
    from_ms = now_ms - ago_ms
    begin_ms, step, points = grid(from_ms, from_ms + length_ms, wanted_ms, now_ms, 1_000)
    assert step == step_ms
    assert (begin_ms % step, begin_ms <= from_ms, points <= 1_000) == (0, True, True)
    assert begin_ms + step * points >= from_ms + length_ms > begin_ms + step * (points - 1)


def test_sums_are_not_known_where_one_is_not():
    assert summed([[1.0, None, 2.0], [1.0, 1.0, 1.0]]) == [2.0, None, 3.0]


CHANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), min_size=1, max_size=30)


@examples(60)
@given(CHANGES, st.integers(0, 30), st.sampled_from([10_000, 20_000, 60_000]))
def test_series_are_what_was_at_each_moment(changes, more, step_ms):
    at_s, seconds = 0, []
    for gap, _ in changes:
        at_s += gap
        seconds.append(at_s)
    now_s = at_s + more
    rings = course(*zip(seconds, (value for _, value in changes), strict=True), now_ms=BEGUN + 1_000 * now_s)
    moments = [0] * now_s  # the level in each second
    for at, (_, value) in zip(seconds, changes, strict=True):
        moments[at:] = [value] * (now_s - at)
    points = -(-now_s * 1_000 // step_ms)
    for each in (rings, again(rings)):
        found = each.levels(HELD, BEGUN, step_ms, points, BEGUN + 1_000 * now_s)
        for number in range(points):
            part = moments[number * step_ms // 1_000 : (number + 1) * step_ms // 1_000]
            known = part[max(0, seconds[0] - number * step_ms // 1_000) :]
            shown = tuple(each[number] for each in found)
            expected = (
                pytest.approx((sum(known) / len(known), min(known), max(known)), rel=1e-5) if known else (None,) * 3
            )
            assert shown == expected, number
