"""`penstock money bill`: each tenant's debt for a month, and its items."""

from decimal import Decimal
from typing import Annotated

import msgspec
import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_document, print_json, say, table
from penstock.cli.place import client_of
from penstock.cli.progress import waiting
from penstock.core.model.answers import Bill
from penstock.core.model.foreign import csv_text
from penstock.core.model.invoices import InvoiceLine
from penstock.core.model.prices import HOUR_MS
from penstock.core.model.quantities import format_time, money
from penstock.core.model.words import counted

LINES_MAX = 30
UNITS = {"device": "device-hours", "cpu": "CPU-hours", "memory": "GiB-hours"}
RIGHT = ("job", "quantity", "price", "rate", "amount")
DROP = ("model", "queue", "rate", "user", "unit", "price", "name", "quantity")
"""Columns left out at a narrow terminal, in this order."""
COLUMNS = ("queue", "user", "job", "name", "quantity", "unit", "model", "price", "rate", "amount")
"""`price` is of one unit; `rate` is tier x factor."""


def bill(
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    month: Annotated[str, typer.Option(help="Month, such as 2026-11; by default the current one, up to now.")] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every line as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what each tenant owes for a month, and for what."""
    with waiting("the server adds up", quiet=json):
        found = client_of().bills(tenant, month)
    if json:
        lines = [(one.tenant, one.currency, msgspec.to_builtins(line)) for one in found.bills for line in one.lines]
        print_json(found, of=[{"tenant": whose, **line, "currency": currency} for whose, currency, line in lines])
        return
    if as_csv:
        from penstock.report.invoice import LINE_COLUMNS, exact_cells

        exact = [
            (one.tenant, *exact_cells(line, one.digits), one.currency) for one in found.bills for line in one.lines
        ]
        print_document(csv_text([("tenant", *LINE_COLUMNS, "currency"), *exact]))
        return
    begin, end = found.from_time or format_time(found.from_ms), found.until_time or format_time(found.until_ms)
    say(f"from {begin} until {end} ({found.time_zone})")
    for one in found.bills:
        _print_bill(one)
    if not found.priced:
        say("no prices are declared: billing.prices in the cluster file")
    elif not found.bills:
        say("no use that has a price")


def _print_bill(bill: Bill) -> None:
    total = f"{money(bill.total, bill.digits)} {bill.currency}"
    say("", f"{bill.tenant}: {total}")
    dearest = sorted(bill.lines, key=lambda line: -line.amount)[:LINES_MAX]
    rows = [_cells(line, bill.digits) for line in dearest]
    if rows:
        Console().print(table(COLUMNS, rows, right=RIGHT, drop=DROP))
    left = len(bill.lines) - len(dearest)
    if left:
        rest = bill.total - sum(line.amount for line in dearest)
        lines = counted(left, "more line")
        say(f"and {lines} of {money(rest, bill.digits)} {bill.currency} together (--csv prints all)")


def _cells(line: InvoiceLine, digits: int) -> tuple[str, ...]:
    """Return the columns formatted for people."""
    from penstock.core.ledger.pricing import GIB

    unit = GIB if line.resource == "memory" else 1000
    hours = Decimal(line.quantity_ms) / (unit * HOUR_MS)
    rate = Decimal(line.tier_milli * line.factor_milli) / 1_000_000
    price = Decimal(line.micro_per_hour) / 1_000_000
    job, model = str(line.job_id) if line.job_id else "", line.model
    what = UNITS[line.resource] + (" given back" if line.kind == "refund" else "")
    about = [line.queue, line.user, job, line.job_name, f"{hours:,.4f}", what, model]
    return (*about, _shortest(price), _shortest(rate), money(line.amount, digits))


def _shortest(value: Decimal) -> str:
    return f"{value.normalize():,f}"
