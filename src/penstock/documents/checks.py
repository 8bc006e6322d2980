"""What holds for every invoice that a document is made of."""

from penstock.core.model.invoices import Invoice
from penstock.documents.errors import DoesNotAddUp


def check(invoice: Invoice) -> None:
    """Raise DoesNotAddUp where a sum is wrong: no paper may say what its own lines deny.

    A credit note without lines (its reason says what it is for) has the net amount that it says.
    """
    lines = sum(line.amount for line in invoice.lines)
    pairs = [
        ("total", invoice.total, "net and tax", invoice.net + invoice.tax),
        ("due", invoice.due, "total less credit", invoice.total - invoice.from_credit),
    ]
    if invoice.lines or invoice.kind == "invoice":
        pairs.insert(0, ("net", invoice.net, "its lines", lines))
    for field, found, what, expected in pairs:
        if found != expected:
            raise DoesNotAddUp(f"{invoice.number}: {field} is {found:,}, and {what} come to {expected:,}")
