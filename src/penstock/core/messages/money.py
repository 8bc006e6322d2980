"""Requests about money, and their answer."""

import msgspec

from penstock.core.model.accounts import CreditKind
from penstock.core.model.events import (
    CreditAdded,
    InvoicePaid,
    MoneyEvent,
)
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.invoices import Invoice


class AddCredit(msgspec.Struct, frozen=True):
    """A tenant paid in advance, or gets a grant; the same reference again changes nothing."""

    tenant: TenantName
    reference: str
    amount: int
    kind: CreditKind
    by: UserName
    expires_ms: int = 0
    note: str = ""


class PayInvoice(msgspec.Struct, frozen=True):
    number: str
    reference: str
    amount: int
    by: UserName


class CorrectInvoice(msgspec.Struct, frozen=True):
    """Issue a credit note for the rest of an invoice, or for a part of it (net, before tax)."""

    invoice: Invoice
    reason: str
    by: UserName
    net: int | None = None


class ReverseEntry(msgspec.Struct, frozen=True):
    """Reverse record `record` of the log: a credit or a payment that was wrong, or did not arrive."""

    record: int
    time_ms: int
    event: CreditAdded | InvoicePaid
    reason: str
    by: UserName


class PostAccount(msgspec.Struct, frozen=True):
    """Write due events into an account, computed from its value after record `changed_seq`."""

    tenant: TenantName
    changed_seq: int
    events: tuple[MoneyEvent, ...]


MoneyRequest = AddCredit | PayInvoice | CorrectInvoice | ReverseEntry | PostAccount


class MoneyDone(msgspec.Struct, frozen=True):
    """It is in the log, or was before (`repeated`). `number` is that of an issued invoice or credit note."""

    number: str = ""
    repeated: bool = False
