"""A tenant's spending against its plan: budgets, forecast, unusual days, and holds.

A forecast is a range: the spending in the period so far, and its rest at the cost per day since yesterday began and at
that of the last week, the lower and the higher of the two. A day is unusual when it costs more than the tenant's own
days by a robust z-score of 6 (median and median absolute deviation of the last four weeks; Iglewicz and Hoaglin 1993)
and at least twice the median: a bound that is hardly ever exceeded by chance. Hours are judged alike (`hours.py`).
"""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median_high

import msgspec

from penstock.core.ledger.hours import LEAST, unusual, usual_hour
from penstock.core.ledger.settlement import good
from penstock.core.model.accounts import Account, Hold, Noted, SpendingKind
from penstock.core.model.answers import BudgetView
from penstock.core.model.cluster import Tenant
from penstock.core.model.events import MoneyEvent, SpendingNoted, TenantHeld, TenantReleased
from penstock.core.model.prices import AtZero, Billing, Budget
from penstock.core.model.quantities import format_time, money

HISTORY_DAYS = 28
HISTORY_MIN_DAYS = 7
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LOW_PERCENT = 20
"""Parts of the credit, as of its last addition, at which a warning is given."""


class Spending(msgspec.Struct, frozen=True):
    """A tenant's use and its cost at a moment; money in the smallest unit, times in unix ms."""

    now_ms: int
    accrued: int
    """Used since the last posting."""
    day_cost: int
    """Cost per day since yesterday began."""
    week_cost: int
    """Cost per day in the last week."""
    day_begins: tuple[int, ...]
    """When the present day and those before it began, the latest first."""
    periods: Mapping[str, tuple[int, int]]
    """Begin and end of the present period of each budget."""
    month: tuple[int, int] = (0, 0)
    """Begin and end of the present month."""
    month_device_ms: int = 0
    """Device-milliseconds held in it."""
    hour_ms: int = 0
    """When the present hour began."""
    hour_cost: int = 0
    """Used in it so far."""
    hours: tuple[int, ...] = ()
    """Costs of the hours before it, the latest first; none where the present one cannot be unusual anyway."""


def spent_since(account: Account, spending: Spending, from_ms: int) -> int:
    """Return the cost of the use since the begin of a day."""
    return sum(day.amount for day in account.days if day.until_ms > from_ms) + spending.accrued


def view_of(account: Account, spending: Spending, budget: Budget) -> BudgetView:
    """Return a budget's present spending, and its forecast at the present rate."""
    from_ms, until_ms = spending.periods[budget.name]
    spent = spent_since(account, spending, from_ms) if from_ms <= spending.now_ms < until_ms else 0
    left_ms = max(0, until_ms - max(spending.now_ms, from_ms))
    low, high = sorted(spent + cost * left_ms // DAY_MS for cost in (spending.day_cost, spending.week_cost))
    return BudgetView(budget.name, budget.amount, from_ms, until_ms, spent, low, high, budget.hard)


def judge(account: Account, tenant: Tenant, billing: Billing, spending: Spending) -> list[MoneyEvent]:
    """Return the alerts due about a tenant's spending, and the event that holds or releases the tenant."""
    found: list[MoneyEvent] = []
    views = [view_of(account, spending, budget) for budget in tenant.budgets]
    for budget, view in zip(tenant.budgets, views, strict=True):
        found += _budget_alert(account, budget, view, billing)
    found += _hours_alert(account, tenant, spending)
    found += _balance_alert(account, tenant, billing, spending)
    found += _unusual(account, billing, spending)
    found += _unusual_hour(account, billing, spending)
    hold = _hold(account, tenant, billing, spending, views)
    if hold is not None and (account.hold is None or _differs(account.hold, hold)):
        found.append(hold)
    elif hold is None and account.hold is not None:
        found.append(TenantReleased(account.tenant))
    return found


def _differs(before: Hold, now: TenantHeld) -> bool:
    return (before.reason, before.suspend) != (now.reason, now.suspend)


def _hold(
    account: Account, tenant: Tenant, billing: Billing, spending: Spending, views: list[BudgetView]
) -> TenantHeld | None:
    policy = policy_of(tenant, billing)
    left = left_of(account, tenant, spending)
    digits = billing.digits
    if policy in ("stop_starts", "suspend") and left <= 0:
        balance = money(left - tenant.credit_limit, digits)
        text = f"tenant {account.tenant} has no credit left: its balance is {balance} {billing.currency}"
        if tenant.credit_limit:
            text += f", {money(-tenant.credit_limit, digits)} are allowed"
        return TenantHeld(account.tenant, "balance", text, policy == "suspend")
    for view in views:
        if view.hard and view.spent >= view.amount and view.from_ms <= spending.now_ms < view.until_ms:
            text = f"budget {view.name} of tenant {account.tenant} is spent: {money(view.spent, digits)} of"
            text += f" {money(view.amount, digits)} {billing.currency}, until {format_time(view.until_ms)}"
            return TenantHeld(account.tenant, f"budget:{view.name}", text)
    if tenant.device_hours_max and spending.month_device_ms >= tenant.device_hours_max * HOUR_MS:
        text = f"{_hours_text(tenant, spending)}, until {format_time(spending.month[1])}"
        return TenantHeld(account.tenant, "device_hours", text)
    return None


def _hours_text(tenant: Tenant, spending: Spending) -> str:
    used = spending.month_device_ms // HOUR_MS
    return f"tenant {tenant.name} has used {used:,} of {tenant.device_hours_max:,} device-hours of this month"


def _hours_alert(account: Account, tenant: Tenant, spending: Spending) -> list[MoneyEvent]:
    if not tenant.device_hours_max:
        return []
    percent = spending.month_device_ms * 100 // (tenant.device_hours_max * HOUR_MS)
    reached = max((level for level in tenant.alerts if level <= percent), default=0)
    if not reached or _said(account, "quota", "device_hours", spending.month[0]) >= reached:
        return []
    text = f"{_hours_text(tenant, spending)} ({percent} %)"
    return [SpendingNoted(account.tenant, "quota", "device_hours", spending.month[0], reached, text)]


def policy_of(tenant: Tenant, billing: Billing) -> AtZero:
    """Return the policy for a tenant whose credit is used up."""
    return billing.at_zero if tenant.at_zero is None else tenant.at_zero


def left_of(account: Account, tenant: Tenant, spending: Spending) -> int:
    """Return how much the tenant may use before its credit and its credit limit are used up."""
    expired = sum(lot.left for lot in account.lots) - good(account.lots, spending.now_ms)
    return account.balance - expired - spending.accrued + tenant.credit_limit


def _budget_alert(account: Account, budget: Budget, view: BudgetView, billing: Billing) -> list[MoneyEvent]:
    """Return an alert for the highest percentage that was reached, once a period."""
    percent = view.spent * 100 // view.amount
    reached = max((level for level in budget.alerts if level <= percent), default=0)
    if not reached or _said(account, "budget", budget.name, view.from_ms) >= reached:
        return []
    forecast = f"{money(view.forecast_low, billing.digits)} to {money(view.forecast_high, billing.digits)}"
    text = f"budget {budget.name} of tenant {account.tenant}: {money(view.spent, billing.digits)} of"
    text += f" {money(view.amount, billing.digits)} {billing.currency} are spent ({percent} %); at this rate it ends at"
    return [SpendingNoted(account.tenant, "budget", budget.name, view.from_ms, reached, f"{text} {forecast}")]


def _said(account: Account, kind: SpendingKind, name: str, period_ms: int) -> int:
    def about(noted: Noted) -> bool:
        return (noted.kind, noted.name, noted.period_ms) == (kind, name, period_ms)

    return max((noted.percent for noted in account.noted if about(noted)), default=0)


def _balance_alert(account: Account, tenant: Tenant, billing: Billing, spending: Spending) -> list[MoneyEvent]:
    """Return one alert for each credit when little of it is left, and one when none is."""
    left, credit = left_of(account, tenant, spending), next(reversed(account.references), "")
    unused = not account.references and left >= tenant.credit_limit
    if policy_of(tenant, billing) == "nothing" or unused:
        return []
    whole = left_whole(account, tenant)
    percent = 100 if left <= 0 else 100 - LOW_PERCENT if left * 100 < whole * LOW_PERCENT else 0
    if not percent or _said(account, "balance", credit, 0) >= percent:
        return []
    text = f"tenant {account.tenant} may use {money(max(0, left), billing.digits)} {billing.currency} more"
    return [SpendingNoted(account.tenant, "balance", credit, 0, percent, text)]


def left_whole(account: Account, tenant: Tenant) -> int:
    """Return the credit as of its last addition, with the credit limit: the whole of `LOW_PERCENT`."""
    return account.added + tenant.credit_limit


def _unusual(account: Account, billing: Billing, spending: Spending) -> list[MoneyEvent]:
    today_ms = spending.day_begins[0]
    if _said(account, "unusual", "day", today_ms):
        return []
    begins = [begin for begin in spending.day_begins[: HISTORY_DAYS + 1] if begin >= first_day_ms(account)]
    past = [_between(account, begin, end) for end, begin in pairwise(begins)]
    if len(past) < HISTORY_MIN_DAYS:
        return []
    today, usual = spent_since(account, spending, today_ms), median_high(past)
    if not unusual(today, past):
        return []
    text = f"tenant {account.tenant} has used {money(today, billing.digits)} {billing.currency} today, usual are"
    text += f" {money(usual, billing.digits)} a day"
    percent = today * 100 // usual if usual else 1000
    return [SpendingNoted(account.tenant, "unusual", "day", today_ms, percent, text)]


def _unusual_hour(account: Account, billing: Billing, spending: Spending) -> list[MoneyEvent]:
    """Return an alert when the present hour costs far more than usual, once a day."""
    said = [n.period_ms for n in account.noted if (n.kind, n.name) == ("unusual", "hour")]
    compared = usual_hour(spending.hours)
    if compared is None or any(period_ms >= spending.day_begins[0] for period_ms in said):
        return []
    past, words = compared
    cost, usual = spending.hour_cost, median_high(past)
    if cost - usual < LEAST or not unusual(cost, past):
        return []
    text = f"tenant {account.tenant} has used {money(cost, billing.digits)} {billing.currency} in the hour since"
    text += f" {format_time(spending.hour_ms)}, usual are {money(usual, billing.digits)} {words}"
    percent = cost * 100 // usual if usual else 1000
    return [SpendingNoted(account.tenant, "unusual", "hour", spending.hour_ms, percent, text)]


def _between(account: Account, from_ms: int, until_ms: int) -> int:
    return sum(day.amount for day in account.days if from_ms < day.until_ms <= until_ms)


def first_day_ms(account: Account) -> int:
    """Return since when the days of the account record its use."""
    return account.days[0].until_ms - DAY_MS if account.days else 2**62
