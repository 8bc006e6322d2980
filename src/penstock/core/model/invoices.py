"""Lines and invoices: an issued one never changes. Money in the smallest unit of the currency."""

from typing import Literal

import msgspec

from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.prices import Party, Resource

LineKind = Literal["use", "refund"]
InvoiceKind = Literal["invoice", "credit_note"]


class InvoiceLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one job cost of one resource at one price, tier and factor; negative where it is given back."""

    queue: QueueName
    user: UserName
    job_id: JobId
    """0 where a line sums up the jobs of a user."""
    job_name: str
    resource: Resource
    model: str
    quantity_ms: int
    """Thousandths of devices or CPUs, or bytes of memory, x milliseconds."""
    micro_per_hour: int
    """Price of one device, CPU or GiB for an hour, in millionths of the currency."""
    tier_milli: int
    factor_milli: int
    full: int
    """The amount without tier and factor, rounded half up."""
    amount: int
    kind: LineKind = "use"
    """`refund`: time that a failed node took."""


class Invoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """An invoice for [from_ms, until_ms), or a credit note that corrects one. Unix ms."""

    number: str
    kind: InvoiceKind
    tenant: TenantName
    issued_ms: int
    from_ms: int
    until_ms: int
    time_zone: str
    currency: str
    digits: int
    """Of the currency's smallest unit: 2 where there are cents."""
    lines: tuple[InvoiceLine, ...]
    """They add up to `net`. A credit note may have none: `reason` says why it was issued."""
    net: int
    tax: int
    """On net - granted."""
    total: int
    """net - granted + tax."""
    from_credit: int = 0
    """Of the total, paid in advance."""
    due: int = 0
    """total - from_credit."""
    tax_name: str = ""
    tax_milli: int = 0
    """Rate of the tax in thousandths, such as 190 for 19 %."""
    issuer: Party = Party()
    customer: Party = Party()
    corrects: str = ""
    """Number of the invoice that a credit note corrects; its amounts are negative. Empty on the note of a month in
    which refunds exceed use."""
    reason: str = ""
    issued_by: UserName = UserName("")
    granted: int = 0
    """Of the net amount, paid from grants: a discount, and not taxed. (Invoices of former versions have it in
    `from_credit`.)"""
