"""The events due for accounts by now: use posted at the end of each day, credits that expire, invoices.

Pure: an account and the tenant's sessions give the same events for every caller, however often: a posting is the bill
of the month up to a border, less the earlier postings of that month. So sums of postings are bills, to the smallest
unit, and a day that was missed is made up for.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from penstock.core.ledger.bill import bill, half_up
from penstock.core.ledger.pricing import MoneyCharge, charges
from penstock.core.ledger.schedule import UTC, Zone
from penstock.core.ledger.sessions import Losses, UsageInterval
from penstock.core.model import events as ev
from penstock.core.model.accounts import Account, Lot, Settled
from penstock.core.model.answers import Bill
from penstock.core.model.cluster import Tenant
from penstock.core.model.events import MoneyEvent
from penstock.core.model.ids import AttemptNumber, JobId, Rank, TenantName
from penstock.core.model.invoices import Invoice
from penstock.core.model.prices import Billing, Party
from penstock.core.state.accounts import moved
from penstock.core.state.credits import at_close, given_back, granted_of, total

LINES_MAX = 20_000
"""An invoice with more lines sums them up by user."""


class Calendar(msgspec.Struct, frozen=True):
    """When days and months begin in the time zone of the bills (unix ms, ascending), and its offsets.

    Months reach back to the one before that of the first day; months are days, too.
    """

    days: tuple[int, ...]
    months: tuple[int, ...]
    zone: Zone = UTC

    def month_of(self, time_ms: int) -> int:
        """Return when the month of a moment began.

        Raises: ValueError when the calendar does not reach back so far.
        """
        found = bisect_right(self.months, time_ms)
        if not found:
            raise ValueError(f"months: the first is to be no later than {time_ms}, found {self.months[:1]}")
        return self.months[found - 1]


class BilledUse(msgspec.Struct, frozen=True):
    """One tenant's use: all sessions that may still count, and their losses with failed nodes."""

    sessions: Sequence[UsageInterval]
    losses: Losses


def bill_for(
    tenant: TenantName, held: BilledUse, billing: Billing, calendar: Calendar, from_ms: int, until_ms: int
) -> Bill:
    """Return the bill of a tenant for [from_ms, until_ms).

    Args:
        held: all sessions of the tenant since the month of `from_ms` began, and its losses since then.
        calendar: its months begin no later than any of these sessions.
    """
    return bill(tenant, billing, charges_for(held, billing, calendar, from_ms, until_ms), from_ms, until_ms)


def charges_for(
    held: BilledUse, billing: Billing, calendar: Calendar, from_ms: int, until_ms: int
) -> Iterator[MoneyCharge]:
    """Yield the charges that such a bill sums up."""
    losses = held.losses if billing.refund_lost else {}
    since_ms = _reach(held, losses, calendar, from_ms)
    counted = list(_since(held.sessions, since_ms, billing.tariff.minimum_max_ms, until_ms))
    return charges(counted, billing.tariff, calendar.months, from_ms, until_ms, zone=calendar.zone, losses=losses)


def _reach(held: BilledUse, losses: Losses, calendar: Calendar, from_ms: int) -> int:
    """Return since when sessions count: the month, or that of the earliest use that is given back by now."""
    first_ms = min((loss.from_ms for loss in losses.values() if loss.at_ms >= from_ms), default=from_ms)
    return calendar.month_of(max(min(first_ms, from_ms), calendar.months[0]))


def _since(sessions: Iterable[UsageInterval], month_ms: int, minimum_ms: int, until_ms: int) -> Iterator[UsageInterval]:
    """Yield the sessions of holds that count for anything since a month began."""
    holds: dict[tuple[JobId, AttemptNumber, Rank], list[UsageInterval]] = {}
    for session in sessions:
        if session.start_ms < until_ms:
            holds.setdefault((session.job_id, session.attempt, session.rank), []).append(session)
    for parts in holds.values():
        if any(not part.end_ms or part.end_ms + minimum_ms > month_ms for part in parts):
            yield from parts


BillUp = Callable[[int, int], Bill]
"""The bill of the tenant for [from, until)."""


def due_events(
    account: Account, tenant: Tenant, billing: Billing, calendar: Calendar, bill_up: BillUp, now_ms: int
) -> list[MoneyEvent]:
    """Return the events due for the account by now, in order. Invoices have no number yet."""
    found: list[MoneyEvent] = []

    def write(event: MoneyEvent) -> None:
        nonlocal account
        found.append(event)
        account, _ = moved(account, event, now_ms)

    def lapse(until_ms: int) -> None:
        for lot in account.lots:
            if lot.expires_ms and lot.expires_ms <= until_ms:
                write(ev.CreditExpired(account.tenant, lot.reference, lot.left))

    lapse(account.posted_ms)  # refunds to a credit that has expired
    for border_ms in _borders(account, calendar, now_ms):
        month_ms = calendar.month_of(border_ms - 1)
        amount = bill_up(month_ms, border_ms).total - account.month(month_ms).posted
        if amount or border_ms in calendar.months:  # a month that came to nothing is over, too
            write(_posting(account, month_ms, border_ms, amount))
        lapse(border_ms)
        while billing.issue == "automatic" and (span := closed_month(account, calendar)) is not None:
            write(closing(account, tenant, billing, bill_up(*span), now_ms))
            lapse(border_ms)
    return found


def _posting(account: Account, month_ms: int, until_ms: int, amount: int) -> ev.UsagePosted:
    """Return the event that posts `amount`; credits that have paid more than the month costs get the excess back."""
    event = ev.UsagePosted(account.tenant, month_ms, until_ms, amount)
    month = moved(account, event, until_ms)[0].month(month_ms)
    over = total(month.paid) - max(0, month.posted)
    return replace(event, back=over) if over > 0 else event


def closed_month(account: Account, calendar: Calendar) -> tuple[int, int] | None:
    """Return begin and end of the first month that is over, posted to its end, and not invoiced; None: there is none.

    A month without cost needs no invoice.
    """
    for month in account.months:
        end_ms = next((begin for begin in calendar.months if begin > month.begin_ms), 0)
        if not 0 < end_ms <= account.posted_ms:
            return None
        if month.posted or month.from_credit:
            return month.begin_ms, end_ms
    return None


def _borders(account: Account, calendar: Calendar, now_ms: int) -> list[int]:
    """Return the times up to which use is to be posted, step by step: ends of days, and of credits."""
    after_ms = max(account.posted_ms, calendar.days[0])
    days = {day for day in calendar.days if after_ms < day <= now_ms}
    return sorted(days | {lot.expires_ms for lot in account.lots if account.posted_ms < lot.expires_ms <= now_ms})


def closing(account: Account, tenant: Tenant, billing: Billing, made: Bill, now_ms: int) -> ev.InvoiceIssued:
    """Return the closing event of a month that was posted to its end: its invoice, or a credit note where refunds
    exceed use. Its number is given when it is issued."""
    issued = invoice_of(account, tenant, billing, made, now_ms)
    if issued.kind == "invoice":
        return ev.InvoiceIssued(issued)
    return ev.InvoiceIssued(issued, to_payments(account.settled, issued, -issued.total))


def to_payments(settled: Sequence[Settled], note: Invoice, credit: int) -> int:
    """Return how much of a credit note's refund goes to payments that expire, if `credit` of it is credit."""
    found = given_back(settled, taxed=note.granted - note.net, granted=-note.granted, money=-note.total)
    return min(credit, total(found.payments))


def invoice_of(account: Account, tenant: Tenant, billing: Billing, made: Bill, now_ms: int) -> Invoice:
    """Return the invoice or credit note of a month that was posted to its end; issuing gives it its number.

    The part paid by grants is a discount and not taxed; an advance payment is a payment, and pays the tax, too.
    """
    month = account.month(made.from_ms)
    note = made.total < 0 and not month.from_credit
    unpaid = max(0, made.total - month.from_credit)
    _, parts = at_close(account, month, unpaid, made.until_ms)
    granted = -granted_of(account.settled, -made.total) if note else total(parts, "grant")
    tax = tax_on(made.total - granted, billing.tax_milli)
    _, parts = at_close(account, month, unpaid + max(0, tax), made.until_ms)
    from_credit = 0 if note else month.from_credit + total(parts) - total(month.paid) - granted
    gross = made.total - granted + tax
    return Invoice(
        number="",
        kind="credit_note" if note else "invoice",
        tenant=account.tenant,
        issued_ms=now_ms,
        from_ms=made.from_ms,
        until_ms=made.until_ms,
        time_zone=billing.time_zone,
        currency=made.currency,
        digits=made.digits,
        lines=made.summed().lines if len(made.lines) > LINES_MAX else made.lines,
        net=made.total,
        tax=tax,
        total=gross,
        from_credit=from_credit,
        due=gross - from_credit,
        tax_name=billing.tax_name,
        tax_milli=billing.tax_milli,
        issuer=billing.issuer,
        customer=tenant.bill_to if tenant.bill_to.name else Party(tenant.description or tenant.name),
        reason="more was given back than used" if note else "",
        granted=granted,
    )


def tax_on(amount: int, tax_milli: int) -> int:
    """Return the tax on an amount, rounded half up; on a refund the same, below zero."""
    tax = half_up(Fraction(abs(amount) * tax_milli, 1000))
    return tax if amount >= 0 else -tax


def good(lots: Iterable[Lot], at_ms: int) -> int:
    """Return how much credit is good at a moment."""
    return sum(lot.left for lot in lots if not lot.expires_ms or lot.expires_ms > at_ms)
