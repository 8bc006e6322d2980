"""Conditions on every invoice that a document is made of."""

from penstock.core.ledger.bill import wrong_sum
from penstock.core.model.invoices import Invoice
from penstock.report.invoice.errors import DoesNotAddUp


def check(invoice: Invoice) -> None:
    """Raise DoesNotAddUp where a sum is wrong: no document may contradict its own lines."""
    wrong = wrong_sum(invoice)
    if wrong:
        raise DoesNotAddUp(f"{invoice.number}: {wrong}", hint="its JSON and CSV say what was issued")
