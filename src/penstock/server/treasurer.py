"""Keeps the books: folds the log as it grows, posts what is due, and says who spends too much.

What is decided is pure (`core/ledger/settlement.py`, `budgets.py`); here is only when it is asked. Worked out in a
thread, and written by the control loop if the account is still as it was; else it is worked out again.
"""

import asyncio
import logging
import threading
import time

import msgspec

from penstock.control.calendar import calendar, days, months, period_of
from penstock.core.ledger.accounts import JournalEntry, MoneyEvent
from penstock.core.ledger.bill import Bill
from penstock.core.ledger.books import Books, BooksImage
from penstock.core.ledger.budgets import BudgetView, Spending, first_day_ms, judge, left_of, view_of
from penstock.core.ledger.sessions import device_ms_between
from penstock.core.ledger.settlement import Calendar, Held, bill_for, closed_month, due_events, invoice_of
from penstock.core.lifecycle.money import MoneyDone, PostAccount
from penstock.core.lifecycle.requests import Refusal
from penstock.core.model.accounts import Account
from penstock.core.model.cluster import Tenant
from penstock.core.model.events import InvoiceIssued
from penstock.core.model.ids import TenantName
from penstock.core.model.prices import Billing
from penstock.ports import ProjectionStore
from penstock.server.backend import Backend
from penstock.server.intake import refused

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
LOOK_SHARE = 20
"""A look is followed by a pause this many times as long, so that books never keep a processor busy."""
SETTLED_AFTER_MS = 10_000
"""The log is complete up to this long ago: nothing is written with an older time."""
BATCH = 10_000
KEEP_EVERY_RECORDS = 50_000
NAME = "books"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Standing(msgspec.Struct, frozen=True):
    """What is known of a tenant's money at a moment; amounts in the currency's smallest unit."""

    account: Account
    accrued: int
    """Used since the last posting."""
    left: int
    """What it may use before its credit and credit limit are used up; only a policy for zero makes it matter."""
    day_cost: int
    month_spent: int
    budgets: list[BudgetView]


class Treasurer:
    """One for each server; reads from any thread."""

    def __init__(self, backend: Backend, store: ProjectionStore) -> None:
        self._backend, self._store = backend, store
        self._lock = threading.Lock()
        self._books: Books | None = None
        self._kept_seq = 0

    async def keep(self) -> None:
        """Run until cancelled."""
        while True:
            begun = time.monotonic()
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the top of a loop: the next look finds the same again
                log.warning("books not looked at", extra={"error": repr(error)})
            await asyncio.sleep(max(LOOK_EVERY_S, LOOK_SHARE * (time.monotonic() - begun)))

    async def look(self) -> None:
        """Post what is due by now, and say what is to be said."""
        config = self._backend.state.config
        limited = any(tenant.device_hours_max for tenant in config.tenants)
        if not config.billing.tariff.prices and not limited and not self._backend.state.money.holds():
            return
        for request in await asyncio.to_thread(self._due):
            reply = await self._backend.ask(request)
            if isinstance(reply, Refusal):
                log.error("not posted", extra={"tenant": request.tenant, "problem": reply.problems[0].message})

    def _due(self) -> list[PostAccount]:
        books = self._folded()
        state = self._backend.state
        config, now_ms = state.config, self._backend.clock.unix_ms()
        declared = {tenant.name: tenant for tenant in config.tenants}
        found = []
        with self._lock:
            names = sorted({*books.tenants(), *state.money.of, *declared})
            held = {name: books.held(name) for name in names}
        for name in names:
            tenant, account = declared.get(name, Tenant(name)), state.money.account(name)
            view = _View(tenant, account, held[name], config.billing, now_ms, state.money.priced_ms)
            events = view.due(now_ms - SETTLED_AFTER_MS)
            if not events and view.day_ms <= now_ms - SETTLED_AFTER_MS:  # else it holds what yesterday came to
                events = judge(account, tenant, config.billing, view.spending())
            if events:
                found.append(PostAccount(name, account.changed_seq, tuple(events)))
            with self._lock:
                reach_ms = books.reach_ms(name, view.needed_ms())
                kept_ms = months(config.billing.time_zone, reach_ms, reach_ms)[0]
                books.drop(name, kept_ms, config.billing.tariff.minimum_max_ms)
        return found

    def _folded(self) -> Books:
        """Return the books up to what is durable."""
        with self._lock:
            books = self._books or self._read()
            while records := self._backend.log.records(books.log.seq, BATCH):
                books.take(records)
            self._books = books
            if books.log.seq >= self._kept_seq + KEEP_EVERY_RECORDS:
                self._store.save_projection(NAME, books.log.seq, msgspec.msgpack.encode(books.image()))
                self._kept_seq = books.log.seq
            return books

    def _read(self) -> Books:
        kept = self._store.projection(NAME)
        if kept is not None:
            try:
                books = Books(msgspec.msgpack.decode(kept[1], type=BooksImage))
            except msgspec.DecodeError as error:  # of another version: it is worked out anew
                log.warning("books are folded anew", extra={"error": str(error)})
            else:
                self._kept_seq = books.log.seq
                return books
        return Books()

    # Reads; each may take a while, so they are for threads.

    def tenants(self) -> list[TenantName]:
        """Return all tenants that have an account or held anything lately, or are declared."""
        books = self._folded()
        with self._lock:
            kept = books.tenants()
        return sorted({*kept, *self._backend.state.money.of, *(t.name for t in self._backend.state.config.tenants)})

    def journal(self) -> list[JournalEntry]:
        """Return all entries of the ledger, in order."""
        books = self._folded()
        with self._lock:
            return books.journal()

    def bill(self, name: TenantName, from_ms: int, until_ms: int) -> Bill:
        """Return what a tenant owes for [from_ms, until_ms)."""
        view = self._view(name)
        if from_ms >= view.needed_ms():
            return view.bill(from_ms, until_ms)
        books = Books()  # it was invoiced, and its sessions dropped: fold the log once more
        while records := self._backend.log.records(books.log.seq, BATCH):
            books.take(records)
        return view.of(books.held(name)).bill(from_ms, until_ms)

    def standing(self, name: TenantName) -> Standing:
        """Return how a tenant's money stands now."""
        view = self._view(name)
        spending = view.spending()
        budgets = [view_of(view.account, spending, budget) for budget in view.tenant.budgets]
        from_ms, _ = period_of(view.billing.time_zone, "month", view.now_ms)
        spent = spending.accrued + view.account.month(from_ms).posted
        left = left_of(view.account, view.tenant, spending)
        return Standing(view.account, spending.accrued, left, spending.day_cost, spent, budgets)

    async def issue(self, name: TenantName) -> MoneyDone | None:
        """Issue the invoice of the tenant's first month that is over and has none; None: there is no such month."""
        view = await asyncio.to_thread(self._view, name)
        span = closed_month(view.account, view.calendar)
        if span is None:
            return None
        made = await asyncio.to_thread(view.bill, *span)
        event = InvoiceIssued(invoice_of(view.account, view.tenant, view.billing, made, view.now_ms))
        reply = await self._backend.ask(PostAccount(name, view.account.changed_seq, (event,)))
        if isinstance(reply, Refusal):
            raise refused(reply)
        assert isinstance(reply, MoneyDone)
        return reply

    def _view(self, name: TenantName) -> "_View":
        books, state = self._folded(), self._backend.state
        tenant = next((t for t in state.config.tenants if t.name == name), Tenant(name))
        with self._lock:
            held = books.held(name)
        now_ms, money = self._backend.clock.unix_ms(), state.money
        return _View(tenant, money.account(name), held, state.config.billing, now_ms, money.priced_ms)


class _View:
    """One tenant's account and sessions, with the calendar that they are billed by."""

    def __init__(
        self, tenant: Tenant, account: Account, held: Held, billing: Billing, now_ms: int, priced_ms: int
    ) -> None:
        self.tenant, self.account, self.held, self.billing, self.now_ms = tenant, account, held, billing, now_ms
        self._priced_ms = priced_ms
        self._first_ms = min((session.start_ms for session in held.sessions), default=now_ms)
        self._posted_ms = account.posted_ms or max(self._first_ms, _billed_since(billing, priced_ms))
        borders = [lot.expires_ms - 1 for lot in account.lots if lot.expires_ms]  # one may be in a month that is over
        first_ms = min([self._first_ms, self._posted_ms, *borders, *(month.begin_ms for month in account.months)])
        self.calendar: Calendar = calendar(billing.time_zone, max(0, first_ms), self._posted_ms, now_ms)

    def of(self, held: Held) -> "_View":
        """Return the same with other sessions."""
        return _View(self.tenant, self.account, held, self.billing, self.now_ms, self._priced_ms)

    @property
    def day_ms(self) -> int:
        """When the present day began."""
        return self.calendar.days[-1]

    def needed_ms(self) -> int:
        """Return since when sessions still count for a bill."""
        if self.account.months:
            return self.account.months[0].begin_ms
        return max(self.account.invoiced_ms, months(self.billing.time_zone, self._posted_ms, self._posted_ms)[0])

    def bill(self, from_ms: int, until_ms: int) -> Bill:
        return bill_for(self.tenant.name, self.held, self.billing, self.calendar, from_ms, until_ms)

    def due(self, settled_ms: int) -> list[MoneyEvent]:
        return due_events(self.account, self.tenant, self.billing, self.calendar, self.bill, settled_ms)

    def spending(self) -> Spending:
        """Return what is known of the tenant's use."""
        zone, now_ms = self.billing.time_zone, self.now_ms
        month_ms = self.calendar.month_of(now_ms)
        accrued = self.bill(month_ms, now_ms).total - self.account.month(month_ms).posted
        begins = days(zone, max(0, now_ms - 29 * DAY_MS), now_ms)[::-1]
        periods = {
            budget.name: (budget.from_ms, budget.until_ms)
            if budget.period == "once"
            else period_of(zone, budget.period, now_ms)
            for budget in self.tenant.budgets
        }

        def a_day_since(begin_ms: int) -> int:
            posted = sum(day.amount for day in self.account.days if day.until_ms > begin_ms)
            span_ms = max(HOUR_MS, now_ms - max(begin_ms, min(self._first_ms, first_day_ms(self.account))))
            return (posted + accrued) * DAY_MS // span_ms

        month = period_of(zone, "month", now_ms)
        used_ms = device_ms_between(self.held.sessions, month[0], now_ms) if self.tenant.device_hours_max else 0
        costs = a_day_since(begins[1]), a_day_since(begins[7])
        return Spending(now_ms, accrued, *costs, tuple(begins), periods, month, used_ms)


def _billed_since(billing: Billing, priced_ms: int) -> int:
    """Return from when on use is posted and invoiced by itself.

    It is the month in which prices were first declared, or the earliest that one of them names: what was used long
    before there were any is on no invoice.
    """
    named = min((price.from_ms for price in billing.tariff.prices if price.from_ms), default=priced_ms)
    since_ms = min(named, priced_ms)
    return months(billing.time_zone, since_ms, since_ms)[0] if since_ms else 0
