"""Answers about invoices. Amounts in the smallest unit of the currency; times in unix ms and by the bills' clock."""

import msgspec

from penstock.api.types import PagedList
from penstock.core.model.invoices import InvoiceKind


class InvoiceView(msgspec.Struct, frozen=True):
    """An invoice or a credit note in a list."""

    number: str
    kind: InvoiceKind
    tenant: str
    issued_ms: int
    from_ms: int
    until_ms: int
    total: int
    due: int
    """Still to be paid: what was due when it was issued, less payments and credit notes since; 0 of a credit note."""
    seq: int
    """Of its record in the log."""
    corrects: str = ""
    """Number of the invoice that a credit note corrects."""
    corrected: int = 0
    """By credit notes, as a positive amount."""
    corrected_net: int = 0
    """Of that, before tax."""
    paid: int = 0
    due_issued: int = 0
    """Due when it was issued: the total less what was paid in advance."""
    month: str = ""
    """Such as `2026-11`."""
    from_time: str = ""
    """Its begin with the offset, such as `2026-11-01T00:00:00+01:00`."""
    until_time: str = ""
    issued_time: str = ""


class TenantDue(msgspec.Struct, frozen=True):
    """What a tenant still has to pay on its invoices."""

    tenant: str
    due: int
    invoices: int
    """Number of its invoices with an amount due."""


class InvoiceList(PagedList, frozen=True):
    """Invoices and credit notes, newest first."""

    currency: str
    digits: int
    invoices: list[InvoiceView]
    time_zone: str = "UTC"
    """In which the months begin, and the times are written."""
    open: list[TenantDue] = msgspec.field(default_factory=list)
    """Of the tenants asked for, by name; those that owe nothing are left out."""
    left_out: int = 0
    """Older ones beyond the limit of the list."""
