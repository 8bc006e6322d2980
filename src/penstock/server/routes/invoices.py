"""Routes about invoices: issued, listed, as documents, paid, corrected."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from penstock.api import types as api
from penstock.api.invoices import InvoiceList, InvoiceView, TenantDue
from penstock.control.calendar import local_time
from penstock.core.messages.money import CorrectInvoice, MoneyDone, PayInvoice
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.model.accounts import InvoiceHead
from penstock.core.model.errors import nearest
from penstock.core.model.events import InvoiceIssued
from penstock.core.model.ids import TenantName
from penstock.core.model.invoices import Invoice
from penstock.report.invoice import DocumentError, DoesNotAddUp, Language, render_csv, render_html, render_pdf
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.routes.accounts import amount_of
from penstock.server.routes.openapi import MADE, returns
from penstock.server.services.billing import BillingService
from penstock.server.tables import SEARCH_MAX, Filter, ListQuery, ListTable, answer_with, list_query, page_of

BODY_MAX_BYTES = 65_536
PAYMENT = {"amount": "20.00", "reference": "transfer 4712"}
CORRECTION = {"amount": "10.00", "reason": "two hours of maintenance"}
DOCUMENTS = ("text/html", "application/pdf", "text/csv")
Format = Literal["json", "html", "pdf", "csv"]
NumberPath = Annotated[
    str, Path(max_length=40, description="number of the invoice or credit note", examples=["INV-000001"])
]
"""A prefix may have slashes."""
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


class NewInvoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose next month is to be invoiced."""

    tenant: str


class NewPayment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was paid for an invoice."""

    amount: str | int | float
    reference: str
    """Names it: sent again, it changes nothing."""


class NewCorrection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a credit note takes back of an invoice."""

    reason: str
    amount: str | int | float | None = None
    """Before tax; None: all that is left of it."""


class InvoiceEntry(NamedTuple):
    """An invoice or a credit note, as it is filtered and sorted."""

    head: InvoiceHead
    due: int
    zone: str

    @property
    def month(self) -> str:
        return local_time(self.zone, self.head.from_ms)[:7]

    def has(self, text: str) -> bool:
        texts = (self.head.number, self.head.tenant, self.head.corrects)
        return any(text in one.casefold() for one in texts)


_TEXT = Annotated[str, Query(max_length=200)]
_MONTH = Annotated[str, Query(max_length=7, description="such as 2026-11")]
_SEARCH = Annotated[str, Query(max_length=SEARCH_MAX, description="a text in number or tenant, whatever its case")]
INVOICES: ListTable[InvoiceEntry] = ListTable(
    key="invoices",
    view=InvoiceView,
    id=lambda one: one.head.number,
    sorts={
        "number": lambda one: one.head.number,
        "tenant": lambda one: one.head.tenant,
        "issued": lambda one: one.head.issued_ms,
        "month": lambda one: one.head.from_ms,
        "total": lambda one: one.head.total,
        "due": lambda one: one.due,
    },
    filters={
        "kind": Filter(_TEXT, "", lambda kind: lambda one: one.head.kind == kind),
        "month": Filter(_MONTH, "", lambda month: lambda one: one.month == month),
        "search": Filter(_SEARCH, "", lambda text: lambda one: one.has(text.casefold())),
    },
    groups={
        "tenant": lambda one: one.head.tenant,
        "kind": lambda one: one.head.kind,
        "month": lambda one: one.month,
    },
    limit=200,
)


def invoice_routes(app: FastAPI, backend: Backend, billing: BillingService, caller: Any) -> None:
    @app.get("/api/v1/invoices", **returns(InvoiceList))
    async def list_invoices(
        who: caller,
        query: Annotated[ListQuery, list_query(INVOICES)],
        tenant: Annotated[str | None, Query(max_length=63)] = None,
        open: Annotated[bool, Query(description="only those with an amount due")] = False,  # noqa: A002 - the API's word
    ) -> Response:
        """List invoices and credit notes, newest first, and what each tenant still has to pay."""

        def compute() -> Response:
            heads = reversed(list(backend.state.money.invoices.copy().values()))
            mine = [head for head in heads if who.sees(head.tenant) and tenant in (None, head.tenant)]
            return _listed(backend, mine, query, only_open=open)

        return await backend.pools.reads.run(compute)

    @app.post(
        "/api/v1/invoices",
        status_code=201,
        **returns(api.MoneyAnswer, body=NewInvoice, example={"tenant": "default"}, statuses=(201,)),
    )
    async def issue_invoice(request: Request, who: caller) -> Response:
        """Issue the invoice of a tenant's first month that is over and on none; by default that is automatic."""
        allow(who.administers, "issue invoices")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewInvoice)
        names = await backend.pools.heavy.run(billing.tenants)
        if wanted.tenant not in names:
            raise ApiError("not_found", f"there is no tenant '{wanted.tenant}'", hint=nearest(wanted.tenant, names))
        done = await billing.issue(TenantName(wanted.tenant))
        if done is None or not done.number:
            raise ApiError("conflict", f"tenant {wanted.tenant} has no month that is over and on no invoice")
        return answer(api.MoneyAnswer(done.number), 201)

    @app.get("/api/v1/invoices/{number:path}", **returns(Invoice, documents=DOCUMENTS))
    async def show_invoice(
        who: caller,
        number: NumberPath,
        format: Annotated[Format, Query(description="json, or a document")] = "json",  # noqa: A002 - the API's word
        language: Annotated[Literal["en", "zh"], Query()] = "en",
    ) -> Response:
        """Return an invoice or a credit note as it was issued; as JSON, a page, a PDF or a table."""
        found = await backend.pools.reads.run(_invoice, backend, who, number)
        if format == "json":
            return await backend.pools.reads.run(answer, found)
        run = backend.pools.heavy.run
        made = await backend.documents.of((number, format, language), lambda: run(_document, found, format, language))
        name = f'inline; filename="{number.replace("/", "-")}.{format}"'
        made.headers.update({"Content-Disposition": name, **_SAFE})
        return made


def _listed(backend: Backend, heads: Sequence[InvoiceHead], query: ListQuery, *, only_open: bool) -> Response:
    """Return a page of some invoices, with the sums that are due on all of them."""
    billing, accounts = backend.state.config.billing, backend.state.money
    tenants = sorted({head.tenant for head in heads})
    due = {number: left for name in tenants for number, left in accounts.account(name).open}
    owing = [head for head in heads if due.get(head.number)]
    wanted = [
        InvoiceEntry(head, due.get(head.number, 0), billing.time_zone) for head in (owing if only_open else heads)
    ]
    sums: dict[str, list[int]] = {}
    for head in owing:
        sums.setdefault(head.tenant, []).append(due[head.number])
    owed = [TenantDue(name, sum(sums[name]), len(sums[name])) for name in tenants if name in sums]
    page = page_of(INVOICES, query, wanted)
    left_out = len(page.matching) - len(page.rows) if page.cursor else 0
    shown = [_view(*one) for one in page.rows]
    found = InvoiceList(billing.currency, billing.digits, shown, billing.time_zone, owed, left_out)
    return answer_with(INVOICES, query, found, page)


def _view(head: InvoiceHead, due: int, zone: str) -> InvoiceView:
    times = [local_time(zone, time_ms) for time_ms in (head.from_ms, head.until_ms, head.issued_ms)]
    return InvoiceView(
        number=head.number,
        kind=head.kind,
        tenant=head.tenant,
        issued_ms=head.issued_ms,
        from_ms=head.from_ms,
        until_ms=head.until_ms,
        total=head.total,
        due=due,
        seq=head.seq,
        corrects=head.corrects,
        corrected=head.corrected,
        corrected_net=head.corrected_net,
        paid=head.paid,
        due_issued=head.due,
        month=times[0][:7],
        from_time=times[0],
        until_time=times[1],
        issued_time=times[2],
    )


def payment_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post(
        "/api/v1/invoices/{number:path}/payments",
        status_code=201,
        **returns(api.MoneyAnswer, body=NewPayment, example=PAYMENT, statuses=MADE),
    )
    async def pay_invoice(request: Request, who: caller, number: NumberPath) -> Response:
        """Note that an invoice was paid, or a part of it; the same reference again changes nothing."""
        allow(who.administers, "note payments")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewPayment)
        amount = amount_of(wanted.amount, backend)
        return _done(await backend.ask(PayInvoice(number, wanted.reference, amount, who.user)))

    @app.post(
        "/api/v1/invoices/{number:path}/corrections",
        status_code=201,
        **returns(api.MoneyAnswer, body=NewCorrection, example=CORRECTION, statuses=MADE),
    )
    async def correct_invoice(request: Request, who: caller, number: NumberPath) -> Response:
        """Issue a credit note for an invoice, or a part of it."""
        allow(who.administers, "correct invoices")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewCorrection)
        net = None if wanted.amount is None else amount_of(wanted.amount, backend)
        found = await backend.pools.reads.run(_invoice, backend, who, number)
        return _done(await backend.ask(CorrectInvoice(found, wanted.reason, who.user, net)))


def _done(reply: object) -> Response:
    if isinstance(reply, Refusal):
        raise refused(reply)
    assert isinstance(reply, MoneyDone)
    return answer(api.MoneyAnswer(reply.number, reply.repeated), 200 if reply.repeated else 201)


def _invoice(backend: Backend, scope: Scope, number: str) -> Invoice:
    """Return an invoice from the log. Raises: ApiError when there is none that the caller may see."""
    head = backend.state.money.invoices.get(number)
    if head is None or not scope.sees(head.tenant):
        raise ApiError("not_found", f"there is no invoice '{number}'")
    records = backend.log.records(head.seq - 1, 1)
    if not records:
        raise ApiError("overloaded", f"{number} is being issued", hint="come back in a moment")
    (record,) = records
    assert isinstance(record.event, InvoiceIssued)
    return record.event.invoice


def _document(invoice: Invoice, kind: Format, language: Language) -> Response:
    try:
        if kind == "csv":
            return Response(render_csv(invoice), media_type="text/csv")
        if kind == "html":
            return Response(render_html(invoice, language), media_type="text/html")
        return Response(render_pdf(invoice, language), media_type="application/pdf")
    except DoesNotAddUp as error:  # nothing issues such a one: the log has it from elsewhere
        raise ApiError("conflict", error.message, hint=error.hint) from error
    except DocumentError as error:
        raise ApiError("unavailable", error.message, hint=error.hint) from error
