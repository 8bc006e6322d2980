"""When cron expressions are due, by the clocks of time zones. The core gets only the moments.

The rules are those of cron on Debian, which `cronsim` follows. Where the clock goes forward, a fixed time that does not
exist is due right after the gap; where it goes back, a fixed time that exists twice is due the first time alone.
Expressions whose hour or minute begins with `*` go by elapsed time: through both hours, and not in the gap.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from penstock.core.model.errors import Problem, nearest
from penstock.core.model.schedule_rule import ScheduleRule

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = 5
EXPECTED = "five fields: minute, hour, day of month, month, day of week, such as '30 2 * * MON-FRI'; or @daily"
LAST_MS = 253_370_764_800_000
"""The year 9999: calendars end there."""
MOMENTS_MAX = 1_000


def problems_of(rule: ScheduleRule) -> list[Problem]:
    """Return what is wrong with the expression and the zone of a rule."""
    found = []
    try:
        CronSim(_fields(rule.cron), datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        text = f"schedule.cron is '{rule.cron}' ({str(error).lower()}), expected {EXPECTED}"
        found.append(Problem("bad_value", "schedule.cron", text, rule.cron, _hint(rule.cron)))
    zones = _zones()
    if rule.zone not in zones:
        text = f"schedule.zone is '{rule.zone}', and there is no such time zone"
        hint = nearest(rule.zone, sorted(zones)) or "a name such as Europe/Berlin, or UTC"
        found.append(Problem("unknown_time_zone", "schedule.zone", text, rule.zone, hint))
    return found


def _hint(text: str) -> str:
    if text.startswith("@"):
        return "there is no @reboot: servers come and go" if text == "@reboot" else nearest(text, ALIASES)
    return "" if len(text.split()) == FIELDS else f"it has {len(text.split())} fields"


def _fields(text: str) -> str:
    """Return the five fields of an expression. Raises: CronSimError when there is another number of them."""
    fields = ALIASES.get(text.lower(), text)
    if len(fields.split()) != FIELDS:
        raise CronSimError("wrong number of fields")
    return fields


@lru_cache(1)
def _zones() -> frozenset[str]:
    names = available_timezones()
    return frozenset(name for name in names if "/" in name or name == "UTC")  # other names differ between machines


class CronTimes:
    """The times of rules that have no problems; of a rule that has one by now, none."""

    def following(self, rule: ScheduleRule, after_ms: int) -> int:
        """Return the first time after `after_ms` (unix ms); 0: never."""
        found = next(_moments(rule, max(after_ms, rule.start_ms - 1)), 0)
        return 0 if rule.end_ms and found >= rule.end_ms else found

    def passed(self, rule: ScheduleRule, since_ms: int, until_ms: int, most: int) -> tuple[int, ...]:
        """Return the times in [since_ms, until_ms] (unix ms), ascending, of more than `most` the latest."""
        since_ms = max(since_ms, rule.start_ms)
        until_ms = min(until_ms, rule.end_ms - 1) if rule.end_ms else until_ms
        found = []
        for moment_ms in islice(_moments(rule, until_ms + 1, reverse=True), most):
            if moment_ms < since_ms:
                break
            found.append(moment_ms)
        return tuple(reversed(found))


def _moments(rule: ScheduleRule, from_ms: int, *, reverse: bool = False) -> Iterator[int]:
    """Yield the times after `from_ms`, or before it from the latest on; each once."""
    if not 0 <= from_ms < LAST_MS:
        return
    try:
        zone = ZoneInfo(rule.zone)
        at = datetime.fromtimestamp(from_ms / 1000, zone)
        last = 0
        for moment in CronSim(_fields(rule.cron), at, reverse):
            moment_ms = round(moment.timestamp()) * 1000
            beyond = moment_ms >= from_ms if reverse else moment_ms <= from_ms
            if beyond or moment_ms == last:  # times that do not exist may fall on one that does
                continue
            last = moment_ms
            yield moment_ms
    except (CronSimError, ValueError, OverflowError, KeyError, OSError):
        return
