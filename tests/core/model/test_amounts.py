"""Exact amounts: thousandths, points in time, and texts from which the amount can be read back."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.quantities import (
    TIME_MAX_MS,
    exact_duration,
    exact_size,
    format_milli,
    format_resource,
    format_time,
    parse_duration_ms,
    parse_milli,
    parse_part_milli,
    parse_size_bytes,
    parse_time_ms,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def refused(parse, value):
    try:
        parse(value)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    ("value", "milli"), [(0, 0), (16, 16_000), (0.25, 250), (0.29, 290), (1e3, 1_000_000), (-0.5, -500), (0.0, 0)]
)
def test_thousandths_are_exact(value, milli):
    assert parse_milli(value) == milli


@pytest.mark.parametrize("value", [0.0005, 1 / 3, float("nan"), float("inf"), True, "1", None, [1]])
def test_what_is_finer_or_no_number_is_refused(value):
    assert refused(parse_milli, value)


@pytest.mark.parametrize(
    ("value", "milli"), [(0, 0), (1, 1000), (0.15, 150), ("15%", 150), (" 12.5% ", 125), ("100%", 1000), ("0%", 0)]
)
def test_a_part_is_a_number_or_a_percentage(value, milli):
    assert parse_part_milli(value) == milli


@pytest.mark.parametrize("value", [15, 1.001, -0.1, "15", "101%", "1.25%", "²%", "%", True, None])
def test_a_part_is_never_more_than_the_whole(value):
    assert refused(parse_part_milli, value)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("1970-01-01T00:00Z", EPOCH),
        ("2026-03-01T08:00+01:00", datetime(2026, 3, 1, 7, tzinfo=UTC)),
        ("2026-03-01 08:00:30.25-0530", datetime(2026, 3, 1, 13, 30, 30, 250_000, tzinfo=UTC)),
        ("2024-02-29T23:59:59z", datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("2000-02-29T00:00:00Z", datetime(2000, 2, 29, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (1_772_352_000, datetime(2026, 3, 1, 8, tzinfo=UTC)),
        (0.5, EPOCH + timedelta(milliseconds=500)),
        (datetime(2026, 3, 1, 8, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 3, 1, 7, tzinfo=UTC)),
    ],
)
def test_a_time_is_one_moment(value, moment):
    assert parse_time_ms(value) == (moment - EPOCH) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "value",
    [
        "2026-03-01T08:00",
        "2026-03-01",
        "2026-3-1T08:00Z",
        "2026-13-01T08:00Z",
        "2026-00-01T08:00Z",
        "2026-02-29T08:00Z",
        "1900-02-29T08:00Z",
        "2026-04-31T08:00Z",
        "2026-12-32T08:00Z",
        "2026-03-00T08:00Z",
        "2026-03-01T24:00Z",
        "2026-03-01T08:60Z",
        "2026-03-01T08:00:60Z",
        "2026-03-01T08:00+24:00",
        "2026-03-01T08:00+01:60",
        "0000-03-01T08:00Z",
        "1969-12-31T23:59Z",
        "9999-12-31T23:59-01:00",
        "٢٠٢٦-03-01T08:00Z",
        "tomorrow",
        "",
        -1,
        -0.5,
        TIME_MAX_MS // 1000,
        float("nan"),
        float("inf"),
        True,
        None,
        datetime(2026, 3, 1),  # noqa: DTZ001 - as a YAML reader gives it for a time without an offset
        date(2026, 3, 1),
    ],
)
def test_what_is_no_single_moment_is_refused(value):
    assert refused(parse_time_ms, value)


@given(st.integers(0, TIME_MAX_MS - 1))
def test_a_time_can_be_read_back_and_is_the_calendars(time_ms):
    text = format_time(time_ms)
    assert parse_time_ms(text) == time_ms
    assert datetime.fromisoformat(text) == EPOCH + timedelta(milliseconds=time_ms)


@given(st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_any_time_with_an_offset_means_the_same_to_the_calendar(moment):
    offset = timedelta(minutes=moment.utcoffset() // timedelta(minutes=1))  # old zones have odd seconds
    moment = moment.replace(tzinfo=timezone(offset))
    assert parse_time_ms(moment.isoformat()) == (moment - EPOCH) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (250, "0.25"), (16_000, "16"), (1, "0.001"), (-1_500, "-1.5"), (10_010, "10.01")]
)
def test_thousandths_are_written_short(value, text):
    assert format_milli(value) == text


@given(st.integers(-(2**40), 2**40))
def test_thousandths_can_be_read_back(value):
    assert parse_milli(float(format_milli(value))) == value


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0s"), (1, "1ms"), (30_000, "30s"), (5_400_000, "1h30m"), (90_061_001, "1d1h1m1s1ms")]
)
def test_durations_are_written_in_all_their_units(value, text):
    assert exact_duration(value) == text


@given(st.integers(0, 2**53))
def test_durations_and_sizes_can_be_read_back(value):
    assert parse_duration_ms(exact_duration(value)) == value
    assert parse_size_bytes(exact_size(value)) == value


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("devices", 16_000, "16"),
        ("devices:A100", 500, "0.5"),
        ("cpus", 64_000, "64"),
        ("memory", 512 * 2**30, "512GiB"),
        ("memory", 1_000, "1000B"),
        ("memory", 0, "0"),
        ("jobs", 20, "20"),
    ],
)
def test_amounts_of_a_quota_are_written_as_in_a_cluster_file(resource, amount, text):
    assert format_resource(resource, amount) == text
