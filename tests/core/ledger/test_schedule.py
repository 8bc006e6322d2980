"""Hours of the local day, and values that change at times."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.calendar import offsets
from penstock.core.ledger.schedule import StepFunction, borders, inside
from penstock.core.model.prices import Window

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe")


def at(text):
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


windows = st.builds(
    Window,
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))),
)


def by_the_clock(window, zone, time_ms):
    """Say it of a moment as a person would, who looks at a clock and a calendar."""
    local = datetime.fromtimestamp(time_ms / 1000, ZoneInfo(zone))
    for days_ago in (0, 1):
        begun = local.date() - timedelta(days=days_ago)
        if begun.weekday() in window.days:
            minute = days_ago * 1440 + local.hour * 60 + local.minute
            until = window.until_minute + (1440 if window.until_minute <= window.from_minute else 0)
            if window.from_minute <= minute < until:
                return True
    return False


@given(
    found=st.lists(windows, min_size=1, max_size=3),
    zone=st.sampled_from(ZONES),
    begin=st.sampled_from([at("2018-02-17"), at("2018-11-03"), at("2026-03-28"), at("2026-10-24"), at("2026-04-04")]),
    minutes=st.lists(st.integers(0, 3 * 1440), min_size=1, max_size=30),
)
def test_inside_is_what_the_local_clock_says(found, zone, begin, minutes):
    known = offsets(zone, begin, begin + 3 * DAY)
    for minute in minutes:
        moment = begin + minute * MINUTE + 59_999
        assert inside(found, known, moment) == any(by_the_clock(one, zone, moment) for one in found)


@given(
    found=st.lists(windows, min_size=1, max_size=2),
    zone=st.sampled_from(ZONES),
    begin=st.sampled_from([at("2018-02-17"), at("2018-11-03"), at("2026-03-28"), at("2026-10-24")]),
)
def test_nothing_changes_between_two_borders(found, zone, begin):
    until = begin + 2 * DAY
    known = offsets(zone, begin, until)
    edges = borders(found, known, begin, until)
    assert edges == sorted({*edges})
    assert all(begin < edge < until for edge in edges)
    now = inside(found, known, begin)
    for moment in range(begin, until, MINUTE):
        if moment in edges:
            now = inside(found, known, moment)
        assert inside(found, known, moment) == now


def test_without_windows_it_is_always_and_has_no_borders():
    assert inside((), ((0, 0),), 12_345)
    assert borders((), ((0, 0), (5, HOUR)), 0, DAY) == []


def test_an_hour_that_is_left_out_never_comes():
    """At 2:00 it is 3:00 in Berlin."""
    begin = at("2026-03-28T23:00")
    known = offsets("Europe/Berlin", begin, begin + DAY)
    night = [Window(120, 180)]
    assert not any(inside(night, known, moment) for moment in range(begin, begin + DAY, MINUTE))


@pytest.mark.parametrize(("time_ms", "value"), [(-5, 1), (0, 1), (9, 1), (10, 2), (19, 2), (20, 3), (99, 3)])
def test_a_value_holds_from_its_time_on_and_the_first_before_it(time_ms, value):
    assert StepFunction([0, 10, 20], [1, 2, 3]).at(time_ms) == value


def test_changes_within_are_strictly_within():
    steps = StepFunction([0, 10, 20], [1, 2, 3])
    assert [steps.within(*span) for span in ((0, 10), (0, 11), (9, 21), (10, 20))] == [[], [10], [10, 20], []]


def test_a_change_to_the_same_is_none_and_a_later_word_counts():
    steps = StepFunction([], [])
    for time_ms, value in ((0, 1), (5, 1), (7, 2), (7, 3), (9, 4), (9, 3)):
        steps.then(time_ms, value)
    assert (steps.times, steps.values) == ([0, 7], [1, 3])
