"""The calendar of bills: when months begin in a time zone. The core gets only the moments."""

import re
from datetime import date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from penstock.core.ledger.settlement import Calendar
from penstock.core.model.errors import InvalidInput, Problem, nearest

_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
YEAR_MAX = 9998
DAY_S = 86_400


def zone_problem(name: str) -> Problem | None:
    """Return the problem of an unknown time zone, or None."""
    zones = available_timezones()
    if name in zones and ("/" in name or name == "UTC"):  # other names differ between machines, or are missing
        return None
    text = f"billing.time_zone: there is no time zone '{name}'"
    return Problem("unknown_time_zone", "billing.time_zone", text, name, nearest(name, sorted(zones)))


def month_begins(zone: str, year: int, month: int) -> int:
    """Return when a month begins (unix ms)."""
    return round(datetime(year, month, 1, tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def months(zone: str, first_ms: int, until_ms: int) -> list[int]:
    """Return the begins of the months that overlap [first_ms, until_ms], that of `first_ms` included (unix ms)."""
    local = datetime.fromtimestamp(first_ms / 1000, ZoneInfo(zone))
    year, month = local.year, local.month
    found = [month_begins(zone, year, month)]
    while found[-1] <= until_ms and year < YEAR_MAX:
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        found.append(month_begins(zone, year, month))
    return [begin for begin in found if begin <= until_ms] or found[:1]


def offsets(zone: str, first_ms: int, until_ms: int) -> tuple[tuple[int, int], ...]:
    """Return the offsets of the local clock from UTC by their begin (unix ms, ms), for moments in [first_ms, until_ms].

    Two changes within one day are taken for one; no zone has had any since 1970.
    """
    place = ZoneInfo(zone)

    def ahead(second: int) -> int:
        offset = datetime.fromtimestamp(second, place).utcoffset()
        assert offset is not None, "a zone has an offset at each moment"
        return round(offset.total_seconds() * 1000)

    at_s, last_s = first_ms // 1000, until_ms // 1000 + 1
    found = [(at_s * 1000, ahead(at_s))]
    while at_s < last_s:
        following_s = min(at_s + DAY_S, last_s)
        if ahead(following_s) != found[-1][1]:
            low, high = at_s, following_s
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if ahead(middle) == found[-1][1] else (low, middle)
            found.append((high * 1000, ahead(high)))
        at_s = following_s
    return tuple(found)


def days(zone: str, first_ms: int, until_ms: int) -> list[int]:
    """Return the begins of the days that overlap [first_ms, until_ms], that of `first_ms` included (unix ms)."""
    place = ZoneInfo(zone)
    day = datetime.fromtimestamp(first_ms / 1000, place).date()
    found: list[int] = []
    while not found or found[-1] <= until_ms:
        found.append(_begin(day, place))
        day += timedelta(days=1)
    return [begin for begin in found if begin <= until_ms] or found[:1]


def _begin(day: date, place: ZoneInfo) -> int:
    return round(datetime(day.year, day.month, day.day, tzinfo=place).timestamp() * 1000)


def period_of(zone: str, period: str, now_ms: int) -> tuple[int, int]:
    """Return begin and end of the present day, week (from Monday), month or year (unix ms)."""
    place = ZoneInfo(zone)
    today = datetime.fromtimestamp(now_ms / 1000, place).date()
    match period:
        case "day":
            first, following = today, today + timedelta(days=1)
        case "week":
            first = today - timedelta(days=today.weekday())
            following = first + timedelta(days=7)
        case "month":
            first = today.replace(day=1)
            following = (first + timedelta(days=32)).replace(day=1)
        case _:
            first, following = date(today.year, 1, 1), date(today.year + 1, 1, 1)
    return _begin(first, place), _begin(following, place)


def calendar(zone: str, first_ms: int, posted_ms: int, until_ms: int) -> Calendar:
    """Return the calendar of bills: months since `first_ms`, days since `posted_ms`, up to `until_ms`."""
    begins = months(zone, first_ms, until_ms)
    following = months(zone, until_ms, until_ms + 40 * DAY_S * 1000)[1]
    since = days(zone, posted_ms, until_ms)
    return Calendar(tuple(since), (*begins, following), offsets(zone, begins[0], until_ms))


def month_named(zone: str, text: str) -> tuple[int, int]:
    """Return begin and end of a month such as `2026-11` (unix ms).

    Raises: InvalidInput when it names none.
    """
    match = _MONTH.fullmatch(text)
    year, month = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1970 <= year < YEAR_MAX and 1 <= month <= 12):
        problem = Problem("invalid_value", "month", f"month is '{text}', expected a month such as 2026-11", text)
        raise InvalidInput(problem.message, problems=(problem,))
    begin, following = month_begins(zone, year, month), (year + 1, 1) if month == 12 else (year, month + 1)
    return max(0, begin), month_begins(zone, *following)


def local_time(zone: str, time_ms: int) -> str:
    """Return a moment (unix ms) by the clock of a zone with its offset, such as `2026-11-01T00:00:00+01:00`; '' for 0.

    A moment that no calendar has is returned as its number of milliseconds.
    """
    if not time_ms:
        return ""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, ZoneInfo(zone)).replace(microsecond=time_ms % 1000 * 1000)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    shown = moment.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds")
    return shown.replace("+00:00", "Z") if zone == "UTC" else shown


class ZoneDates(NamedTuple):
    """The days and months of a time zone, as `core/ledger/posting.py` needs them."""

    zone: str

    def calendar(self, first_ms: int, posted_ms: int, until_ms: int) -> Calendar:
        return calendar(self.zone, first_ms, posted_ms, until_ms)

    def month(self, at_ms: int) -> int:
        return months(self.zone, at_ms, at_ms)[0]

    def days_before(self, count: int, now_ms: int) -> list[int]:
        return days(self.zone, max(0, now_ms - (count - 1) * DAY_S * 1000), now_ms)[::-1]

    def period(self, name: str, now_ms: int) -> tuple[int, int]:
        return period_of(self.zone, name, now_ms)
