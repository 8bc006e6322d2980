"""When months begin, in a time zone, daylight saving included."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.calendar import (
    calendar,
    days,
    local_time,
    month_begins,
    month_named,
    months,
    offsets,
    period_of,
    zone_problem,
)
from penstock.core.model.errors import InvalidInput

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def at(text):
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("zone", "year", "month", "begin"),
    [
        ("UTC", 2026, 3, "2026-03-01T00:00"),
        ("Europe/Berlin", 2026, 3, "2026-02-28T23:00"),
        ("Europe/Berlin", 2026, 4, "2026-03-31T22:00"),
        ("Asia/Shanghai", 2026, 1, "2025-12-31T16:00"),
        ("America/New_York", 2026, 11, "2026-11-01T04:00"),
        ("America/New_York", 2026, 12, "2026-12-01T05:00"),
    ],
)
def test_a_month_begins_at_local_midnight(zone, year, month, begin):
    assert month_begins(zone, year, month) == at(begin)


def test_months_of_a_zone_with_daylight_saving_are_an_hour_shorter_and_longer():
    begins = months("Europe/Berlin", at("2026-01-15T00:00"), at("2026-12-01T00:00"))
    lengths = [(b - a) // HOUR_MS for a, b in pairwise(begins)]
    assert lengths[2] == 31 * 24 - 1
    assert lengths[9] == 31 * 24 + 1
    assert len(begins) == 12


def test_the_month_of_the_first_moment_is_the_first():
    first = at("2026-02-28T23:30")
    assert months("UTC", first, first) == [at("2026-02-01T00:00")]
    assert months("Europe/Berlin", first, first) == [at("2026-02-28T23:00")]


def test_a_month_is_named_and_ends_where_the_next_begins():
    assert month_named("UTC", "2026-12") == (at("2026-12-01T00:00"), at("2027-01-01T00:00"))


@pytest.mark.parametrize("wrong", ["", "2026", "2026-13", "2026-00", "0000-01", "99999-01", "2026-1", "next"])
def test_what_is_no_month_is_said(wrong):
    with pytest.raises(InvalidInput, match="month"):
        month_named("UTC", wrong)


def test_an_unknown_zone_is_named_with_the_nearest():
    assert zone_problem("Europe/Berlin") is None
    found = zone_problem("Europe/Berln")
    assert found is not None
    assert (found.field, found.hint) == ("billing.time_zone", "did you mean 'Europe/Berlin'?")


# Days, offsets, periods: in zones whose clocks change at midnight, by half an hour, or never.

ODD_ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "America/Havana"),
    *("Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham", "Africa/Casablanca", "Asia/Gaza"),
)
moments = st.integers(at("2005-01-01T00:00"), at("2030-01-01T00:00"))


def local(zone, time_ms):
    return datetime.fromtimestamp(time_ms / 1000, ZoneInfo(zone))


def texts(begins):
    return [datetime.fromtimestamp(begin / 1000, UTC).strftime("%m-%dT%H:%M") for begin in begins]


@pytest.mark.parametrize(
    ("zone", "first", "until", "expected"),
    [
        ("UTC", "2026-02-28T12:00", "2026-03-01T12:00", ["02-28T00:00", "03-01T00:00"]),
        # The day of the 4th began at 1:00 in 2018: midnight was left out.
        ("America/Sao_Paulo", "2018-11-03T12:00", "2018-11-05T12:00", ["11-03T03:00", "11-04T03:00", "11-05T02:00"]),
        # Saturday the 17th had 25 hours: at midnight it was 23:00 again.
        ("America/Sao_Paulo", "2018-02-17T12:00", "2018-02-18T12:00", ["02-17T02:00", "02-18T03:00"]),
        ("Asia/Beirut", "2022-03-26T12:00", "2022-03-28T00:00", ["03-25T22:00", "03-26T22:00", "03-27T21:00"]),
        ("Asia/Kolkata", "2026-03-01T00:00", "2026-03-01T20:00", ["02-28T18:30", "03-01T18:30"]),
        ("Europe/Berlin", "2026-12-31T22:59", "2026-12-31T23:00", ["12-30T23:00", "12-31T23:00"]),
    ],
)
def test_days_begin_at_local_midnight_or_at_once_after_it(zone, first, until, expected):
    assert texts(days(zone, at(first), at(until))) == expected


@pytest.mark.parametrize("zone", ODD_ZONES)
@given(first=moments, length=st.integers(0, 70))
def test_days_are_the_dates_of_the_local_clock(zone, first, length):
    until = first + length * DAY_MS
    found = days(zone, first, until)
    assert found[0] <= first
    assert (found[-1] <= until, found == sorted(set(found))) == (True, True)
    dates = [local(zone, begin).date() for begin in found]
    assert dates == [dates[0] + timedelta(days=n) for n in range(len(found))]
    assert local(zone, first).date() == dates[0]
    assert local(zone, until).date() == dates[-1]
    for begin in found:
        assert local(zone, begin - 1).date() < local(zone, begin).date()


@pytest.mark.parametrize("zone", ODD_ZONES)
@given(first=moments, length=st.integers(0, 800), inside=st.lists(st.integers(0, 10**6), max_size=20))
def test_offsets_are_those_of_the_local_clock_at_any_moment(zone, first, length, inside):
    until = first + length * DAY_MS
    found = offsets(zone, first, until)
    begins = [begin for begin, _ in found]
    assert begins == sorted(set(begins))
    assert all(a[1] != b[1] for a, b in pairwise(found))
    near = [moment for begin in begins[1:] for moment in (begin - 1, begin)]
    for moment in (first, until, *near, *(first + (until - first) * n // 10**6 for n in inside)):
        offset = found[max(0, bisect_right(begins, moment) - 1)][1]
        assert timedelta(milliseconds=offset) == local(zone, moment).utcoffset()


@pytest.mark.parametrize("zone", ODD_ZONES)
@given(first=moments, length=st.integers(0, 800))
def test_months_begin_with_the_first_day_of_the_local_month_and_are_days_too(zone, first, length):
    until = first + length * DAY_MS
    found = months(zone, first, until)
    assert found[0] <= first
    assert local(zone, found[0]).strftime("%Y-%m") == local(zone, first).strftime("%Y-%m")
    assert local(zone, found[-1]).strftime("%Y-%m") == local(zone, until).strftime("%Y-%m")
    assert all(local(zone, begin).day == 1 and local(zone, begin - 1).day > 27 for begin in found)
    assert {begin for begin in found if begin >= first} <= set(days(zone, first, until))


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        ("day", "2025-12-30T23:00", "2025-12-31T23:00"),
        ("week", "2025-12-28T23:00", "2026-01-04T23:00"),
        ("month", "2025-11-30T23:00", "2025-12-31T23:00"),
        ("year", "2024-12-31T23:00", "2025-12-31T23:00"),
    ],
)
def test_a_period_is_of_the_local_calendar(period, begin, end):
    assert period_of("Europe/Berlin", period, at("2025-12-31T22:59")) == (at(begin), at(end))
    assert period_of("Europe/Berlin", period, at(begin)) == (at(begin), at(end))


@pytest.mark.parametrize("period", ["day", "week", "month", "year"])
@given(now=moments, zone=st.sampled_from(ODD_ZONES))
def test_now_is_in_its_period_and_periods_follow_each_other(period, now, zone):
    begin, end = period_of(zone, period, now)
    assert begin <= now < end
    assert period_of(zone, period, end)[0] == end
    assert period_of(zone, period, begin - 1)[1] == begin


@pytest.mark.parametrize("zone", ODD_ZONES)
@given(first=moments, idle=st.integers(0, 400), more=st.integers(0, 70))
def test_a_calendar_knows_the_month_of_each_of_its_days_and_of_now(zone, first, idle, more):
    posted = first + idle * DAY_MS
    now = posted + more * DAY_MS
    found = calendar(zone, first, posted, now)
    assert found.months[0] <= first
    assert found.months[-1] > now
    assert found.days[0] <= posted
    assert found.days[-1] <= now
    for moment in (first, now, *(day for day in found.days if day > first)):
        begin = found.month_of(moment)
        assert local(zone, begin).strftime("%Y-%m") == local(zone, moment).strftime("%Y-%m")
        assert local(zone, begin).day == 1


@pytest.mark.parametrize(
    ("zone", "time", "shown"),
    [
        ("UTC", "2026-03-01T00:00", "2026-03-01T00:00:00Z"),
        ("Europe/Berlin", "2026-02-28T23:00", "2026-03-01T00:00:00+01:00"),
        ("Europe/Berlin", "2026-06-30T22:00:01.250", "2026-07-01T00:00:01.250+02:00"),
        ("America/New_York", "2026-11-01T04:00", "2026-11-01T00:00:00-04:00"),
    ],
)
def test_moments_are_shown_by_the_clock_of_the_zone(zone, time, shown):
    assert local_time(zone, at(time)) == shown


def test_no_moment_and_one_beyond_all_calendars_are_shown_as_they_can_be():
    assert local_time("Europe/Berlin", 0) == ""
    assert local_time("Europe/Berlin", 2**60) == f"{2**60} ms"
