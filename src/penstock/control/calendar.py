"""When months begin, in a time zone: the calendar that bills go by. The core is only told the moments."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from penstock.core.errors import InvalidInput, Problem, nearest

_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
YEAR_MAX = 9998


def zone_problem(name: str) -> Problem | None:
    """Return what is wrong with the name of a time zone, or None."""
    zones = available_timezones()
    if name in zones and ("/" in name or name == "UTC"):  # the others mean another zone on another machine, or none
        return None
    text = f"billing.time_zone: there is no time zone '{name}'"
    return Problem("unknown_time_zone", "billing.time_zone", text, name, nearest(name, sorted(zones)))


def month_begins(zone: str, year: int, month: int) -> int:
    """Return when a month begins (unix ms)."""
    return round(datetime(year, month, 1, tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def months(zone: str, first_ms: int, until_ms: int) -> list[int]:
    """Return when the months begin that meet [first_ms, until_ms], the one of `first_ms` included (unix ms)."""
    local = datetime.fromtimestamp(first_ms / 1000, ZoneInfo(zone))
    year, month = local.year, local.month
    found = [month_begins(zone, year, month)]
    while found[-1] <= until_ms and year < YEAR_MAX:
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        found.append(month_begins(zone, year, month))
    return [begin for begin in found if begin <= until_ms] or found[:1]


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
