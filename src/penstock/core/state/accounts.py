"""The accounts of tenants: a fold over the events about money, in double entry."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.accounts import (
    DAYS_KEPT,
    REFERENCES_KEPT,
    SETTLED_KEPT,
    Account,
    CreditPart,
    Entry,
    Hold,
    InvoiceHead,
    Noted,
    Posting,
    Settled,
    Spent,
)
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import MoneyEvent
from penstock.core.model.ids import TenantName
from penstock.core.model.invoices import Invoice
from penstock.core.state.credits import added, at_close, given_back, settled_by, spend, summed, taken, total, undone

NOTED_KEPT = 500


class MoneyImage(msgspec.Struct, frozen=True, omit_defaults=True):
    accounts: tuple[Account, ...] = ()
    ledger: tuple[tuple[str, int], ...] = ()
    invoices: tuple[InvoiceHead, ...] = ()
    priced_ms: int = 0


class Accounts:
    """A fold of frozen values. `moved` is the pure step of one account, `apply` that of all."""

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
        """Return the held tenants, whose jobs do not start, and why; never changed after it was given out."""
        return self._held

    def image(self) -> MoneyImage:
        return MoneyImage(
            tuple(self.of.values()), tuple(self.ledger.items()), tuple(self.invoices.values()), self.priced_ms
        )

    def account(self, tenant: TenantName) -> Account:
        return self.of.get(tenant) or Account(tenant)

    def apply(self, event: MoneyEvent, seq: int, time_ms: int) -> None:
        """Move over one event.

        Raises: BrokenInvariant when it overdraws an account, or a number is not the next.
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
        elif isinstance(event, ev.MoneyReversed) and event.number:
            head = self.invoices[event.number]
            self.invoices[event.number] = replace(head, paid=head.paid - event.amount)
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
            return _invoiced(account, event)
        case ev.InvoicePaid():
            paid = _with(_owing(account, event.number, -event.amount), event.reference, event.amount)
            return paid, (Posting("cash", event.amount), Posting(f"owed:{account.tenant}", -event.amount))
        case ev.MoneyReversed():
            return _reversed(account, event)
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
    """Return the account that owes `more` more on an invoice."""
    left = account.open_on(number) + more
    if left < 0:
        raise BrokenInvariant(f"{account.tenant}: {number} is paid beyond what is owed on it")
    others = tuple(entry for entry in account.open if entry[0] != number)
    return replace(account, open=(*others, (number, left)) if left else others)


def _credited(account: Account, event: ev.CreditAdded, time_ms: int) -> tuple[Account, Entry]:
    part = CreditPart(event.reference, event.amount, event.kind, event.expires_ms, time_ms)
    source = "cash" if event.kind == "payment" else "grants"
    credited = _with(added(account, [part]), event.reference, event.amount)
    credited = replace(credited, added=credited.credit)
    return credited, (Posting(source, event.amount), Posting(f"credit:{account.tenant}", -event.amount))


def _expired(account: Account, event: ev.CreditExpired) -> tuple[Account, Entry]:
    expiring = (at for at, lot in enumerate(account.lots) if lot.expires_ms and lot.reference == event.reference)
    found = next((at for at in expiring if account.lots[at].left == event.amount), None)
    if found is None:  # credits of one name may be several: a credit that an invoice gives back bears its number
        raise BrokenInvariant(f"{account.tenant}: '{event.reference}' does not hold {event.amount}")
    lots = account.lots[:found] + account.lots[found + 1 :]
    entry = Posting(f"credit:{account.tenant}", event.amount), Posting("expired", -event.amount)
    return replace(account, lots=lots), entry


def _posted(account: Account, event: ev.UsagePosted) -> tuple[Account, Entry]:
    if event.until_ms <= account.posted_ms or event.month_ms < account.invoiced_ms:
        raise BrokenInvariant(f"{account.tenant}: use up to {event.until_ms} is posted already")
    lots, parts = spend(account.lots, max(0, event.amount), event.until_ms)
    month = account.month(event.month_ms)
    left, back = undone(summed((*month.paid, *parts)), event.back)
    paid = total(parts) - total(back)
    names = f"credit:{account.tenant}", f"unbilled:{account.tenant}"
    entry = Posting(names[0], paid), Posting(names[1], event.amount - paid), Posting("income", -event.amount)
    month = replace(month, posted=month.posted + event.amount, from_credit=month.from_credit + paid, paid=left)
    before = (one for one in account.months if one.begin_ms < event.month_ms and (one.posted or one.from_credit))
    changed = replace(
        account,
        lots=lots,
        months=(*before, month),
        posted_ms=event.until_ms,
        days=(*account.days, Spent(event.until_ms, event.amount))[-DAYS_KEPT:],
    )
    return added(changed, back), _moving(entry)


def _invoiced(account: Account, event: ev.InvoiceIssued) -> tuple[Account, Entry]:
    issued, tenant = event.invoice, account.tenant
    if issued.kind == "credit_note" and issued.corrects:
        return _corrected(account, event)
    month = account.month(issued.from_ms)
    note = issued.kind == "credit_note"  # the month's refunds exceed its use
    paid = 0 if note else issued.from_credit + issued.granted - month.from_credit
    lots, parts = at_close(account, month, paid, issued.until_ms)
    covered = account.credit - replace(account, lots=lots).credit
    if issued.net != month.posted or covered != paid or issued.due != _due_of(issued):
        raise BrokenInvariant(f"{issued.number} says {issued.net}, due {issued.due}; posted were {month.posted}")
    earlier = [one for one in account.months if one.begin_ms < month.begin_ms and (one.posted or one.from_credit)]
    if earlier or month not in account.months or issued.until_ms > account.posted_ms:
        raise BrokenInvariant(f"{issued.number}: months are invoiced in order, and once")
    months = tuple(one for one in account.months if one.begin_ms > month.begin_ms)
    changed = replace(account, lots=lots, months=months, invoiced_ms=issued.until_ms)
    back = max(0, -issued.due)
    grants = -issued.granted if note else 0
    if note:
        changed = _given_back(changed, account.settled, event, back, issued.until_ms)
    else:
        changed = added(changed, [CreditPart(issued.number, back, "payment", 0, issued.until_ms)] if back else ())
        if total(parts, "grant") == issued.granted:  # former versions count grants as paid
            settled = (*account.settled, settled_by(issued, parts))[-SETTLED_KEPT:]
            changed = replace(changed, settled=settled)
    entry = [Posting(f"credit:{tenant}", paid - back - grants)]
    entry += [Posting(f"unbilled:{tenant}", month.from_credit - month.posted)]
    entry += [Posting(f"owed:{tenant}", issued.due + back), Posting("tax", -issued.tax)]
    return _owing(changed, issued.number, issued.due + back), _moving(tuple(entry))


def _due_of(issued: Invoice) -> int:
    return issued.net - issued.granted + issued.tax - issued.from_credit


def _corrected(account: Account, event: ev.InvoiceIssued) -> tuple[Account, Entry]:
    """A credit note first lowers the amount owed on its invoice; the rest is credit."""
    note, tenant = event.invoice, account.tenant
    back = -note.total
    off = min(back, account.open_on(note.corrects))
    entry = [Posting("income", -note.net), Posting("tax", -note.tax), Posting(f"owed:{tenant}", -off)]
    entry.append(Posting(f"credit:{tenant}", off - back + note.granted))
    of_it = [one for one in account.settled if one.number == note.corrects]
    changed = _given_back(account, of_it, event, back - off, note.issued_ms)
    return _owing(changed, note.corrects, -off), _moving(tuple(entry))


def _given_back(
    account: Account, settled: Sequence[Settled], event: ev.InvoiceIssued, credit: int, at_ms: int
) -> Account:
    """Return the account after a credit note gives back: to the credits that paid, and `credit` of it in money."""
    note = event.invoice
    found = given_back(settled, taxed=note.granted - note.net, granted=-note.granted, money=-note.total)
    _, payments = undone(found.payments, event.back)
    plain = CreditPart(note.number, credit - total(payments), "payment", 0, at_ms)
    lost = CreditPart(note.number, -note.granted - total(found.grants), "grant", 0, at_ms)
    changed = added(account, [part for part in (*found.grants, *payments, plain, lost) if part.amount])
    newer = {one.number: one for one in found.settled}
    return replace(changed, settled=tuple(newer.get(one.number, one) for one in account.settled))


def _reversed(account: Account, event: ev.MoneyReversed) -> tuple[Account, Entry]:
    if event.record in account.reversed:
        raise BrokenInvariant(f"{account.tenant}: record {event.record} was reversed before")
    account = replace(account, reversed=(*account.reversed, event.record)[-REFERENCES_KEPT:])
    source = Posting("grants" if event.kind == "grant" else "cash", -event.amount)
    if event.number:
        return _owing(account, event.number, event.amount), (source, Posting(f"owed:{account.tenant}", event.amount))
    part = CreditPart(event.reference, event.amount, event.kind, event.expires_ms, event.added_ms)
    return taken(account, part), (source, Posting(f"credit:{account.tenant}", event.amount))


def _moving(entry: Entry) -> Entry:
    return tuple(posting for posting in entry if posting.amount)
