"""Commands about money: how it stands, credits, the ledger, invoices."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DataOption, JsonOption, client_of
from penstock.cli.output import Console, print_document, print_encoded, print_json, say, table
from penstock.core.model.amounts import format_time

NumberArgument = Annotated[str, typer.Argument(help="Number of the invoice.")]
ReferenceOption = Annotated[str, typer.Option("--reference", "-r", help="Names it: sent again, it changes nothing.")]

invoice = typer.Typer(no_args_is_help=True, help="Show, issue, pay and correct invoices.")


def account(
    tenant: Annotated[str, typer.Argument(help="Only this tenant.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Show how tenants' money stands: credit, what is owed, budgets and where they end at this rate."""
    from penstock.core.ledger.bill import money

    found = client_of(data).accounts(tenant)
    if json:
        print_json(found)
        return
    if not found.priced:
        say("no prices are declared: billing.prices in the cluster file")
    columns = ("tenant", "balance", "credit", "owed", "unbilled", "month", "a day", "held")
    rows = []
    for one in found.accounts:
        amounts = (one.balance, one.credit, one.owed, one.unbilled, one.month_spent, one.day_cost)
        rows.append((one.tenant, *(money(amount, found.digits) for amount in amounts), one.held))
    Console().print(table(columns, rows, right=columns[1:7]))
    say(f"amounts in {found.currency}")
    for one in found.accounts:
        for budget in one.budgets:
            spent, whole = money(budget.spent, found.digits), money(budget.amount, found.digits)
            low, high = money(budget.forecast_low, found.digits), money(budget.forecast_high, found.digits)
            kind = "hard budget" if budget.hard else "budget"
            until = format_time(budget.until_ms)
            percent = budget.spent * 100 // budget.amount
            say(f"{one.tenant}: {kind} {budget.name}: {spent} of {whole} ({percent} %), at this rate")
            say(f"  {low} to {high} by {until}")


def credit(
    tenant: Annotated[str, typer.Argument(help="Whose credit.")],
    amount: Annotated[str, typer.Argument(help="In the currency, such as 1250.00.")],
    reference: ReferenceOption,
    grant: Annotated[bool, typer.Option("--grant", help="It is given, not paid.")] = False,
    expires: Annotated[str, typer.Option(help="When what is left is lost, such as 2027-01-01T00:00+01:00.")] = "",
    note: Annotated[str, typer.Option(help="Why.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Add what a tenant paid in advance, or is granted."""
    kind = "grant" if grant else "payment"
    body = {"amount": amount, "reference": reference, "kind": kind, "expires": expires, "note": note}
    done = client_of(data).add_credit(tenant, body)
    if json:
        print_json(done)
    else:
        say(f"{reference} was there before: nothing changed" if done.repeated else f"{amount} added to {tenant}")


def reverse(
    record: Annotated[int, typer.Argument(help="Of the credit or payment, as `penstock ledger` shows it.")],
    reason: Annotated[str, typer.Option(help="Why; stands in the ledger.")],
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Take back a credit or a payment that was entered wrongly, or did not come; of a grant what is left."""
    done = client_of(data).reverse(record, reason)
    if json:
        print_json(done)
    else:
        say(f"record {record} is reversed{f': {done.number} is open again' if done.number else ''}")


def ledger(
    tenant: Annotated[str, typer.Argument(help="Only this tenant.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Show the double-entry journal; each entry adds up to zero."""
    from penstock.core.ledger.bill import money

    found = client_of(data).journal(tenant)
    if json:
        print_json(found)
        return
    rows = []
    for entry in found.entries:
        for at, posting in enumerate(entry.postings):
            about = (str(entry.seq), format_time(entry.time_ms), entry.text) if at == 0 else ("", "", "")
            debit = money(posting.amount, found.digits) if posting.amount > 0 else ""
            paid = money(-posting.amount, found.digits) if posting.amount < 0 else ""
            rows.append((*about, posting.account, debit, paid))
    columns = ("record", "time", "entry", "account", "debit", "credit")
    Console().print(table(columns, rows, right=("record", "debit", "credit")))
    balances = [(name, money(amount, found.digits)) for name, amount in found.balances.items()]
    Console().print(table(("account", "balance"), balances, right=("balance",)))


@invoice.command("list")
def list_invoices(
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """List invoices and credit notes, newest first."""
    from penstock.core.ledger.bill import money

    found = client_of(data).invoices(tenant)
    if json:
        print_json(found)
        return
    rows = []
    for head in found.invoices:
        amounts = (head.total, head.due, head.corrected, head.paid)
        shown = [money(amount, found.digits) for amount in amounts]
        rows.append((head.number, head.tenant, format_time(head.from_ms)[:10], *shown, head.corrects))
    columns = ("number", "tenant", "from", "total", "due", "corrected", "paid", "corrects")
    Console().print(table(columns, rows, right=columns[3:7]))


@invoice.command("show")
def show_invoice(
    number: NumberArgument,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file: .pdf, .html, .csv or .json.")] = None,
    language: Annotated[str, typer.Option(help="en or zh.")] = "en",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Show an invoice as it was issued, or write it as a document."""
    kind = "json" if json else out.suffix.lstrip(".").lower() if out is not None else "csv"
    found = client_of(data).invoice_document(number, kind, language)
    if out is None:
        if json:
            print_encoded(found)
        else:
            print_document(found.decode())
        return
    out.write_bytes(found)
    say(f"{number} is in {out} ({len(found):,} bytes)")


@invoice.command("issue")
def issue_invoice(
    tenant: Annotated[str, typer.Argument(help="Whose.")], data: DataOption = None, json: JsonOption = False
) -> None:
    """Issue the invoice of the first month that is over and on none; by default that happens by itself."""
    done = client_of(data).issue_invoice(tenant)
    if json:
        print_json(done)
    else:
        say(done.number)


@invoice.command("pay")
def pay_invoice(
    number: NumberArgument,
    amount: Annotated[str, typer.Argument(help="In the currency, such as 1250.00.")],
    reference: ReferenceOption,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Note that an invoice was paid, or a part of it."""
    done = client_of(data).pay_invoice(number, amount, reference)
    if json:
        print_json(done)
    else:
        say(f"{reference} was noted before" if done.repeated else f"{amount} noted for {number}")


@invoice.command("correct")
def correct_invoice(
    number: NumberArgument,
    reason: Annotated[str, typer.Option(help="Stands on the credit note.")],
    amount: Annotated[str, typer.Option(help="Before tax; by default all that is left of it.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Issue a credit note for an invoice, or a part of it: what was issued never changes."""
    done = client_of(data).correct_invoice(number, reason, amount or None)
    if json:
        print_json(done)
    else:
        say(f"{done.number} corrects {number}")
