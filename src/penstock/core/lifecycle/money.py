"""Decisions about money: credits, payments, credit notes, due postings, and tenants that are held."""

from msgspec.structs import replace

from penstock.core.ledger.bill import wrong_sum
from penstock.core.ledger.settlement import tax_on, to_payments
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.money import (
    AddCredit,
    CorrectInvoice,
    MoneyDone,
    MoneyRequest,
    PayInvoice,
    PostAccount,
    ReverseEntry,
)
from penstock.core.messages.requests import Refusal
from penstock.core.model.accounts import CreditKind
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.events import (
    AttemptStopRequested,
    CreditAdded,
    InvoiceIssued,
    InvoicePaid,
    MoneyReversed,
    TenantHeld,
)
from penstock.core.model.ids import TenantName
from penstock.core.model.invoices import Invoice
from penstock.core.model.quantities import format_time, money

AMOUNT_MAX = 10**15
TEXT_MAX = 200


def decide(tx: Transaction, request: MoneyRequest) -> MoneyDone | Refusal:
    """Carry a request out, or say why not."""
    match request:
        case AddCredit():
            return _add_credit(tx, request)
        case PayInvoice():
            return _pay(tx, request)
        case CorrectInvoice():
            return _correct(tx, request)
        case ReverseEntry():
            return _reverse(tx, request)
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
    whole = request.net is None and not head.corrected_net
    left_net = wrong_one.net - head.corrected_net
    net = left_net if request.net is None else request.net
    if not 0 < net <= left_net:
        digits = wrong_one.digits
        text = f"amount is {money(net, digits)}, and {money(left_net, digits)} of {head.number} are not corrected yet"
        return _refused("too_much", "amount", text, net, status="conflict")
    taxed = [min(part, wrong_one.net - wrong_one.granted) for part in (head.corrected_net, head.corrected_net + net)]
    granted = net - (taxed[1] - taxed[0])
    tax = _tax_of(wrong_one, taxed[1]) - (head.corrected - taxed[0])
    number = accounts.next_number("credit_note", tx.state.config.billing.credit_note_prefix)
    if number in accounts.invoices:
        return _taken("credit_note_prefix", number)
    lines = tuple(
        replace(line, quantity_ms=-line.quantity_ms, full=-line.full, amount=-line.amount) for line in wrong_one.lines
    )
    note = replace(
        wrong_one,
        number=number,
        kind="credit_note",
        issued_ms=tx.now_ms,
        lines=lines if whole else (),
        net=-net,
        tax=-tax,
        total=granted - net - tax,
        from_credit=0,
        due=granted - net - tax,
        corrects=head.number,
        reason=request.reason,
        issued_by=request.by,
        granted=-granted,
    )
    account = accounts.account(head.tenant)
    of_it = [one for one in account.settled if one.number == head.number]
    credit = max(0, -note.total - account.open_on(head.number))
    tx.emit(InvoiceIssued(note, to_payments(of_it, note, credit)))
    return MoneyDone(number)


def _tax_of(invoice: Invoice, taxed: int) -> int:
    """Return the tax on a part of an invoice's taxed amount; on all of it the invoice's own tax, so parts add up."""
    return invoice.tax if taxed == invoice.net - invoice.granted else tax_on(taxed, invoice.tax_milli)


def _reverse(tx: Transaction, request: ReverseEntry) -> MoneyDone | Refusal:
    """Reverse the whole entry, or the rest of a grant. A payment that was spent leaves a balance below zero."""
    event, record, account = request.event, request.record, tx.state.money.account(request.event.tenant)
    wrong = _bad_text("reason", request.reason)
    if wrong is not None:
        return wrong
    if record in account.reversed:
        text = f"record {record} ({event.reference}) was reversed before"
        return _refused("reversed_before", "record", text, record, status="conflict")
    if isinstance(event, InvoicePaid):
        tx.emit(_reversal(request, event.amount, number=event.number))
        return MoneyDone(event.number)
    if 0 < event.expires_ms <= tx.now_ms:
        text = f"credit {event.reference} expired at {format_time(event.expires_ms)}"
        return _refused("expired", "record", text, record, "nothing is left to take back", "conflict")
    named = event.reference, event.kind, event.expires_ms, request.time_ms
    lots = (lot for lot in account.lots if (lot.reference, lot.kind, lot.expires_ms, lot.added_ms) == named)
    left = sum(lot.left for lot in lots)
    if event.kind == "grant" and not left:
        text = f"nothing is left of grant {event.reference}: what it has paid stays paid"
        return _refused("spent", "record", text, record, status="conflict")
    tx.emit(
        _reversal(
            request,
            left if event.kind == "grant" else event.amount,
            kind=event.kind,
            expires_ms=event.expires_ms,
            added_ms=request.time_ms,
        )
    )
    return MoneyDone()


def _reversal(
    request: ReverseEntry,
    amount: int,
    *,
    kind: CreditKind = "payment",
    number: str = "",
    expires_ms: int = 0,
    added_ms: int = 0,
) -> MoneyReversed:
    event = request.event
    return MoneyReversed(
        event.tenant,
        request.record,
        event.reference,
        amount,
        kind,
        number,
        expires_ms,
        added_ms,
        request.by,
        request.reason,
    )


def _post(tx: Transaction, request: PostAccount) -> MoneyDone | Refusal:
    """Write the computed events, unless the account has changed since: then they are computed anew."""
    accounts = tx.state.money
    if _has_changed(tx, request):
        return MoneyDone(repeated=True)
    billing, number = tx.state.config.billing, ""
    for event in request.events:
        if isinstance(event, InvoiceIssued) and (wrong := wrong_sum(event.invoice)):
            return _refused("does_not_add_up", "events", f"invoice of {request.tenant}: {wrong}", "", status="conflict")
    for event in request.events:
        if isinstance(event, InvoiceIssued):
            kind, note = event.invoice.kind, event.invoice.kind == "credit_note"
            number = accounts.next_number(kind, billing.credit_note_prefix if note else billing.invoice_prefix)
            if number in accounts.invoices:
                return _taken("credit_note_prefix" if note else "prefix", number)
            event = replace(event, invoice=replace(event.invoice, number=number, issued_ms=tx.now_ms))
        tx.emit(event)
        if isinstance(event, TenantHeld) and event.suspend:
            _make_leave(tx, event.tenant)
    return MoneyDone(number)


def _has_changed(tx: Transaction, request: PostAccount) -> bool:
    return tx.state.money.account(request.tenant).changed_seq != request.changed_seq


def _make_leave(tx: Transaction, tenant: TenantName) -> None:
    """Ask all running attempts of a tenant to save and leave; the jobs wait until the tenant is released."""
    running = tx.state.indexes.active
    for job_id in sorted(i for i, job in running.items() if job.spec.tenant == tenant):
        job = tx.state.jobs[job_id]
        stop = job.attempt.stop if job.attempt is not None else None
        if job.attempt is not None and (stop is None or stop.reason == "suspended"):
            tx.emit(AttemptStopRequested(job_id, job.attempt.number, "held", job.spec.grace_ms))
