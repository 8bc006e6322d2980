"""Keeps the books: folds the log as it grows, posts due charges, and warns of overspent budgets.

The decisions are pure (`core/ledger/posting.py`); here is only their timing. Computed in a thread, and written by the
control loop if the account is unchanged; else computed again.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence

import msgspec

from penstock.control.calendar import ZoneDates, period_of
from penstock.core.ledger import posting as treasury
from penstock.core.ledger.books import BooksImage, UsageLog
from penstock.core.ledger.budgets import left_of, view_of
from penstock.core.ledger.settlement import closed_month, closing
from penstock.core.messages.money import MoneyDone, PostAccount
from penstock.core.messages.requests import Refusal
from penstock.core.model.accounts import Account
from penstock.core.model.answers import Bill, BudgetView, JournalEntry
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import StoreError
from penstock.core.model.events import InvoiceIssued
from penstock.core.model.ids import TenantName
from penstock.core.model.prices import Billing
from penstock.ports import ProjectionStore
from penstock.server.backend import Backend
from penstock.server.http.parsing import refused
from penstock.server.services.periodic import repeat

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
LOOK_SHARE = 20
"""A look is followed by a pause this many times as long, so that books never keep a processor busy."""
BATCH = 10_000
KEEP_EVERY_RECORDS = 50_000
PAST_KEPT = 1_000
"""Bills of former months that are kept once they were worked out from the log."""
STANDINGS_KEPT = LOOK_SHARE + 5
"""How many times as long as a look took its standings are shown: until the next look has ended, if books are large."""
STANDINGS_KEPT_MS = 600_000
NAME = "books"


class AccountStanding(msgspec.Struct, frozen=True):
    """A tenant's account at a moment; amounts in the currency's smallest unit."""

    account: Account
    accrued: int
    """Used since the last posting."""
    left: int
    """Remaining credit and credit limit; matters only with a policy for zero."""
    day_cost: int
    month_spent: int
    budgets: list[BudgetView]


class BillingService:
    """One for each server; reads from any thread."""

    def __init__(self, backend: Backend, store: ProjectionStore) -> None:
        self._backend, self._store = backend, store
        self._lock = threading.Lock()
        self._books: UsageLog | None = None
        self._kept_seq = 0
        self._past: dict[tuple[TenantName, int, int], tuple[Billing, Bill]] = {}
        self._past_lock = threading.Lock()
        self._seen: dict[TenantName, tuple[ClusterConfig, AccountStanding, int]] = {}
        """Standings with what was declared then, and when they were worked out (monotonic ms)."""
        self._seen_for_ms = 0

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "the books", LOOK_EVERY_S, LOOK_SHARE)

    async def look(self) -> None:
        """Post due charges, holds and budget warnings."""
        if not treasury.is_kept(self._backend.state.money, self._backend.state.config):
            return
        due = await asyncio.to_thread(self._due)
        for request in due:
            reply = await self._backend.ask(request)
            if isinstance(reply, Refusal):
                log.error("not posted", extra={"tenant": request.tenant, "problem": reply.problems[0].message})
        if due and self._seen_for_ms:
            await asyncio.to_thread(lambda: [self.standing(request.tenant) for request in due])

    def _due(self) -> list[PostAccount]:
        books = self._folded()
        state = self._backend.state
        config, now_ms = state.config, self._backend.clock.unix_ms()
        dates = ZoneDates(config.billing.time_zone)
        found, begun_ms = [], self._backend.clock.monotonic_ms()
        with self._lock:
            held = {name: books.held(name) for name in treasury.tenant_names(books, state.money, config)}
        for name in held:
            view = treasury.view_of(name, held[name], state.money, config, dates, now_ms)
            wanted = view.wanted()
            if wanted is not None:
                found.append(wanted)
            self._seen[name] = config, _standing(view), begun_ms
            with self._lock:
                treasury.forget(books, view, dates)
        took_ms = self._backend.clock.monotonic_ms() - begun_ms
        self._seen_for_ms = min(STANDINGS_KEPT_MS, STANDINGS_KEPT * took_ms)
        return found

    def _folded(self) -> UsageLog:
        """Return the books as of the durable log."""
        with self._lock:
            books = self._books or self._read()
            while records := self._backend.log.records(books.log.seq, BATCH):
                books.take(records)
            self._books = books
            if books.log.seq >= self._kept_seq + KEEP_EVERY_RECORDS:
                self._kept_seq = books.log.seq
                try:
                    self._store.save_projection(NAME, books.log.seq, msgspec.msgpack.encode(books.image()))
                except StoreError as error:  # it only costs time at the next start
                    log.warning("books not kept: %s", error.message)
            return books

    def _read(self) -> UsageLog:
        kept = self._store.projection(NAME)
        if kept is not None:
            try:
                books = UsageLog(msgspec.msgpack.decode(kept[1], type=BooksImage))
            except msgspec.DecodeError as error:  # of another version: it is worked out anew
                log.warning("the usage log is folded again", extra={"error": str(error)})
            else:
                self._kept_seq = books.log.seq
                return books
        return UsageLog()

    # Reads; each may take a while, so they are for threads.

    def tenants(self) -> list[TenantName]:
        """Return all tenants that have an account or held anything lately, or are declared."""
        books = self._folded()
        with self._lock:
            return treasury.tenant_names(books, self._backend.state.money, self._backend.state.config)

    def journal(self) -> list[JournalEntry]:
        """Return all entries of the ledger, in order."""
        books = self._folded()
        with self._lock:
            return books.journal()

    def bill(self, name: TenantName, from_ms: int, until_ms: int) -> Bill:
        """Return what a tenant owes for [from_ms, until_ms)."""
        return self.bills([name], from_ms, until_ms)[0]

    def bills(self, names: Sequence[TenantName], from_ms: int, until_ms: int) -> list[Bill]:
        """Return what each of the tenants owes for [from_ms, until_ms)."""
        found: dict[TenantName, Bill] = {}
        dropped: dict[TenantName, treasury.TenantStanding] = {}
        for name in names:
            view = self._view(name)
            if from_ms >= view.needed_ms():
                found[name] = view.bill(from_ms, until_ms)
            elif (invoiced := self._invoiced(name, from_ms, until_ms)) is not None:
                found[name] = invoiced
            else:
                dropped[name] = view
        if dropped:
            found |= self._past_bills(dropped, from_ms, until_ms)
        return [found[name] for name in names]

    def _invoiced(self, name: TenantName, from_ms: int, until_ms: int) -> Bill | None:
        """Return the bill of a period's invoice, or None."""
        for head in self._backend.state.money.invoices.copy().values():
            if not head.corrects and (head.tenant, head.from_ms, head.until_ms) == (name, from_ms, until_ms):
                for record in self._backend.log.records(head.seq - 1, 1):
                    assert isinstance(record.event, InvoiceIssued)
                    made = record.event.invoice
                    return Bill(name, made.currency, made.digits, from_ms, until_ms, made.lines, made.net)
        return None

    def _past_bills(
        self, views: dict[TenantName, treasury.TenantStanding], from_ms: int, until_ms: int
    ) -> dict[TenantName, Bill]:
        """Return bills of a period without an invoice whose usage intervals were dropped: folded from the log
        once, then kept."""
        with self._past_lock:
            kept = {name: self._past.get((name, from_ms, until_ms)) for name in views}
            found = {name: one[1] for name, one in kept.items() if one and one[0] == views[name].billing}
            if len(found) < len(views):
                books = UsageLog()
                while records := self._backend.log.records(books.log.seq, BATCH):
                    books.take(records)
                for name in views.keys() - found.keys():
                    view = views[name]
                    found[name] = view.of(books.held(name)).bill(from_ms, until_ms)
                    self._past[name, from_ms, until_ms] = view.billing, found[name]
                self._past = dict([*self._past.items()][-PAST_KEPT:])
            return found

    def standing(self, name: TenantName) -> AccountStanding:
        """Return a tenant's present standing; where books are large, that of the last look at the same account."""
        state, now_ms = self._backend.state, self._backend.clock.monotonic_ms()
        known = self._seen.get(name)
        if known is not None and now_ms < known[2] + self._seen_for_ms:
            config, standing, _ = known
            if config is state.config and standing.account.changed_seq == state.money.account(name).changed_seq:
                return standing
        standing = _standing(self._view(name))
        self._seen[name] = state.config, standing, now_ms
        return standing

    async def issue(self, name: TenantName) -> MoneyDone | None:
        """Issue the invoice of the tenant's first month that is over and has none; None: there is no such month."""
        view = await asyncio.to_thread(self._view, name)
        span = closed_month(view.account, view.calendar)
        if span is None:
            return None
        made = await asyncio.to_thread(view.bill, *span)
        event = closing(view.account, view.tenant, view.billing, made, view.now_ms)
        reply = await self._backend.ask(PostAccount(name, view.account.changed_seq, (event,)))
        if isinstance(reply, Refusal):
            raise refused(reply)
        assert isinstance(reply, MoneyDone)
        return reply

    def _view(self, name: TenantName) -> treasury.TenantStanding:
        books, state = self._folded(), self._backend.state
        with self._lock:
            held = books.held(name)
        config = state.config
        dates = ZoneDates(config.billing.time_zone)
        return treasury.view_of(name, held, state.money, config, dates, self._backend.clock.unix_ms())


def _standing(view: treasury.TenantStanding) -> AccountStanding:
    spending = view.spending()
    budgets = [view_of(view.account, spending, budget) for budget in view.tenant.budgets]
    from_ms, _ = period_of(view.billing.time_zone, "month", view.now_ms)
    spent = spending.accrued + view.account.month(from_ms).posted
    left = left_of(view.account, view.tenant, spending)
    return AccountStanding(view.account, spending.accrued, left, spending.day_cost, spent, budgets)
