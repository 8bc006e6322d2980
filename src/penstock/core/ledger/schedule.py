"""Step functions of time, and hours of the local day: a calendar comes into the core as offsets.

Each moment is tested against a window by the local clock; so the hour that a change to daylight saving time repeats or
leaves out needs no rule: it counts as often as it occurs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.model.prices import Window

DAY_MS = 86_400_000
MINUTE_MS = 60_000
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday."""

Zone = Sequence[tuple[int, int]]
"""Offsets of the local clock from UTC (ms) by begin (unix ms, ascending); the first holds before, too."""
UTC: Zone = ((0, 0),)


class StepFunction(NamedTuple):
    """A value that changes at times, ascending; the first holds before them, too."""

    times: list[int]
    values: list[int]

    def at(self, time_ms: int) -> int:
        return self.values[max(0, bisect_right(self.times, time_ms) - 1)]

    def within(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the changes inside (start_ms, end_ms)."""
        return self.times[bisect_right(self.times, start_ms) : bisect_left(self.times, end_ms)]

    def then(self, time_ms: int, value: int) -> None:
        """Append a change to `value`, no earlier than the last one."""
        if self.times and self.times[-1] == time_ms:
            self.times.pop()
            self.values.pop()
        if not self.values or self.values[-1] != value:
            self.times.append(time_ms)
            self.values.append(value)


def inside(windows: Sequence[Window], zone: Zone, time_ms: int) -> bool:
    """Return whether a moment is in one of the windows; always, where there are none."""
    if not windows:
        return True
    day, rest = divmod(time_ms + _offset(zone, time_ms), DAY_MS)
    minute, weekday = rest // MINUTE_MS, (day + _EPOCH_WEEKDAY) % 7
    return any(_open(window, weekday, minute) for window in windows)


def _open(window: Window, weekday: int, minute: int) -> bool:
    if window.from_minute < window.until_minute:
        return weekday in window.days and window.from_minute <= minute < window.until_minute
    since_yesterday = (weekday - 1) % 7 in window.days and minute < window.until_minute
    return since_yesterday or (weekday in window.days and minute >= window.from_minute)


def _offset(zone: Zone, time_ms: int) -> int:
    return zone[max(0, bisect_right(zone, time_ms, key=lambda entry: entry[0]) - 1)][1]


def borders(windows: Iterable[Window], zone: Zone, from_ms: int, until_ms: int) -> list[int]:
    """Return the moments in (from_ms, until_ms) at which being inside may change, and possibly some more."""
    minutes = sorted({m for w in windows for m in (w.from_minute, w.until_minute)})
    found = {begin for begin, _ in zone} if minutes else set()
    for at, (begin_ms, offset) in enumerate(zone):
        first_ms = from_ms if at == 0 else max(from_ms, begin_ms)
        last_ms = min(until_ms, zone[at + 1][0]) if at + 1 < len(zone) else until_ms
        for day in range((first_ms + offset) // DAY_MS, (last_ms + offset) // DAY_MS + 1):
            found.update(day * DAY_MS + minute * MINUTE_MS - offset for minute in minutes)
    return sorted(moment for moment in found if from_ms < moment < until_ms)
