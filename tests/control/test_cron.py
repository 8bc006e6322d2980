"""When cron expressions are due, also where clocks change; and which expressions there are."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.cron import ALIASES, CronTimes, problems_of
from penstock.core.model.schedule_rule import ScheduleRule

TIMES = CronTimes()
BERLIN = "Europe/Berlin"


def unix_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def coming(cron: str, after: str, count: int, zone: str = BERLIN, **fields: int) -> list[str]:
    """Return the next times as month, day, hour, minute and offset of the zone's clock."""
    rule, at, found = ScheduleRule(cron, zone, **fields), unix_ms(after), []
    while len(found) < count and (at := TIMES.following(rule, at)):
        found.append(datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).strftime("%m-%dT%H:%M%z"))
    return found


def test_a_time_that_does_not_exist_is_due_right_after_the_gap():
    assert coming("30 2 * * *", "2026-03-28T12:00+01:00", 2) == ["03-29T03:00+0200", "03-30T02:30+0200"]
    assert coming("15,45 2 * * *", "2026-03-28T12:00+01:00", 2) == ["03-29T03:00+0200", "03-30T02:15+0200"]


def test_a_time_that_exists_twice_is_due_once():
    assert coming("30 2 * * *", "2026-10-24T12:00+02:00", 2) == ["10-25T02:30+0200", "10-26T02:30+0100"]
    assert coming("30 2 * * *", "2026-10-25T02:10+01:00", 1) == ["10-26T02:30+0100"]


def test_what_is_due_each_hour_goes_by_elapsed_time():
    assert coming("0 * * * *", "2026-03-29T00:30+01:00", 2) == ["03-29T01:00+0100", "03-29T03:00+0200"]
    twice = ["10-25T02:00+0200", "10-25T02:00+0100", "10-25T03:00+0100"]
    assert coming("0 * * * *", "2026-10-25T01:30+02:00", 3) == twice


def test_names_and_aliases_are_known():
    assert coming("0 9 * JAN mon-fri", "2026-01-02T10:00+01:00", 2) == ["01-05T09:00+0100", "01-06T09:00+0100"]
    assert coming("@daily", "2026-01-02T10:00+01:00", 1) == ["01-03T00:00+0100"]
    assert [problems_of(ScheduleRule(alias)) for alias in ALIASES] == [[]] * len(ALIASES)


def test_start_and_end_bound_what_is_due():
    start, end = unix_ms("2026-01-05T00:00+01:00"), unix_ms("2026-01-07T09:00+01:00")
    bounds = {"start_ms": start, "end_ms": end}
    assert coming("0 9 * * *", "2026-01-01T00:00+01:00", 9, **bounds) == ["01-05T09:00+0100", "01-06T09:00+0100"]
    rule = ScheduleRule("0 9 * * *", BERLIN, **bounds)
    assert len(TIMES.passed(rule, 0, unix_ms("2026-02-01T00:00+01:00"), 100)) == 2


@given(
    st.sampled_from(["30 2 * * *", "0 * * * *", "*/30 2 * * *", "15,45 2 * * SUN", "0 0 1 * *", "*/7 1-3 * * *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]),
    st.integers(0, 400),
    st.integers(0, 48 * 60),
)
def test_times_that_passed_are_those_that_were_to_come(cron, zone, day, minutes):
    rule = ScheduleRule(cron, zone)
    begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    at, until = round(begin.timestamp() * 1000), round((begin + timedelta(minutes=minutes)).timestamp() * 1000)
    forward, moment = [], at - 1
    while (moment := TIMES.following(rule, moment)) and moment <= until:
        forward.append(moment)
    assert TIMES.passed(rule, at, until, 100) == tuple(forward[-100:])


@pytest.mark.parametrize(
    ("cron", "hint"),
    [
        ("0 3 * *", "it has 4 fields"),
        ("0 0 3 * * *", "it has 6 fields"),
        ("61 3 * * *", ""),
        ("0 3 * * FUN", ""),
        ("0 0 31 2 *", ""),
        ("@dayly", "did you mean '@daily'?"),
        ("@reboot", "there is no @reboot: servers come and go"),
    ],
)
def test_a_bad_expression_is_named_with_what_was_expected(cron, hint):
    (problem,) = problems_of(ScheduleRule(cron))
    assert (problem.field, problem.value, problem.hint) == ("schedule.cron", cron, hint)
    assert "five fields" in problem.message


@given(st.text(alphabet="0123456789*/,-#LW@ MONJAN", max_size=30))
def test_no_text_breaks_the_reader(text):
    rule = ScheduleRule(text)
    if problems_of(rule) == []:
        TIMES.following(rule, 0)


def test_an_unknown_zone_is_named_with_the_nearest():
    (problem,) = problems_of(ScheduleRule("@daily", "Europe/Berln"))
    assert (problem.code, problem.hint) == ("unknown_time_zone", "did you mean 'Europe/Berlin'?")
    assert TIMES.following(ScheduleRule("@daily", "Europe/Berln"), 0) == 0


def test_no_time_is_beyond_the_calendar():
    assert TIMES.following(ScheduleRule("@daily"), 2**60) == 0
    assert TIMES.passed(ScheduleRule("@daily"), 0, 2**60, 5) == ()
