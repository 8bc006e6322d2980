"""The field `schedule` of a job file. Whether its expression and its zone exist is checked where calendars are."""

from typing import Any, get_args

from penstock.core.config.fields import STRING, Field, Section, flag, time, word
from penstock.core.config.reader import Reader
from penstock.core.model.schedule_rule import DEFAULT_ZONE, CatchUp, Overlap, ScheduleRule
from penstock.core.model.secrets import NAME, NAME_EXPECTED

CRON_MAX = 200
ZONE_MAX = 100


def _cron(reader: Reader, field: str, value: Any) -> str:
    if isinstance(value, str) and value.strip() and len(value) <= CRON_MAX and value.isascii() and value.isprintable():
        return " ".join(value.split())
    reader.wrong(field, value, "a cron expression such as '30 2 * * MON-FRI', or @daily")
    return ""


def _zone(reader: Reader, field: str, value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= ZONE_MAX and value.isascii() and value.isprintable():
        return value
    reader.wrong(field, value, "a time zone such as Europe/Berlin")
    return DEFAULT_ZONE


def _name(reader: Reader, field: str, value: Any) -> str:
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    reader.wrong(field, value, NAME_EXPECTED)
    return ""


def _check(reader: Reader, rule: ScheduleRule) -> None:
    if rule.end_ms and rule.end_ms <= rule.start_ms:
        reader.wrong("end", "before the start", "a later time than start")
    if rule.catch_up == "all" and rule.overlap == "skip":
        reader.wrong("catch_up", "all", "none or last: with overlap skip no missed run could follow another")


SCHEDULE = Section(
    ScheduleRule,
    {
        "cron": Field(_cron, STRING, "five fields (`30 2 * * MON-FRI`), `@hourly`, `@daily`, `@weekly`, `@monthly`"),
        "zone": Field(_zone, STRING, "time zone of the expression"),
        "name": Field(_name, STRING, "name of the schedule (the job's)"),
        "catch_up": word("which times missed while no server ran are made up for", get_args(CatchUp)),
        "overlap": word("while a run is not over: skip the next, let it wait, or let both run", get_args(Overlap)),
        "start": time("not before", at="start_ms"),
        "end": time("not from then on", at="end_ms"),
        "paused": flag("not until it is resumed"),
    },
    _check,
)
