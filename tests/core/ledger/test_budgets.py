"""Budgets and balances: what is said when, and who is held and released."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.ledger.budgets import Spending, judge, left_of, view_of
from penstock.core.model.accounts import Account, Hold, Lot, Month, Noted, Spent
from penstock.core.model.cluster import Tenant
from penstock.core.model.events import SpendingNoted, TenantHeld, TenantReleased
from penstock.core.model.prices import Billing, Budget, Price, Tariff
from penstock.core.state.accounts import moved

HOUR, DAY = 3_600_000, 86_400_000
TODAY = 100 * DAY
BILLING = Billing(Tariff((Price("device", 1),)))


def spending(accrued=0, *, now_ms=TODAY + 6 * HOUR, day_cost=0, week_cost=0, **periods):
    begins = tuple(TODAY - n * DAY for n in range(30))
    return Spending(
        now_ms, accrued, day_cost, week_cost, begins, periods or {"month": (TODAY - 9 * DAY, TODAY + 21 * DAY)}
    )


def account(*days, **fields):
    """Return an account whose last postings, one a day, ended with the begin of today."""
    spent = tuple(Spent(TODAY - (len(days) - 1 - n) * DAY, amount) for n, amount in enumerate(days))
    return Account("t", days=spent, **fields)


def judged(of, tenant, found, billing=BILLING):
    """Return what is said, and the account after it."""
    events = judge(of, tenant, billing, found)
    for event in events:
        of, _ = moved(of, event, found.now_ms)
    return events, of


def noted(events, kind):
    return [(one.name, one.percent) for one in events if isinstance(one, SpendingNoted) and one.kind == kind]


MONTH = Budget("month", 1_000)
TENANT = Tenant("t", budgets=(MONTH,))


# Budgets.


@pytest.mark.parametrize(
    ("spent", "said"),
    [(0, None), (799, None), (800, 80), (949, 80), (950, 95), (999, 95), (1_000, 100), (50_000, 100)],
)
def test_an_alert_comes_with_its_exact_percentage(spent, said):
    events, _ = judged(account(300), TENANT, spending(spent - 300))
    assert noted(events, "budget") == ([("month", said)] if said else [])


def test_each_percentage_is_said_once_a_period():
    of = account(100)
    said = []
    for accrued in (0, 700, 700, 750, 849, 850, 860, 900, 900, 5_000):
        events, of = judged(of, TENANT, spending(accrued))
        said += noted(events, "budget")
    assert said == [("month", 80), ("month", 95), ("month", 100)]
    following = spending(900, now_ms=TODAY + 30 * DAY, month=(TODAY + 21 * DAY, TODAY + 51 * DAY))
    assert noted(judged(of, TENANT, following)[0], "budget") == [("month", 80)]


def test_what_was_spent_before_the_period_does_not_count():
    of = account(500, 300, 200)  # the day before yesterday, yesterday, and up to today
    found = spending(7, month=(TODAY - DAY, TODAY + DAY))
    assert view_of(of, found, MONTH).spent == 200 + 7


@pytest.mark.parametrize("now_ms", [TODAY - HOUR, TODAY + 2 * DAY])
def test_a_budget_that_has_not_begun_or_is_over_has_nothing_spent(now_ms):
    once = Budget("once", 100, "once", TODAY, TODAY + 2 * DAY, hard=True)
    events, _ = judged(
        account(500), Tenant("t", budgets=(once,)), spending(500, now_ms=now_ms, once=(TODAY, TODAY + 2 * DAY))
    )
    assert events == []


def test_a_forecast_is_what_was_spent_and_the_rest_at_the_lower_and_the_higher_cost():
    found = spending(40, day_cost=100, week_cost=30, now_ms=TODAY + 12 * HOUR, month=(TODAY - DAY, TODAY + 10 * DAY))
    view = view_of(account(160), found, MONTH)
    assert (view.spent, view.forecast_low, view.forecast_high) == (200, 200 + 30 * 19 // 2, 200 + 100 * 19 // 2)
    events, _ = judged(account(900), TENANT, replace(found, accrued=900))
    assert "at this rate it ends at 20.85 to 27.50" in events[0].text


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 30 * DAY - 1))
def test_a_forecast_is_never_below_what_is_spent_and_ends_there(accrued, day, week, now):
    end_ms = TODAY + 30 * DAY
    found = spending(accrued, day_cost=day, week_cost=week, now_ms=TODAY + now, month=(TODAY, end_ms))
    view = view_of(account(5), found, MONTH)
    assert view.spent == accrued
    assert view.spent <= view.forecast_low <= view.forecast_high
    if now == 30 * DAY - 1:
        assert view.forecast_high - view.spent <= max(day, week) // DAY + 1


# Holds.


def test_a_hard_budget_holds_from_its_last_unit_and_releases_with_the_next_period():
    tenant = Tenant("t", budgets=(replace(MONTH, hard=True),))
    events, of = judged(account(), tenant, spending(999))
    assert of.hold is None
    events, of = judged(of, tenant, spending(1_000))
    assert [(type(e), e.reason, e.suspend) for e in events if isinstance(e, TenantHeld)] == [
        (TenantHeld, "budget:month", False)
    ]
    assert judged(of, tenant, spending(1_100))[0] == []
    following = spending(0, now_ms=TODAY + 21 * DAY, month=(TODAY + 21 * DAY, TODAY + 51 * DAY))
    events, of = judged(of, tenant, following)
    assert (events, of.hold) == ([TenantReleased("t")], None)


def test_a_soft_budget_holds_nobody():
    assert judged(account(), TENANT, spending(10**9))[1].hold is None


def test_a_budget_that_is_raised_releases():
    held = account(hold=Hold("budget:month", "spent"))
    tenant = Tenant("t", budgets=(Budget("month", 5_000, hard=True),))
    assert judged(held, tenant, spending(1_500))[0] == [TenantReleased("t")]


@pytest.mark.parametrize(
    ("policy", "holds", "suspends", "warns"),
    [
        ("nothing", False, False, False),
        ("warn", False, False, True),
        ("stop_starts", True, False, True),
        ("suspend", True, True, True),
    ],
)
def test_what_happens_at_zero_is_a_policy_of_the_cluster_or_of_the_tenant(policy, holds, suspends, warns):
    of = account(lots=(Lot("r", 100, "payment"),), added=100, references=("r",))
    for tenant, billing in ((Tenant("t"), replace(BILLING, at_zero=policy)), (Tenant("t", at_zero=policy), BILLING)):
        assert judged(of, tenant, spending(79), billing)[0] == []
        events, after = judged(of, tenant, spending(100), billing)
        assert (after.hold is not None) == holds
        assert (after.hold.suspend if after.hold else False) == suspends
        assert noted(events, "balance") == ([("r", 100)] if warns else [])


def test_a_warning_comes_once_when_less_than_a_fifth_is_left_and_once_when_nothing_is():
    of = account(lots=(Lot("r", 100, "payment"),), added=100, references=("r",))
    tenant, said = Tenant("t", at_zero="warn"), []
    for accrued in (0, 80, 81, 85, 99, 100, 120):
        events, of = judged(of, tenant, spending(accrued))
        said += [(accrued, percent) for _, percent in noted(events, "balance")]
    assert said == [(81, 80), (100, 100)]


def test_who_never_paid_in_advance_is_warned_once_they_used_beyond_their_limit():
    """Nothing is said to those that have used nothing: most tenants pay their invoices afterwards."""
    tenant = Tenant("t", credit_limit=100, at_zero="warn")
    assert judged(account(), tenant, spending(0))[0] == []
    assert judged(account(), Tenant("t", at_zero="warn"), spending(0))[0] == []
    assert noted(judged(account(), tenant, spending(81))[0], "balance") == [("", 80)]
    assert noted(judged(account(), tenant, spending(100))[0], "balance") == [("", 100)]


def test_a_credit_limit_is_what_may_be_used_beyond_the_credit():
    tenant = Tenant("t", credit_limit=50, at_zero="stop_starts")
    of = account(lots=(Lot("r", 10, "payment"),), months=(Month(0, 20),), open=(("INV-1", 30),))
    assert left_of(of, tenant, spending(5)) == 10 - 20 - 30 - 5 + 50
    assert judged(of, tenant, spending(9))[1].hold is None
    assert judged(of, tenant, spending(10))[1].hold is not None


def test_what_has_expired_is_not_left_though_the_ledger_has_it_still():
    of = account(lots=(Lot("r", 100, "grant", TODAY),))
    assert left_of(of, Tenant("t"), spending(0)) == 0
    assert left_of(of, Tenant("t"), spending(0, now_ms=TODAY - 1)) == 100


def test_a_top_up_releases_at_once():
    tenant = Tenant("t", at_zero="suspend")
    _, of = judged(account(months=(Month(0, 100),)), tenant, spending(5))
    assert of.hold is not None
    events, after = judged(replace(of, lots=(Lot("r", 105, "payment"),)), tenant, spending(5))
    assert after.hold is not None
    events, after = judged(
        replace(of, lots=(Lot("r", 106, "payment"),), references=("r",), added=1), tenant, spending(5)
    )
    assert after.hold is None
    assert TenantReleased("t") in events


def test_a_hold_becomes_a_suspension_when_the_policy_does():
    held = account(hold=Hold("balance", "none left"))
    events, after = judged(held, Tenant("t", at_zero="suspend"), spending(5))
    assert [one.suspend for one in events if isinstance(one, TenantHeld)] == [True]
    assert judged(after, Tenant("t", at_zero="suspend"), spending(6))[0] == []


def test_the_balance_counts_before_a_budget():
    tenant = Tenant("t", budgets=(replace(MONTH, hard=True),), at_zero="stop_starts")
    _, of = judged(account(), tenant, spending(2_000))
    assert of.hold.reason == "balance"
    _, of = judged(replace(of, lots=(Lot("r", 9_000, "payment"),)), tenant, spending(2_000))
    assert of.hold.reason == "budget:month"


def test_a_hold_says_how_much_and_until_when():
    tenant = Tenant("t", at_zero="stop_starts", credit_limit=500)
    events, _ = judged(account(), tenant, spending(1_234))
    assert "its balance is -12.34 EUR, -5.00 are allowed" in events[-1].text


# Unusual days.


def unusual(days, today, now_ms=TODAY + 6 * HOUR):
    return noted(judged(account(*days), Tenant("t"), spending(today, now_ms=now_ms))[0], "unusual")


def test_a_tenfold_day_is_unusual_and_said_once():
    assert unusual([100] * 10, 1_000) == [("day", 1_000)]
    _events, of = judged(account(*[100] * 10), Tenant("t"), spending(1_000))
    assert judged(of, Tenant("t"), spending(2_000))[0] == []


@pytest.mark.parametrize(("count", "said"), [(0, False), (1, False), (6, False), (7, True), (28, True)])
def test_nothing_is_unusual_before_a_week_is_known(count, said):
    assert bool(unusual([100] * count, 10_000)) == said


def test_what_costs_twice_as_much_is_unusual_only_where_days_are_alike():
    assert unusual([100] * 10, 200) == [("day", 200)]
    assert unusual([100] * 10, 199) == []
    assert unusual([60, 140, 90, 110, 70, 130, 100, 95], 250) == []


def test_one_unusual_day_does_not_hide_the_next():
    days = [95, 105, 100, 98] * 7
    days[3] = 100_000
    assert unusual(days, 1_000) == [("day", 1_000)]


def test_who_works_on_some_days_only_is_not_unusual_on_them():
    weekly = [900 if n % 7 == 2 else 0 for n in range(28)]
    assert unusual(weekly, 900) == []
    assert unusual(weekly, 9_000) != []


def test_ordinary_noise_is_hardly_ever_unusual_and_a_tenfold_day_always():
    rng, false_alarms, missed = random.Random(5), 0, 0
    for _ in range(2_000):
        days = [round(1_000 * rng.lognormvariate(0, 0.4)) for _ in range(28)]
        false_alarms += bool(unusual(days, round(1_000 * rng.lognormvariate(0, 0.4))))
        missed += not unusual(days, 10_000)
    assert (false_alarms <= 10, missed) == (True, 0)


def test_days_over_four_weeks_ago_are_forgotten():
    assert unusual([10_000] * 60 + [100] * 28, 1_000) == [("day", 1_000)]


def test_today_is_compared_with_what_was_used_today_only():
    assert unusual([100] * 9 + [5_000], 100) == []


# Unusual hours.


def unusual_hour(hours, cost, *, noted=(), now_ms=TODAY + 6 * HOUR):
    found = replace(spending(now_ms=now_ms), hour_ms=now_ms, hour_cost=cost, hours=tuple(hours))
    events = judge(Account("t", noted=noted), Tenant("t"), BILLING, found)
    return [one for one in events if isinstance(one, SpendingNoted)]


def weeks(*, office=1_000, night=0, count=672):
    """Return what hours cost for who works from eight to twenty; the present hour is six in the morning."""
    return [office if 8 <= (6 - 1 - back) % 24 < 20 else night for back in range(count)]


def test_an_hour_that_costs_far_more_is_told_with_what_is_usual():
    (said,) = unusual_hour([100] * 100, 1_000)
    assert (said.kind, said.name, said.period_ms, said.percent) == ("unusual", "hour", TODAY + 6 * HOUR, 1_000)
    assert said.text.endswith("usual are 1.00 an hour")
    assert "has used 10.00 EUR in the hour since 1970-04-11T06:00:00Z" in said.text


def test_it_is_told_once_a_day():
    first = Noted("unusual", "hour", TODAY, 100)
    assert unusual_hour([100] * 100, 1_000, noted=(first,)) == []
    assert unusual_hour([100] * 100, 1_000, noted=(replace(first, period_ms=TODAY - HOUR),)) != []
    assert unusual_hour([100] * 100, 1_000, noted=(replace(first, name="day"),)) != []


@pytest.mark.parametrize(
    ("usual", "cost", "said"), [(0, 499, False), (0, 500, True), (100, 599, False), (100, 600, True)]
)
def test_pennies_are_not_told(usual, cost, said):
    assert bool(unusual_hour([usual] * 100, cost)) == said


@pytest.mark.parametrize(("cost", "said"), [(19_999, False), (20_000, True)])
def test_it_costs_twice_the_usual_at_least(cost, said):
    assert bool(unusual_hour([10_000] * 100, cost)) == said


@pytest.mark.parametrize(("count", "said"), [(71, False), (72, True)])
def test_no_hour_is_unusual_before_three_days_are_known(count, said):
    assert bool(unusual_hour([100] * count, 10_000)) == said


def test_hours_are_compared_with_the_same_of_the_week():
    at_night = weeks()
    assert "usual are 0.00 at about this hour of the week" in unusual_hour(at_night, 1_000)[0].text
    by_day = at_night[12:] + at_night[:12]  # the same tenant at six in the evening
    assert unusual_hour(by_day, 1_000) == []
    assert unusual_hour(weeks(count=400), 1_000) == []  # two weeks: six hours alike are too few, and by all it is usual
    assert unusual_hour(weeks(count=504), 1_000) != []


def test_hours_that_vary_are_not_unusual():
    rng = random.Random(3)
    hours = [round(rng.lognormvariate(7, 0.5)) for _ in range(100)]
    assert unusual_hour(hours, max(hours)) == []
    assert unusual_hour(hours, 20 * max(hours)) != []
