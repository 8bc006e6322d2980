"""What a tenant has paid in advance, owes and has spent. Money in the currency's smallest unit, times in unix ms."""

from typing import Literal, NamedTuple

import msgspec

from penstock.core.model.ids import TenantName
from penstock.core.model.invoices import InvoiceKind

CreditKind = Literal["payment", "grant"]
SpendingKind = Literal["budget", "balance", "unusual", "quota"]
DAYS_KEPT = 800
REFERENCES_KEPT = 1_000
SETTLED_KEPT = 120


class Lot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The remainder of one credit."""

    reference: str
    left: int
    kind: CreditKind
    expires_ms: int = 0
    """0: never."""
    added_ms: int = 0
    """Use before this time is not paid from it, but by the invoice of its month."""


class CreditPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of one credit: the amount it paid, or gets back. All other fields identify the credit."""

    reference: str
    amount: int
    kind: CreditKind
    expires_ms: int = 0
    added_ms: int = 0


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why nothing of a tenant starts."""

    reason: str
    text: str
    suspend: bool = False
    since_ms: int = 0


class Month(msgspec.Struct, frozen=True, omit_defaults=True):
    """A month that is on no invoice yet."""

    begin_ms: int
    posted: int = 0
    """Cost of its use so far."""
    from_credit: int = 0
    """Of that, paid from credit."""
    paid: tuple[CreditPart, ...] = ()
    """The credits that paid it."""

    @property
    def granted(self) -> int:
        """Of the amount paid from credit, the part from grants."""
        return sum(part.amount for part in self.paid if part.kind == "grant")


class Settled(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payments of an invoice, less later refunds."""

    number: str
    taxed: int
    """The part of its net amount that no grant paid: it is taxed."""
    plain: int
    """The part of its total not paid from expiring credit; it is refunded as credit that never expires."""
    parts: tuple[CreditPart, ...] = ()
    """Parts paid by grants and by expiring payments."""


class Spent(msgspec.Struct, frozen=True):
    """The amount posted for the time since the previous posting, up to `until_ms`."""

    until_ms: int
    amount: int


class Noted(msgspec.Struct, frozen=True):
    """A notice given about a tenant's spending."""

    kind: SpendingKind
    name: str
    period_ms: int
    percent: int


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """The account of one tenant, as the log knows it."""

    tenant: TenantName
    lots: tuple[Lot, ...] = ()
    """By expiry, the earliest first."""
    months: tuple[Month, ...] = ()
    """Months on no invoice yet, the current one last."""
    open: tuple[tuple[str, int], ...] = ()
    """Unpaid invoices by number, and the amount due on each."""
    posted_ms: int = 0
    """Use up to here is posted."""
    invoiced_ms: int = 0
    """Use up to here is on invoices."""
    days: tuple[Spent, ...] = ()
    added: int = 0
    """The credit after the last addition."""
    references: tuple[str, ...] = ()
    """The latest references of credits and payments: each is accepted once."""
    amounts: tuple[int, ...] = ()
    """The amount of each of these references."""
    hold: Hold | None = None
    noted: tuple[Noted, ...] = ()
    changed_seq: int = 0
    """The record that changed it last."""
    debt: int = 0
    """Spent from payments that were reversed: the next payment covers it first."""
    settled: tuple[Settled, ...] = ()
    """The payments of the latest invoices, the last one last."""
    reversed: tuple[int, ...] = ()
    """The latest records whose credit or payment was reversed: each is reversed once."""

    @property
    def credit(self) -> int:
        """The remaining credit; below zero where a payment was reversed after it was spent."""
        return sum(lot.left for lot in self.lots) - self.debt

    @property
    def owed(self) -> int:
        """The amount due on unpaid invoices."""
        return sum(left for _, left in self.open)

    def open_on(self, number: str) -> int:
        """Return the amount due on an invoice."""
        return dict(self.open).get(number, 0)

    def known_amount(self, reference: str) -> int | None:
        """Return the amount of a reference; None: it is new."""
        known = dict(zip(self.references, self.amounts, strict=True))
        return known.get(reference)

    @property
    def unbilled(self) -> int:
        """Posted, not paid from credit, and on no invoice yet."""
        return sum(month.posted - month.from_credit for month in self.months)

    def month(self, begin_ms: int) -> Month:
        """Return a month that is on no invoice; an empty one where nothing is posted."""
        return next((month for month in self.months if month.begin_ms == begin_ms), Month(begin_ms))

    @property
    def balance(self) -> int:
        """Credit less debts; use since the last posting is not included."""
        return self.credit - self.unbilled - self.owed


class InvoiceHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What lists of invoices show; the whole is in the log, at `seq`."""

    number: str
    kind: InvoiceKind
    tenant: TenantName
    issued_ms: int
    from_ms: int
    until_ms: int
    total: int
    due: int
    seq: int
    corrects: str = ""
    corrected: int = 0
    """By credit notes, as a positive amount."""
    corrected_net: int = 0
    """Of that, before tax."""
    paid: int = 0


class Posting(NamedTuple):
    """One line of a journal entry; positive: debit, negative: credit."""

    account: str
    amount: int


Entry = tuple[Posting, ...]
