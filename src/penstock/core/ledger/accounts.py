"""Accounts of tenants and the double-entry ledger, folded from the log.

Theory. Each money event is one journal entry: postings of (account, amount) that add up to zero, assets and expenses
positive, liabilities and income negative. A tenant has `credit:T` (advance payments and grants: a liability),
`unbilled:T` and `owed:T` (receivables: used, and invoiced). The others are `cash`, `grants` (given away), `income`,
`tax` and `expired`. Balances are sums of postings and nothing else, so all of them together are zero after each
event.

Use is paid from credit when it is posted, which happens at least daily and when a credit expires: from the credits
that are good by then, in order of expiry. Use beyond the credit waits for the invoice; later credit covers it there.
Refunds go back to the credits that paid (`core/state/credits.py`).
"""

from collections.abc import Iterable

from penstock.core.model import events as ev
from penstock.core.model.answers import JournalEntry
from penstock.core.model.events import MoneyEvent
from penstock.core.model.quantities import format_time
from penstock.core.state.accounts import Accounts, MoneyImage, moved, tenant_of


def entry_text(event: MoneyEvent) -> str:
    """Return the text of a journal entry."""
    match event:
        case ev.CreditAdded():
            return f"{'payment in advance' if event.kind == 'payment' else 'grant'} {event.reference}"
        case ev.CreditExpired():
            return f"credit {event.reference} expired"
        case ev.UsagePosted():
            return f"use up to {format_time(event.until_ms)}"
        case ev.InvoiceIssued():
            return event.invoice.number + (f" corrects {event.invoice.corrects}" if event.invoice.corrects else "")
        case ev.InvoicePaid():
            return f"payment {event.reference} for {event.number}"
        case ev.MoneyReversed():
            return f"record {event.record} reversed ({event.reference}): {event.reason}"
        case _:
            return ""


class JournalLog:
    """Folds money events into journal entries."""

    def __init__(self, image: MoneyImage | None = None, entries: Iterable[JournalEntry] = ()) -> None:
        self._accounts = Accounts(image)
        self.entries = list(entries)

    def take(self, record: ev.Record) -> None:
        event = record.event
        if isinstance(event, MoneyEvent):
            tenant = tenant_of(event)
            _, entry = moved(self._accounts.account(tenant), event, record.time_ms)
            self._accounts.apply(event, record.seq, record.time_ms)
            if entry:
                self.entries.append(JournalEntry(record.seq, record.time_ms, tenant, entry_text(event), entry))

    def image(self) -> MoneyImage:
        return self._accounts.image()
