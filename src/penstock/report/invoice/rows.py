"""Lines as rows of a table for programs and spreadsheets: exact, one row a line, no formula in it."""

from decimal import Decimal

from penstock.core.ledger.pricing import GIB
from penstock.core.model.foreign import csv_text
from penstock.core.model.invoices import Invoice, InvoiceLine
from penstock.core.model.prices import HOUR_MS
from penstock.core.model.quantities import format_time, money

LINE_COLUMNS = ("queue", "user", "job", "name", "resource", "model", "unit_hours", "per_hour", "rate", "amount")
"""The columns of `exact_cells`; `rate` is tier x factor."""
MORE_COLUMNS = ("kind", "quantity_ms", "tier", "factor", "full", "currency")
"""Of an invoice's table, after the columns of the line."""
INVOICE_COLUMNS = ("invoice", "invoice_kind", "tenant", "from", "until")


def render_csv(invoice: Invoice) -> str:
    """Return all lines as a table with a header, UTF-8, one row a line.

    Amounts are in the currency, exact; `quantity_ms` is exact, `unit_hours` has twelve decimals. `from` and `until`
    (not included) are in UTC.
    """
    rows: list[tuple[object, ...]] = [(*INVOICE_COLUMNS, *LINE_COLUMNS, *MORE_COLUMNS)]
    period = (format_time(invoice.from_ms), format_time(invoice.until_ms))
    about = (invoice.number, invoice.kind, invoice.tenant, *period)
    for line in invoice.lines:
        exact = (line.kind, line.quantity_ms, _milli(line.tier_milli), _milli(line.factor_milli))
        full = money(line.full, invoice.digits).replace(",", "")
        rows.append((*about, *exact_cells(line, invoice.digits), *exact, full, invoice.currency))
    return csv_text(rows)


def exact_cells(line: InvoiceLine, digits: int) -> tuple[str, ...]:
    """Return the columns LINE_COLUMNS of a line, in full, for programs."""
    hours = Decimal(line.quantity_ms) / ((GIB if line.resource == "memory" else 1000) * HOUR_MS)
    about = (line.queue, line.user, str(line.job_id), line.job_name, line.resource, line.model)
    price = Decimal(line.micro_per_hour) / 1_000_000
    rate = Decimal(line.tier_milli * line.factor_milli) / 1_000_000
    amount = money(line.amount, digits).replace(",", "")
    return (*about, f"{hours:.12f}", f"{price:f}", f"{rate:f}", amount)


def _milli(value: int) -> str:
    return f"{Decimal(value) / 1000:f}"
