"""The events due for a tenant's account: postings, alerts, holds and releases.

Pure: the live server and the fault simulator call the same functions. Days and months come from `Dates`; the result
is written only if the account has not changed since (`PostAccount.changed_seq`).
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.budgets import Spending, first_day_ms, judge
from penstock.core.ledger.hours import HISTORY_HOURS, LEAST, hour_costs
from penstock.core.ledger.sessions import device_ms_between
from penstock.core.ledger.settlement import BilledUse, Calendar, bill_for, charges_for, due_events
from penstock.core.messages.money import PostAccount
from penstock.core.model.accounts import Account
from penstock.core.model.answers import Bill
from penstock.core.model.cluster import ClusterConfig, Tenant
from penstock.core.model.events import MoneyEvent
from penstock.core.model.ids import TenantName
from penstock.core.model.prices import Billing
from penstock.core.state.accounts import Accounts

SETTLED_AFTER_MS = 10_000
"""The log is complete up to this long ago: nothing is written with an older time."""
DAYS_SEEN = 30
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Dates(Protocol):
    """When days, months and other periods begin (unix ms)."""

    def calendar(self, first_ms: int, posted_ms: int, until_ms: int) -> Calendar:
        """Return months since `first_ms`, days since `posted_ms`, up to `until_ms`."""
        ...

    def month(self, at_ms: int) -> int:
        """Return when the month of a moment began."""
        ...

    def days_before(self, count: int, now_ms: int) -> Sequence[int]:
        """Return when the present day and about `count` before it began, the latest first."""
        ...

    def period(self, name: str, now_ms: int) -> tuple[int, int]:
        """Return begin and end of the present day, week, month or year."""
        ...


class TenantStanding:
    """One tenant's account and sessions at a moment, with the calendar that they are billed by."""

    def __init__(
        self,
        tenant: Tenant,
        account: Account,
        held: BilledUse,
        billing: Billing,
        dates: Dates,
        now_ms: int,
        priced_ms: int,
    ) -> None:
        self.tenant, self.account, self.held, self.billing, self.now_ms = tenant, account, held, billing, now_ms
        self._dates, self._priced_ms = dates, priced_ms
        self._spending: Spending | None = None
        self._first_ms = min((session.start_ms for session in held.sessions), default=now_ms)
        self._posted_ms = account.posted_ms or max(self._first_ms, _billed_since(billing, dates, priced_ms))
        borders = [lot.expires_ms - 1 for lot in account.lots if lot.expires_ms]  # one may be in a month that is over
        first_ms = min([self._first_ms, self._posted_ms, *borders, *(month.begin_ms for month in account.months)])
        self.calendar: Calendar = dates.calendar(max(0, first_ms), self._posted_ms, now_ms)

    def of(self, held: BilledUse) -> "TenantStanding":
        """Return the same with other sessions."""
        return TenantStanding(self.tenant, self.account, held, self.billing, self._dates, self.now_ms, self._priced_ms)

    def needed_ms(self) -> int:
        """Return since when sessions still count for a bill."""
        if self.account.months:
            return self.account.months[0].begin_ms
        return max(self.account.invoiced_ms, self._dates.month(self._posted_ms))

    def bill(self, from_ms: int, until_ms: int) -> Bill:
        return bill_for(self.tenant.name, self.held, self.billing, self.calendar, from_ms, until_ms)

    def wanted(self, settled_after_ms: int = SETTLED_AFTER_MS) -> PostAccount | None:
        """Return the posting due now, or None.

        Args:
            settled_after_ms: age from which the log is complete.
        """
        settled_ms = self.now_ms - settled_after_ms
        events: list[MoneyEvent] = due_events(
            self.account, self.tenant, self.billing, self.calendar, self.bill, settled_ms
        )
        if not events and self.calendar.days[-1] <= settled_ms:  # else the day holds what yesterday came to
            events = judge(self.account, self.tenant, self.billing, self.spending())
        return PostAccount(self.tenant.name, self.account.changed_seq, tuple(events)) if events else None

    def spending(self) -> Spending:
        """Return the tenant's use and its cost; worked out once."""
        if self._spending is None:
            self._spending = self._spent()
        return self._spending

    def _spent(self) -> Spending:
        now_ms = self.now_ms
        month_ms = self.calendar.month_of(now_ms)
        accrued = self.bill(month_ms, now_ms).total - self.account.month(month_ms).posted
        begins = tuple(self._dates.days_before(DAYS_SEEN, now_ms))
        periods = {
            budget.name: (budget.from_ms, budget.until_ms)
            if budget.period == "once"
            else self._dates.period(budget.period, now_ms)
            for budget in self.tenant.budgets
        }

        def a_day_since(begin_ms: int) -> int:
            posted = sum(day.amount for day in self.account.days if day.until_ms > begin_ms)
            span_ms = max(HOUR_MS, now_ms - max(begin_ms, min(self._first_ms, first_day_ms(self.account))))
            return (posted + accrued) * DAY_MS // span_ms

        month = self._dates.period("month", now_ms)
        used_ms = device_ms_between(self.held.sessions, month[0], now_ms) if self.tenant.device_hours_max else 0
        costs = a_day_since(begins[1]), a_day_since(begins[7])
        hour_ms, hour_cost, hours = self._hours(costs[1])
        return Spending(now_ms, accrued, *costs, begins, periods, month, used_ms, hour_ms, hour_cost, hours)

    def _hours(self, week_cost: int) -> tuple[int, int, tuple[int, ...]]:
        """Return begin and cost of the present hour, and the costs of those before it, the latest first.

        The latter are computed only where it costs enough to be unusual: twice as much as the hours of the last week on
        average (`week_cost` is a day of it).
        """
        hour_ms = self.now_ms // HOUR_MS * HOUR_MS
        cost = self.bill(hour_ms, self.now_ms).total
        count = min(HISTORY_HOURS, (hour_ms - self._first_ms) // HOUR_MS)
        if cost < LEAST or 24 * cost < 2 * week_cost or count < 1:
            return hour_ms, cost, ()
        from_ms = hour_ms - count * HOUR_MS
        charged = charges_for(self.held, self.billing, self.calendar, from_ms, hour_ms)
        return hour_ms, cost, tuple(hour_costs(charged, from_ms, count, self.billing.digits)[::-1])


def tenant_names(books: UsageLog, money: Accounts, config: ClusterConfig) -> list[TenantName]:
    """Return all tenants that have an account, have sessions in the books, or are declared."""
    return sorted({*books.tenants(), *money.of, *(tenant.name for tenant in config.tenants)})


def view_of(
    name: TenantName, held: BilledUse, money: Accounts, config: ClusterConfig, dates: Dates, now_ms: int
) -> TenantStanding:
    tenant = next((one for one in config.tenants if one.name == name), Tenant(name))
    return TenantStanding(tenant, money.account(name), held, config.billing, dates, now_ms, money.priced_ms)


def is_kept(money: Accounts, config: ClusterConfig) -> bool:
    """Return whether there are prices, limits or holds for a treasurer to look after."""
    limited = any(tenant.device_hours_max for tenant in config.tenants)
    return bool(config.billing.tariff.prices or limited or money.holds())


def forget(books: UsageLog, view: TenantStanding, dates: Dates) -> None:
    """Drop sessions that neither a bill of the tenant nor the comparison of hours needs."""
    name = view.tenant.name
    needed_ms = min(view.needed_ms(), max(0, view.now_ms - (HISTORY_HOURS + 1) * HOUR_MS))
    kept_ms = dates.month(books.reach_ms(name, needed_ms))
    books.drop(name, kept_ms, view.billing.tariff.minimum_max_ms)


def _billed_since(billing: Billing, dates: Dates, priced_ms: int) -> int:
    """Return the time from which use is posted and invoiced automatically.

    It is the month in which prices were first declared, or the earliest that one of them names: use long before
    that is on no invoice.
    """
    named = min((price.from_ms for price in billing.tariff.prices if price.from_ms), default=priced_ms)
    since_ms = min(named, priced_ms)
    return dates.month(since_ms) if since_ms else 0
