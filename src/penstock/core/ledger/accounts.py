"""Accounts of tenants and the double-entry ledger, folded from the log.

Theory. Each event that is about money is one journal entry: postings of (account, amount) that add up to zero, assets
and expenses positive, liabilities and income negative. A tenant has `credit:T` (what it paid in advance or was
granted: a liability), `unbilled:T` and `owed:T` (receivables: used, and invoiced). The others are `cash`, `grants`
(what was given away), `income`, `tax` and `expired`. Balances are sums of postings and nothing else, so all of them
together are zero after each event.

Use is paid from credit when it is posted, which happens at least daily and when a credit expires: the credits that are
good by then, those that expire first first. What credit did not cover waits for the invoice; credit that came since
then covers it there.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.amounts import format_time
from penstock.core.errors import BrokenInvariant
from penstock.core.model import events as ev
from penstock.core.model.accounts import (
    DAYS_KEPT,
    REFERENCES_KEPT,
    Account,
    Hold,
    InvoiceHead,
    Lot,
    Month,
    Noted,
    Spent,
)
from penstock.core.model.ids import TenantName
from penstock.core.model.invoices import Invoice

MoneyEvent = (
    ev.CreditAdded
    | ev.CreditExpired
    | ev.UsagePosted
    | ev.InvoiceIssued
    | ev.InvoicePaid
    | ev.TenantHeld
    | ev.TenantReleased
    | ev.SpendingNoted
)
NOTED_KEPT = 500


class Posting(NamedTuple):
    """One line of a journal entry; positive: debit, negative: credit."""

    account: str
    amount: int


Entry = tuple[Posting, ...]


class MoneyImage(msgspec.Struct, frozen=True, omit_defaults=True):
    accounts: tuple[Account, ...] = ()
    ledger: tuple[tuple[str, int], ...] = ()
    invoices: tuple[InvoiceHead, ...] = ()
    priced_ms: int = 0


class Accounts:
    """A fold; what it holds is frozen. `moved` is the pure step of one account, `apply` that of all."""

    def __init__(self, image: MoneyImage | None = None) -> None:
        image = image or MoneyImage()
        self.of: dict[TenantName, Account] = {account.tenant: account for account in image.accounts}
        self.ledger: dict[str, int] = dict(image.ledger)
        """Balance of each ledger account."""
        self.priced_ms = image.priced_ms
        """When prices were first declared; 0: never."""
        self.invoices: dict[str, InvoiceHead] = {head.number: head for head in image.invoices}
        """In the order in which they were issued."""
        self._held: dict[TenantName, Hold] = {t: account.hold for t, account in self.of.items() if account.hold}

    def holds(self) -> Mapping[TenantName, Hold]:
        """Return the tenants of which nothing starts, and why; never changed after it was given out."""
        return self._held

    def image(self) -> MoneyImage:
        return MoneyImage(
            tuple(self.of.values()), tuple(self.ledger.items()), tuple(self.invoices.values()), self.priced_ms
        )

    def account(self, tenant: TenantName) -> Account:
        return self.of.get(tenant) or Account(tenant)

    def apply(self, event: MoneyEvent, seq: int, time_ms: int) -> None:
        """Move over one event.

        Raises: BrokenInvariant when it takes more than there is, or a number is not the next.
        """
        tenant = tenant_of(event)
        account, entry = moved(self.account(tenant), event, time_ms)
        for name, amount in entry:
            self.ledger[name] = self.ledger.get(name, 0) + amount
        self.of[tenant] = replace(account, changed_seq=seq)
        if isinstance(event, ev.InvoiceIssued):
            self._issued(event.invoice, seq)
        elif isinstance(event, ev.InvoicePaid):
            head = self.invoices[event.number]
            self.invoices[event.number] = replace(head, paid=head.paid + event.amount)
        elif isinstance(event, ev.TenantHeld | ev.TenantReleased):
            self._held = {t: one.hold for t, one in self.of.items() if one.hold}

    def _issued(self, issued: Invoice, seq: int) -> None:
        if issued.number in self.invoices:
            raise BrokenInvariant(f"{issued.number} was issued before")
        self.invoices[issued.number] = InvoiceHead(
            issued.number,
            issued.kind,
            issued.tenant,
            issued.issued_ms,
            issued.from_ms,
            issued.until_ms,
            issued.total,
            issued.due,
            seq,
            issued.corrects,
        )
        if issued.corrects:
            head = self.invoices[issued.corrects]
            so_far = {"corrected": head.corrected - issued.total, "corrected_net": head.corrected_net - issued.net}
            self.invoices[head.number] = replace(head, **so_far)

    def next_number(self, kind: str, prefix: str) -> str:
        """Return the next number of invoices or credit notes: counted, never taken from a clock."""
        return f"{prefix}{sum(head.kind == kind for head in self.invoices.values()) + 1:06d}"


def tenant_of(event: MoneyEvent) -> TenantName:
    return event.invoice.tenant if isinstance(event, ev.InvoiceIssued) else event.tenant


def moved(account: Account, event: MoneyEvent, time_ms: int) -> tuple[Account, Entry]:
    """Return the account after an event, and the journal entry of it (empty where no money moved).

    Raises: BrokenInvariant when the event cannot follow.
    """
    match event:
        case ev.CreditAdded():
            return _credited(account, event, time_ms)
        case ev.CreditExpired():
            return _expired(account, event)
        case ev.UsagePosted():
            return _posted(account, event)
        case ev.InvoiceIssued():
            return _invoiced(account, event.invoice)
        case ev.InvoicePaid():
            paid = _with(_owing(account, event.number, -event.amount), event.reference, event.amount)
            return paid, (Posting("cash", event.amount), Posting(f"owed:{account.tenant}", -event.amount))
        case ev.TenantHeld():
            return replace(account, hold=Hold(event.reason, event.text, event.suspend, time_ms)), ()
        case ev.TenantReleased():
            return replace(account, hold=None), ()
        case ev.SpendingNoted():
            noted = Noted(event.kind, event.name, event.period_ms, event.percent)
            return replace(account, noted=(*account.noted, noted)[-NOTED_KEPT:]), ()


def _with(account: Account, reference: str, amount: int) -> Account:
    """Return the account that knows the reference of a credit or payment."""
    if reference in account.references:
        raise BrokenInvariant(f"{account.tenant}: '{reference}' came before")
    references, amounts = (*account.references, reference), (*account.amounts, amount)
    return replace(account, references=references[-REFERENCES_KEPT:], amounts=amounts[-REFERENCES_KEPT:])


def _owing(account: Account, number: str, more: int) -> Account:
    """Return the account with so much more owed on an invoice."""
    left = account.open_on(number) + more
    if left < 0:
        raise BrokenInvariant(f"{account.tenant}: {number} is paid beyond what is owed on it")
    others = tuple(entry for entry in account.open if entry[0] != number)
    return replace(account, open=(*others, (number, left)) if left else others)


def _credited(account: Account, event: ev.CreditAdded, time_ms: int) -> tuple[Account, Entry]:
    lot = Lot(event.reference, event.amount, event.kind, event.expires_ms, time_ms)
    source = "cash" if event.kind == "payment" else "grants"
    credited = _with(replace(account, lots=_sorted((*account.lots, lot))), event.reference, event.amount)
    credited = replace(credited, added=credited.credit)
    return credited, (Posting(source, event.amount), Posting(f"credit:{account.tenant}", -event.amount))


def _sorted(lots: tuple[Lot, ...]) -> tuple[Lot, ...]:
    return tuple(sorted(lots, key=lambda lot: lot.expires_ms or 2**62))


def _expired(account: Account, event: ev.CreditExpired) -> tuple[Account, Entry]:
    expiring = (at for at, lot in enumerate(account.lots) if lot.expires_ms and lot.reference == event.reference)
    found = next((at for at in expiring if account.lots[at].left == event.amount), None)
    if found is None:  # others of the same name may be there: what an invoice gives back is named after it
        raise BrokenInvariant(f"{account.tenant}: '{event.reference}' does not hold {event.amount}")
    lots = account.lots[:found] + account.lots[found + 1 :]
    entry = Posting(f"credit:{account.tenant}", event.amount), Posting("expired", -event.amount)
    return replace(account, lots=lots), entry


def _posted(account: Account, event: ev.UsagePosted) -> tuple[Account, Entry]:
    if event.until_ms <= account.posted_ms or event.month_ms < account.invoiced_ms:
        raise BrokenInvariant(f"{account.tenant}: use up to {event.until_ms} is posted already")
    lots, paid = spend(account.lots, max(0, event.amount), event.until_ms)
    names = f"credit:{account.tenant}", f"unbilled:{account.tenant}"
    entry = Posting(names[0], paid), Posting(names[1], event.amount - paid), Posting("income", -event.amount)
    month = account.month(event.month_ms)
    month = replace(month, posted=month.posted + event.amount, from_credit=month.from_credit + paid)
    before = (one for one in account.months if one.begin_ms < event.month_ms and (one.posted or one.from_credit))
    changed = replace(
        account,
        lots=lots,
        months=(*before, month),
        posted_ms=event.until_ms,
        days=(*account.days, Spent(event.until_ms, event.amount))[-DAYS_KEPT:],
    )
    return changed, _moving(entry)


def spend(lots: tuple[Lot, ...], amount: int, at_ms: int) -> tuple[tuple[Lot, ...], int]:
    """Return what is left of credits after paying `amount` from those that are good at `at_ms`, and what they paid.

    One that expires at that very moment is still good for what was used before; one that came later is not.
    """
    kept, paid = [], 0
    for lot in lots:
        good = lot.added_ms <= at_ms and (not lot.expires_ms or lot.expires_ms >= at_ms)
        take = min(lot.left, amount - paid) if good else 0
        paid += take
        if lot.left > take or lot.expires_ms:  # what has a time leaves with it, by an event
            kept.append(replace(lot, left=lot.left - take) if take else lot)
    return tuple(kept), paid


def settled(account: Account, month: Month, until_ms: int) -> tuple[tuple[Lot, ...], int]:
    """Return what the invoice of a month leaves of the credits, and how much of it they pay at last."""
    return spend(account.lots, max(0, month.posted - month.from_credit), until_ms)


def _invoiced(account: Account, issued: Invoice) -> tuple[Account, Entry]:
    if issued.kind == "credit_note":
        return _corrected(account, issued)
    month, tenant = account.month(issued.from_ms), account.tenant
    lots, paid = settled(account, month, issued.until_ms)
    open_before = month.posted - month.from_credit
    if issued.net != month.posted or issued.due != open_before - paid + issued.tax:
        raise BrokenInvariant(f"{issued.number} says {issued.net}, due {issued.due}; posted were {month.posted}")
    earlier = [one for one in account.months if one.begin_ms < month.begin_ms and (one.posted or one.from_credit)]
    if earlier or month not in account.months or issued.until_ms > account.posted_ms:
        raise BrokenInvariant(f"{issued.number}: months are invoiced in order, and once")
    back = max(0, -issued.due)
    if back:
        lots = (*lots, Lot(issued.number, back, "payment", added_ms=issued.until_ms))
    entry = [Posting(f"credit:{tenant}", paid - back), Posting(f"unbilled:{tenant}", -open_before)]
    entry += [Posting(f"owed:{tenant}", issued.due + back), Posting("tax", -issued.tax)]
    changed = replace(
        account,
        lots=lots,
        months=tuple(one for one in account.months if one.begin_ms > month.begin_ms),
        invoiced_ms=issued.until_ms,
    )
    return _owing(changed, issued.number, issued.due + back), _moving(tuple(entry))


def _corrected(account: Account, note: Invoice) -> tuple[Account, Entry]:
    """What a credit note gives back is taken off what is owed on its invoice first; the rest is credit."""
    back = -note.total
    off = min(back, account.open_on(note.corrects))
    entry = [Posting("income", -note.net), Posting("tax", -note.tax), Posting(f"owed:{account.tenant}", -off)]
    lots = account.lots
    if back > off:
        entry.append(Posting(f"credit:{account.tenant}", off - back))
        lots = _sorted((*lots, Lot(note.number, back - off, "payment", added_ms=note.issued_ms)))
    return _owing(replace(account, lots=lots), note.corrects, -off), _moving(tuple(entry))


def _moving(entry: Entry) -> Entry:
    return tuple(posting for posting in entry if posting.amount)


class JournalEntry(msgspec.Struct, frozen=True):
    """One entry of the ledger: its postings add up to zero."""

    seq: int
    """Of the record in the log."""
    time_ms: int
    tenant: TenantName
    text: str
    postings: Entry


def entry_text(event: MoneyEvent) -> str:
    """Return what an entry is about."""
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
