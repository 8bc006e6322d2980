"""Commands about money: `account`, `credit`, `reverse`, `ledger`, `invoice`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.api.invoices import InvoiceView
from penstock.api.types import AccountView
from penstock.cli.forms import chosen
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_document, print_done, print_encoded, print_json, say, table
from penstock.cli.place import client_of
from penstock.cli.progress import waiting
from penstock.core.model.quantities import format_time, money
from penstock.core.model.words import counted

NumberArgument = Annotated[str, typer.Argument(help="Number of the invoice.")]
TenantArgument = Annotated[str, typer.Argument(help="Only this tenant.")]
ReferenceOption = Annotated[str, typer.Option("--reference", "-r", help="Reference; repeated, it changes nothing.")]

invoice = typer.Typer(help="Show, issue, pay and correct invoices.")


def account(
    tenant: TenantArgument = "",
    json: JsonOption = False,
) -> None:
    """Show tenants' balances, credit, and budgets with forecasts."""
    found = client_of().accounts(tenant)
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
    drop = ("a day", "unbilled", "month", "owed", "credit")
    accounts = found.accounts
    Console().print(
        table(columns, rows, right=columns[1:7], drop=drop, text=("held",), of=accounts, kind=AccountView, key="tenant")
    )
    say(f"amounts in {found.currency}")
    for one in found.accounts:
        for budget in one.budgets:
            spent, whole = money(budget.spent, found.digits), money(budget.amount, found.digits)
            low, high = money(budget.forecast_low, found.digits), money(budget.forecast_high, found.digits)
            kind = "hard budget" if budget.hard else "budget"
            until = budget.until_time or format_time(budget.until_ms)
            percent = budget.spent * 100 // budget.amount
            say(f"{one.tenant}: {kind} {budget.name}: {spent} of {whole} ({percent} %), at this rate")
            say(f"  {low} to {high} by {until}")


def credit(
    tenant: Annotated[str, typer.Argument(help="Tenant that gets the credit.")],
    amount: Annotated[str, typer.Argument(help="In the currency, such as 1250.00.")],
    reference: ReferenceOption,
    grant: Annotated[bool, typer.Option("--grant", help="A grant, not a payment.")] = False,
    expires: Annotated[str, typer.Option(help="When the rest expires, such as 2027-01-01T00:00+01:00.")] = "",
    note: Annotated[str, typer.Option(help="Note, shown in the ledger.")] = "",
    json: JsonOption = False,
) -> None:
    """Add a payment or a grant to a tenant's credit."""
    kind = "grant" if grant else "payment"
    body = {"amount": amount, "reference": reference, "kind": kind, "expires": expires, "note": note}
    done = client_of().add_credit(tenant, body)
    text = f"{reference} was there before: nothing changed" if done.repeated else f"{amount} added to {tenant}"
    print_done(done, text, as_json=json)


def reverse(
    record: Annotated[
        int, typer.Argument(help="Record of the credit or payment, as `penstock money ledger` shows it.")
    ],
    reason: Annotated[str, typer.Option(help="Reason, shown in the ledger.")],
    json: JsonOption = False,
) -> None:
    """Reverse a credit or payment. Of a grant, what is left is taken back."""
    done = client_of().reverse(record, reason)
    text = f"record {record} is reversed{f': {done.number} is open again' if done.number else ''}"
    print_done(done, text, as_json=json)


def ledger(
    tenant: TenantArgument = "",
    json: JsonOption = False,
) -> None:
    """Show the double-entry journal. Each entry adds up to zero."""
    found = client_of().journal(tenant)
    if json:
        print_json(found)
        return
    rows, items = [], []
    for entry in found.entries:
        for at, posting in enumerate(entry.postings):
            about = (str(entry.seq), entry.time or format_time(entry.time_ms), entry.text) if at == 0 else ("", "", "")
            debit = money(posting.amount, found.digits) if posting.amount > 0 else ""
            paid = money(-posting.amount, found.digits) if posting.amount < 0 else ""
            rows.append((*about, posting.account, debit, paid))
            record = {"record": entry.seq, "time_ms": entry.time_ms, "text": entry.text}
            items.append({**record, "account": posting.account, "amount": posting.amount})
    drop = ("time", "entry")
    columns = ("record", "time", "entry", "account", "debit", "credit")
    Console().print(
        table(columns, rows, right=("record", *columns[4:]), drop=drop, text=("entry",), of=items, key="record")
    )
    balances = [(name, money(amount, found.digits)) for name, amount in found.balances.items()]
    Console().print(table(("account", "balance"), balances, right=("balance",)))


@invoice.command("list")
def list_invoices(
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    only_open: Annotated[bool, typer.Option("--open", help="Only invoices with an amount due.")] = False,
    json: JsonOption = False,
) -> None:
    """List invoices and credit notes, newest first, and what each tenant still has to pay."""
    found = client_of().invoices(tenant, only_open=only_open)
    if json:
        print_json(found)
        return
    if not found.invoices and not chosen().bare:
        say("nothing is open" if only_open else "no invoices")
        return
    rows = []
    for head in found.invoices:
        amounts = (head.total, head.paid, head.corrected, head.due)
        shown = [money(amount, found.digits) for amount in amounts]
        rows.append((head.number, head.tenant, head.month, head.issued_time[:10], *shown, head.corrects))
    columns = ("number", "tenant", "month", "issued", "total", "paid", "corrected", "due", "corrects")
    drop = ("corrects", "corrected", "paid", "issued", "month")
    Console().print(
        table(columns, rows, right=columns[4:8], drop=drop, of=found.invoices, kind=InvoiceView, key="number")
    )
    if found.left_out:
        say(f"and {counted(found.left_out, 'older one')}: --tenant TENANT lists those of one tenant")
    say(f"amounts in {found.currency}; months of {found.time_zone}")
    for one in found.open:
        owes = f"{money(one.due, found.digits)} {found.currency} on {counted(one.invoices, 'invoice')}"
        say(f"{one.tenant} owes {owes}")


@invoice.command("show")
def show_invoice(
    number: NumberArgument,
    out: Annotated[Path | None, typer.Option("--out", help="File to write: .pdf, .html, .csv or .json.")] = None,
    language: Annotated[str, typer.Option(help="en or zh.")] = "en",
    json: JsonOption = False,
) -> None:
    """Show an invoice as issued, or write it as a document."""
    kind = "json" if json else out.suffix.lstrip(".").lower() if out is not None else "csv"
    with waiting(f"making the {kind} document", quiet=json):
        found = client_of().invoice_document(number, kind, language)
    if out is None:
        if json:
            print_encoded(found)
        else:
            print_document(found.decode())
        return
    out.write_bytes(found)
    say(f"{number} is in {out} ({len(found):,} bytes)")


@invoice.command("issue")
def issue_invoice(tenant: Annotated[str, typer.Argument(help="Tenant to invoice.")], json: JsonOption = False) -> None:
    """Issue the invoice of the oldest month not invoiced yet; by default this happens automatically."""
    done = client_of().issue_invoice(tenant)
    print_done(done, done.number, as_json=json)


@invoice.command("pay")
def pay_invoice(
    number: NumberArgument,
    amount: Annotated[str, typer.Argument(help="In the currency, such as 1250.00.")],
    reference: ReferenceOption,
    json: JsonOption = False,
) -> None:
    """Record a payment of an invoice, or of a part of it."""
    done = client_of().pay_invoice(number, amount, reference)
    print_done(done, f"{reference} was noted before" if done.repeated else f"{amount} noted for {number}", as_json=json)


@invoice.command("correct")
def correct_invoice(
    number: NumberArgument,
    reason: Annotated[str, typer.Option(help="Reason, shown on the credit note.")],
    amount: Annotated[str, typer.Option(help="Before tax; by default all that is left of it.")] = "",
    json: JsonOption = False,
) -> None:
    """Issue a credit note for an invoice, or a part of it; an issued invoice never changes."""
    done = client_of().correct_invoice(number, reason, amount or None)
    print_done(done, f"{done.number} corrects {number}", as_json=json)
