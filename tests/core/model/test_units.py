"""Sizes, durations and rates as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.quantities import (
    format_duration,
    format_size,
    parse_duration_ms,
    parse_rate_bps,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "value_bytes"),
    [
        ("64GB", 64 * 10**9),
        ("40GiB", 40 * 2**30),
        ("40G", 40 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        (" 7 kb ", 7_000),
        ("0.1KiB", 102),
        ("12", 12),
        ("3b", 3),
        ("2T", 2**41),
        (5, 5),
    ],
)
def test_sizes_are_read_as_written(text, value_bytes):
    assert parse_size_bytes(text) == value_bytes


@pytest.mark.parametrize("text", ["", "G", "1.G", ".5G", "1e3", "-1", "1 G B", "10 parsecs", "١G", "1,5G", "nan"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        parse_size_bytes(text)


@pytest.mark.parametrize("parse", [parse_size_bytes, parse_rate_bps])
def test_what_is_no_number_is_refused_as_a_value(parse):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        parse(float("nan"))


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1h 30min", 5_400_000),
        ("2d", 172_800_000),
        ("01:30:00", 5_400_000),
        ("12:30", 750_000),
        ("250ms", 250),
        ("0.5h", 1_800_000),
        ("90", 90_000),
        ("1.5", 1_500),
        (2, 2_000),
        (0.25, 250),
        (" 5 M ", 300_000),
    ],
)
def test_durations_are_read_as_written(text, value_ms):
    assert parse_duration_ms(text) == value_ms


@pytest.mark.parametrize("text", ["", "h", "1h30", "1x", "1:2", "1h-5m", "-5s", "5 5", "1h!", "s5"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["١h", "1h٢m"])
def test_digits_of_other_scripts_are_not_read_as_less_than_they_say(text):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        parse_duration_ms(text)


def test_a_hostile_duration_is_refused_in_reasonable_time():
    # With two ways to read each gap this would take 2^60 steps: the test would never end.
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        parse_duration_ms("1h " * 60 + "!")


@pytest.mark.parametrize(("text", "value_bps"), [("10Gbps", 10**10), ("100 Mbps", 10**8), ("5bps", 5), (7, 7)])
def test_rates_are_read_as_written(text, value_bps):
    assert parse_rate_bps(text) == value_bps


@pytest.mark.parametrize("text", ["10", "10GB", ""])
def test_a_rate_needs_its_unit(text):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        parse_rate_bps(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (40 * 2**30, "40 GiB"),
        (3 * 2**39, "1.5 TiB"),
        (2**53, "8192 TiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(value, text):
    assert format_size(value) == text


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [
        (0, "0.0s"),
        (1_540, "1.5s"),
        (10_000, "10s"),
        (200_000, "3m 20s"),
        (5_400_000, "1h 30m"),
        (90_000_000, "1d 1h"),
    ],
)
def test_durations_are_shown_in_two_units_at_most(value_ms, text):
    assert format_duration(value_ms) == text


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "min", "h", "d"]), st.booleans())
def test_units_of_durations_scale_exactly(count, unit, upper):
    scale = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    assert parse_duration_ms(f"{count}{unit.upper() if upper else unit}") == count * scale


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_clock_times_count_hours_minutes_seconds(hours, minutes, seconds):
    assert parse_duration_ms(f"{hours}:{minutes:02}:{seconds:02}") == 1000 * (hours * 3600 + minutes * 60 + seconds)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_size_bytes, parse_duration_ms, parse_rate_bps):
        try:
            assert parse(text) >= 0
        except ValueError:
            continue


@given(st.lists(st.sampled_from(["1", "9.5", "h", "m", "s", " ", ":", "00", "."]), max_size=12).map("".join))
def test_any_near_miss_of_a_duration_is_read_or_refused(text):
    try:
        assert parse_duration_ms(text) >= 0
    except ValueError:
        return
