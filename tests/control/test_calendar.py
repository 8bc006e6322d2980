"""When months begin, in a time zone, daylight saving included."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from penstock.control.calendar import month_begins, month_named, months, zone_problem
from penstock.core.errors import InvalidInput

HOUR_MS = 3_600_000


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
