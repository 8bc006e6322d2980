"""`penstock bill`: what each tenant owes for a month, and for what."""

import csv
import sys
from decimal import Decimal
from pathlib import Path

import typer

from penstock.cli.options import client_of
from penstock.cli.output import console, plain, print_json, table
from penstock.core.amounts import format_time
from penstock.core.ledger.bill import Bill, Line, money
from penstock.core.ledger.pricing import GIB
from penstock.core.model.prices import HOUR_MS

LINES_MAX = 30
COLUMNS = ("tenant", "queue", "user", "job", "name", "resource", "model", "unit_hours", "per_hour", "rate", "amount")


def show_bills(tenant: str, month: str, data: Path | None, *, as_json: bool, as_csv: bool) -> None:
    found = client_of(data).bills(tenant, month)
    if as_json:
        print_json(found)
        return
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow((*COLUMNS, "currency"))
        for bill in found.bills:
            writer.writerows(
                (_harmless(bill.tenant), *_cells(line, bill.digits, ""), bill.currency) for line in bill.lines
            )
        return
    typer.echo(f"from {format_time(found.from_ms)} until {format_time(found.until_ms)}")
    for bill in found.bills:
        _print_bill(bill)
    if not found.priced:
        typer.echo("no prices are declared: billing.prices in the cluster file")
    elif not found.bills:
        typer.echo("nobody held anything that has a price")


def _print_bill(bill: Bill) -> None:
    total = f"{money(bill.total, bill.digits)} {bill.currency}"
    typer.echo(f"\n{bill.tenant}: {total}")
    dearest = sorted(bill.lines, key=lambda line: -line.amount)[:LINES_MAX]
    rows = [tuple(map(plain, _cells(line, bill.digits, ","))) for line in dearest]
    if rows:
        console().print(table(COLUMNS[1:], rows, right=("job", "unit_hours", "per_hour", "rate", "amount")))
    left = bill.lines[LINES_MAX:] if len(bill.lines) > LINES_MAX else ()
    if left:
        rest = bill.total - sum(line.amount for line in dearest)
        typer.echo(
            f"and {len(left):,} more lines of {money(rest, bill.digits)} {bill.currency} together (--csv has all)"
        )


def _cells(line: Line, digits: int, comma: str) -> tuple[str, ...]:
    """Return the columns; without `comma` in full, for programs, else as people read them."""
    unit = GIB if line.resource == "memory" else 1000
    hours = Decimal(line.quantity_ms) / (unit * HOUR_MS)
    rate = Decimal(line.tier_milli * line.factor_milli) / 1_000_000
    price = Decimal(line.micro_per_hour) / 1_000_000
    amount = money(line.amount, digits)
    about = [line.queue, line.user, str(line.job_id), line.job_name, line.resource, line.model]
    if comma:
        return (*about, f"{hours:,.4f}", f"{price.normalize():f}", f"{rate.normalize():f}", amount)
    return (*map(_harmless, about), f"{hours:.12f}", f"{price:f}", f"{rate:f}", amount.replace(",", ""))


def _harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula, in one line."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown
