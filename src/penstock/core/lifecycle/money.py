"""Decisions about money: credits, payments, credit notes, what is due to be posted, and tenants that are held."""

from fractions import Fraction

import msgspec
from msgspec.structs import replace

from penstock.core.amounts import format_time
from penstock.core.errors import Problem, nearest
from penstock.core.ledger.accounts import MoneyEvent
from penstock.core.ledger.bill import half_up, money
from penstock.core.lifecycle.requests import Refusal
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.accounts import CreditKind
from penstock.core.model.events import (
    AttemptStopRequested,
    CreditAdded,
    InvoiceIssued,
    InvoicePaid,
    TenantHeld,
)
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.invoices import Invoice

AMOUNT_MAX = 10**15
TEXT_MAX = 200


class AddCredit(msgspec.Struct, frozen=True):
    """A tenant paid in advance, or is granted something; the same reference again changes nothing."""

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
    """Issue a credit note for all that is left of an invoice, or for a part of it (net, before tax)."""

    invoice: Invoice
    reason: str
    by: UserName
    net: int | None = None


class PostAccount(msgspec.Struct, frozen=True):
    """Write what is due into an account, worked out from it as it was after record `changed_seq`."""

    tenant: TenantName
    changed_seq: int
    events: tuple[MoneyEvent, ...]


MoneyRequest = AddCredit | PayInvoice | CorrectInvoice | PostAccount


class MoneyDone(msgspec.Struct, frozen=True):
    """It is in the log, or was before (`repeated`). `number` is that of what was issued."""

    number: str = ""
    repeated: bool = False


def decide(tx: Transaction, request: MoneyRequest) -> MoneyDone | Refusal:
    """Carry a request out, or say why not."""
    match request:
        case AddCredit():
            return _add_credit(tx, request)
        case PayInvoice():
            return _pay(tx, request)
        case CorrectInvoice():
            return _correct(tx, request)
        case PostAccount():
            return _post(tx, request)


def _refused(code: str, field: str, text: str, value: object, hint: str = "", status: str = "invalid_input") -> Refusal:
    return Refusal(status, (Problem(code, field, text, str(value)[:80], hint),))


def _add_credit(tx: Transaction, request: AddCredit) -> MoneyDone | Refusal:
    names = [t.name for t in tx.state.config.tenants]
    if request.tenant not in names and request.tenant not in tx.state.money.of:
        text = f"there is no tenant '{request.tenant}'"
        return _refused("unknown_tenant", "tenant", text, request.tenant, nearest(request.tenant, names), "not_found")
    wrong = _bad_amount(request.amount) or _bad_text("reference", request.reference)
    if wrong is not None:
        return wrong
    if 0 < request.expires_ms <= tx.now_ms:
        text = f"expires is {format_time(request.expires_ms)}, expected a later time than now"
        return _refused("bad_value", "expires", text, request.expires_ms)
    known = tx.state.money.account(request.tenant).known_amount(request.reference)
    if known is not None:
        return _again(known, request.amount, request.reference)
    tx.emit(
        CreditAdded(
            request.tenant,
            request.reference,
            request.amount,
            request.kind,
            request.expires_ms,
            request.by,
            request.note[:TEXT_MAX],
        )
    )
    return MoneyDone()


def _again(known: int, amount: int, reference: str) -> MoneyDone | Refusal:
    if known == amount:
        return MoneyDone(repeated=True)
    text = f"reference '{reference}' came before, with another amount"
    return _refused("reference_reused", "reference", text, reference, "use a new one", "conflict")


def _bad_amount(amount: int) -> Refusal | None:
    if 0 < amount <= AMOUNT_MAX:
        return None
    return _refused("bad_value", "amount", f"amount is {amount}, expected one above 0", amount)


def _bad_text(field: str, text: str) -> Refusal | None:
    if 0 < len(text) <= TEXT_MAX and text.isprintable():
        return None
    return _refused("bad_value", field, f"{field} is '{text[:40]}', expected 1 to {TEXT_MAX} characters", text)


def _taken(field: str, number: str) -> Refusal:
    """Refuse a number that was given before: the prefixes of invoices and credit notes have changed places."""
    text = f"{number} was issued before"
    hint = "choose a prefix that was never used for the other kind"
    return _refused("number_taken", f"billing.invoices.{field}", text, number, hint, "conflict")


def _pay(tx: Transaction, request: PayInvoice) -> MoneyDone | Refusal:
    head = tx.state.money.invoices.get(request.number)
    if head is None or head.kind != "invoice":
        text = f"there is no invoice '{request.number}'"
        return _refused("unknown_invoice", "number", text, request.number, status="not_found")
    wrong = _bad_amount(request.amount) or _bad_text("reference", request.reference)
    if wrong is not None:
        return wrong
    account = tx.state.money.account(head.tenant)
    known = account.known_amount(request.reference)
    if known is not None:
        return _again(known, request.amount, request.reference)
    left = account.open_on(head.number)
    if request.amount > left:
        digits = tx.state.config.billing.digits
        text = f"amount is {money(request.amount, digits)}, and {money(max(0, left), digits)} are open on {head.number}"
        return _refused("too_much", "amount", text, request.amount, "what is paid beyond it is a credit", "conflict")
    tx.emit(InvoicePaid(head.tenant, head.number, request.reference, request.amount, request.by))
    return MoneyDone(head.number)


def _correct(tx: Transaction, request: CorrectInvoice) -> MoneyDone | Refusal:
    accounts, wrong_one = tx.state.money, request.invoice
    head = accounts.invoices.get(wrong_one.number)
    if head is None or head.kind != "invoice":
        text = f"there is no invoice '{wrong_one.number}'"
        return _refused("unknown_invoice", "number", text, wrong_one.number, status="not_found")
    wrong = _bad_text("reason", request.reason)
    if wrong is not None:
        return wrong
    whole = request.net is None and not head.corrected
    left_net = wrong_one.net - head.corrected_net
    net = left_net if request.net is None else request.net
    if not 0 < net <= left_net:
        digits = wrong_one.digits
        text = f"amount is {money(net, digits)}, and {money(left_net, digits)} of {head.number} are not corrected yet"
        return _refused("too_much", "amount", text, net, status="conflict")
    tax = _tax_of(wrong_one, head.corrected_net + net) - (head.corrected - head.corrected_net)
    number = accounts.next_number("credit_note", tx.state.config.billing.credit_note_prefix)
    if number in accounts.invoices:
        return _taken("credit_note_prefix", number)
    lines = tuple(
        replace(line, quantity_ms=-line.quantity_ms, full=-line.full, amount=-line.amount) for line in wrong_one.lines
    )
    tx.emit(
        InvoiceIssued(
            replace(
                wrong_one,
                number=number,
                kind="credit_note",
                issued_ms=tx.now_ms,
                lines=lines if whole else (),
                net=-net,
                tax=-tax,
                total=-net - tax,
                from_credit=0,
                due=-net - tax,
                corrects=head.number,
                reason=request.reason,
                issued_by=request.by,
            )
        )
    )
    return MoneyDone(number)


def _tax_of(invoice: Invoice, net: int) -> int:
    """Return the tax on a part of an invoice; on all of it what the invoice says. So parts add up to it."""
    return invoice.tax if net == invoice.net else half_up(Fraction(net * invoice.tax_milli, 1000))


def _post(tx: Transaction, request: PostAccount) -> MoneyDone | Refusal:
    """Write what was worked out, unless the account has changed since: then it is worked out anew."""
    accounts = tx.state.money
    if accounts.account(request.tenant).changed_seq != request.changed_seq:
        return MoneyDone(repeated=True)
    number = ""
    for event in request.events:
        if isinstance(event, InvoiceIssued):
            number = accounts.next_number("invoice", tx.state.config.billing.invoice_prefix)
            if number in accounts.invoices:
                return _taken("prefix", number)
            event = InvoiceIssued(replace(event.invoice, number=number, issued_ms=tx.now_ms))
        tx.emit(event)
        if isinstance(event, TenantHeld) and event.suspend:
            _make_leave(tx, event.tenant)
    return MoneyDone(number)


def _make_leave(tx: Transaction, tenant: TenantName) -> None:
    """Ask what runs of a tenant to save and leave; it waits until the tenant is released."""
    running = tx.state.derived.active
    for job_id in sorted(i for i, job in running.items() if job.spec.tenant == tenant):
        job = tx.state.jobs[job_id]
        stop = job.attempt.stop if job.attempt is not None else None
        if job.attempt is not None and (stop is None or stop.reason == "suspended"):
            tx.emit(AttemptStopRequested(job_id, job.attempt.number, "held", job.spec.grace_ms))
