"""Events about money: tenants' payments, use and debts, and the consequences. Sums in the currency's smallest unit."""

from penstock.core.model.accounts import CreditKind, SpendingKind
from penstock.core.model.event import Event
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.invoices import Invoice


class CreditAdded(Event, tag=True, frozen=True, omit_defaults=True):
    """A tenant paid in advance, or was granted something. Money in the currency's smallest unit."""

    tenant: TenantName
    reference: str
    """Names it among the tenant's credits: the same one comes only once."""
    amount: int
    kind: CreditKind
    expires_ms: int = 0
    by: UserName = UserName("")
    note: str = ""


class CreditExpired(Event, tag=True, frozen=True, omit_defaults=True):
    """The unused remainder of a credit expired."""

    tenant: TenantName
    reference: str
    amount: int


class UsagePosted(Event, tag=True, frozen=True, omit_defaults=True):
    """Cost of a tenant's use since the last posting of this month, up to `until_ms`; negative: a refund."""

    tenant: TenantName
    month_ms: int
    """When its month began."""
    until_ms: int
    amount: int
    back: int = 0
    """Refund to credits that have paid more of the month than its present cost."""


class InvoiceIssued(Event, tag=True, frozen=True, omit_defaults=True):
    """An invoice or a credit note, whole and for good. Of a note's total `back` goes back to payments that expire."""

    invoice: Invoice
    back: int = 0


class InvoicePaid(Event, tag=True, frozen=True, omit_defaults=True):
    """A payment of an invoice, or of a part of it, was noted."""

    tenant: TenantName
    number: str
    reference: str
    amount: int
    by: UserName = UserName("")


class MoneyReversed(Event, tag=True, frozen=True, omit_defaults=True):
    """The credit, or payment of an invoice (`number`), of a record is taken back: all, or what a grant has left."""

    tenant: TenantName
    record: int
    reference: str
    amount: int
    kind: CreditKind = "payment"
    number: str = ""
    expires_ms: int = 0
    added_ms: int = 0
    by: UserName = UserName("")
    reason: str = ""


class TenantHeld(Event, tag=True, frozen=True, omit_defaults=True):
    """Nothing of the tenant starts from here on: its credit or a hard budget is used up."""

    tenant: TenantName
    reason: str
    """`balance`, or `budget:NAME`."""
    text: str
    suspend: bool = False
    """What runs saves and leaves, too."""


class TenantReleased(Event, tag=True, frozen=True, omit_defaults=True):
    """What held the tenant is over: its jobs start again."""

    tenant: TenantName


class SpendingNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """A notice about a tenant's spending. Each is given once."""

    tenant: TenantName
    kind: SpendingKind
    name: str
    """Of the budget, or of the day."""
    period_ms: int
    """When the period of the notice began."""
    percent: int
    text: str
