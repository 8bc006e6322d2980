"""Demand by the hour: what is expected, how right that was, and whether room for it has paid."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.cluster import Settings
from penstock.core.model.expected import HOUR_MS
from penstock.core.state import demand
from penstock.core.state.demand import CONTROL_EVERY, HOURS_KEPT, TIERS_MAX, TOLD_MAX, Demand, DemandImage, Tier
from penstock.core.state.state import State, fold
from penstock.testing.harness import cluster
from tests.core.expecting import AT_H, DAY_MS, MINUTE_MS, URGENT, at, come_and_go, expecting
from tests.properties import examples


def expected(w):
    return [(one.priority, one.devices, one.left, one.from_ms // HOUR_MS % 24) for one in w.state.demand.expected]


def tier(w):
    return next(one for one in w.state.demand.image().tiers if one.priority == URGENT)


def touch(w):
    """Let the log reach the present time."""
    w.cancel(w.submit(1, priority=1))


def test_what_comes_each_day_is_expected_from_the_hour_before_on():
    w = at(expecting(), AT_H - 2, 30)
    touch(w)
    assert expected(w) == []
    w.now += HOUR_MS
    touch(w)
    assert expected(w) == [(URGENT, 4, 4, AT_H)]


def test_what_has_come_is_expected_no_more():
    w = at(expecting(), AT_H, 1)
    w.submit(3, priority=URGENT)
    assert expected(w) == [(URGENT, 4, 1, AT_H)]
    w.submit(1, priority=URGENT)
    assert expected(w) == []


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"days": 11}, False),  # too few hours were told
        ({"waited_ms": 0}, False),  # no wait was to be saved
        ({"waited_ms": 40 * MINUTE_MS}, False),  # less than it would have left idle, times what it has to gain
        ({"waited_ms": 40 * MINUTE_MS, "predictive_gain_milli": 1_000}, True),
        ({"predictive_share_milli": 0}, False),
        ({"predictive_ahead_ms": 0, "waited_ms": MINUTE_MS}, True),  # comes at once, so that next to nothing is idle
    ],
)
def test_room_is_kept_only_where_it_would_have_paid(fields, kept):
    w = at(expecting(**fields), AT_H, 0)
    touch(w)
    assert bool(expected(w)) == kept


def test_forecasts_that_are_wrong_too_often_keep_no_room():
    sums = {"covered": 80, "idle_cost_ms": 80 * HOUR_MS, "without_devices": 80, "without_wait_ms": 160 * HOUR_MS}
    assert Tier("default", URGENT, told=20, right=15, **sums).pays(Settings())
    assert not Tier("default", URGENT, told=20, right=14, **sums).pays(Settings())


@pytest.mark.parametrize(
    ("reached", "amount"),
    [
        ((5, 5), 0),  # too few to say anything
        ((2, 3, 9), 2),  # 3 of 4 further ones reach the least of three
        ((2, 3, 9, 9, 9, 9), 2),  # the second of six is reached by 5 of 7 only
        ((2, 3, 9, 9, 9, 9, 9), 3),
    ],
)
def test_an_amount_is_promised_as_surely_as_a_further_hour_reaches_it(reached, amount):
    assert demand._at_least([*reached, 0], tuple(range(3, 3 + len(reached))), 750) == amount


def test_days_of_the_week_differ_where_the_days_before_say_less():
    w = cluster(2, 8, predictive_share_milli=1_000)
    for day in range(5 * 7):
        w.now = 20_000 * DAY_MS + day * DAY_MS + AT_H * HOUR_MS
        if day % 7 == 3:
            come_and_go(w, 8, 3 * HOUR_MS)
    told = []
    for _ in range(7):
        w.now = (w.now // DAY_MS + 1) * DAY_MS + AT_H * HOUR_MS
        touch(w)
        told.append(tier(w).now.devices)
    assert told == [0, 0, 0, 8, 0, 0, 0]


def test_a_part_of_the_hours_stays_without_room():
    w = expecting(after_ms=MINUTE_MS)
    kept = []
    for _ in range(2 * CONTROL_EVERY):
        at(w, AT_H)
        touch(w)
        kept.append(tier(w).now.kept)
        come_and_go(w, 4, 0 if kept[-1] else 2 * HOUR_MS)
        w.now = (w.now // DAY_MS + 1) * DAY_MS
    assert kept.count(False) == 2


def test_room_that_does_not_shorten_waits_is_kept_no_more():
    w = expecting()
    kept = []
    for _ in range(8):
        at(w, AT_H)
        touch(w)
        kept.append(tier(w).now.kept)
        come_and_go(w, 4, 2 * HOUR_MS)
        w.now = (w.now // DAY_MS + 1) * DAY_MS
    assert kept[0]
    assert not any(kept[1:])


def test_idle_room_costs_more_where_more_waits():
    quiet, crowd = expecting(days=5), expecting(days=5)
    for w in (quiet, crowd):
        for _ in range(5 * 8 if w is crowd else 0):
            w.submit(8, priority=1)
        w.now += DAY_MS
        touch(w)
    assert tier(crowd).idle_cost_ms > tier(quiet).idle_cost_ms > 0


def test_everything_is_bounded(monkeypatch):
    monkeypatch.setattr(demand, "HOURS_KEPT", 48)
    monkeypatch.setattr(demand, "TIERS_MAX", 3)
    w = cluster(1, 8)
    for number in range(20):
        w.submit(1 + number % 3, priority=number)
    assert len(w.state.demand.image().tiers) == 6
    w.now += 100 * HOUR_MS
    touch(w)
    assert all(len(one.hours) == len(one.marks) <= 48 for one in w.state.demand.image().tiers)
    assert len(w.state.demand.image().tiers) <= 4
    assert (HOURS_KEPT, TIERS_MAX) == (672, 64)


def test_old_sums_fade():
    w = expecting(days=TOLD_MAX + 20, waited_ms=0)
    assert tier(w).told < TOLD_MAX
    assert tier(w).right == tier(w).told


def test_a_state_from_its_image_goes_on_the_same():
    w = expecting()
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(w.state.image()), type=type(w.state.image()))
    other = State.from_image(image)
    assert other.demand.image() == w.state.demand.image()
    known = len(w.records)
    come_and_go(at(w, AT_H, 5), 4, 0)
    assert fold(w.records[known:], other).demand.image() == w.state.demand.image()


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 8), st.sampled_from((100, 500, 900))), max_size=40))
def test_what_is_kept_is_within_its_bounds(steps):
    w = cluster(2, 8, predictive_share_milli=400)
    for hours, devices, priority in steps:
        w.now += hours * HOUR_MS
        w.submit(devices, priority=priority)
        for one in w.state.demand.image().tiers:
            assert 0 <= one.right <= one.told
            assert one.now.devices <= 6
            assert len(one.hours) <= HOURS_KEPT
    assert Demand(w.state.demand.image()).image() == w.state.demand.image()
    assert Demand().image() == DemandImage()
