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
    """What is left of one credit."""

    reference: str
    left: int
    kind: CreditKind
    expires_ms: int = 0
    """0: never."""
    added_ms: int = 0
    """What was used before is not paid from it, but by the invoice of its month."""


class CreditPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of one credit: what it paid, or gets back. All but `amount` names the credit."""

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
    """What its use came to so far."""
    from_credit: int = 0
    """Of that, paid from credit."""
    paid: tuple[CreditPart, ...] = ()
    """By which credits."""

    @property
    def granted(self) -> int:
        """Of what was paid from credit, from grants."""
        return sum(part.amount for part in self.paid if part.kind == "grant")


class Settled(msgspec.Struct, frozen=True, omit_defaults=True):
    """What paid an invoice, less what was given back of it since."""

    number: str
    taxed: int
    """Of its net amount, what no grant paid: there is tax on it."""
    plain: int
    """Of its total, what is not from credit that expires; that part is given back as credit that never does."""
    parts: tuple[CreditPart, ...] = ()
    """What grants paid, and payments that expire."""


class Spent(msgspec.Struct, frozen=True):
    """What was posted for the time up to `until_ms`, since the posting before."""

    until_ms: int
    amount: int


class Noted(msgspec.Struct, frozen=True):
    """What was said of a tenant's spending."""

    kind: SpendingKind
    name: str
    period_ms: int
    percent: int


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """The account of one tenant, as the log knows it."""

    tenant: TenantName
    lots: tuple[Lot, ...] = ()
    """Those that expire first come first."""
    months: tuple[Month, ...] = ()
    """Those that are on no invoice yet, the present one last."""
    open: tuple[tuple[str, int], ...] = ()
    """Invoices that are not paid, by number, and what is owed on each."""
    posted_ms: int = 0
    """Use up to here is posted."""
    invoiced_ms: int = 0
    """Use up to here is on invoices."""
    days: tuple[Spent, ...] = ()
    added: int = 0
    """What there was after the last credit was added."""
    references: tuple[str, ...] = ()
    """Of credits and payments, the latest: none of them comes twice."""
    amounts: tuple[int, ...] = ()
    """What came with each of these references."""
    hold: Hold | None = None
    noted: tuple[Noted, ...] = ()
    changed_seq: int = 0
    """The record that changed it last."""
    debt: int = 0
    """Was spent of payments that were reversed: what is paid next fills it first."""
    settled: tuple[Settled, ...] = ()
    """What paid the latest invoices, the last one last."""
    reversed: tuple[int, ...] = ()
    """Records whose credit or payment was reversed, the latest: none of them is twice."""

    @property
    def credit(self) -> int:
        """What is left of credits; below zero where more was spent than there is after a payment was reversed."""
        return sum(lot.left for lot in self.lots) - self.debt

    @property
    def owed(self) -> int:
        """On invoices that are not paid."""
        return sum(left for _, left in self.open)

    def open_on(self, number: str) -> int:
        """Return what is owed on an invoice."""
        return dict(self.open).get(number, 0)

    def known_amount(self, reference: str) -> int | None:
        """Return what came with a reference; None: it is new."""
        known = dict(zip(self.references, self.amounts, strict=True))
        return known.get(reference)

    @property
    def unbilled(self) -> int:
        """Posted, not paid from credit, and on no invoice yet."""
        return sum(month.posted - month.from_credit for month in self.months)

    def month(self, begin_ms: int) -> Month:
        """Return what is known of a month that is on no invoice."""
        return next((month for month in self.months if month.begin_ms == begin_ms), Month(begin_ms))

    @property
    def balance(self) -> int:
        """Credit less what is owed; what was used since the last posting is not in it."""
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
