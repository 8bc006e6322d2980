"""Routes about tenants' money: how it stands, credits, the ledger."""

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api import types as api
from penstock.control.calendar import local_time
from penstock.core.config.billing import read_amount
from penstock.core.config.reader import Reader
from penstock.core.ledger.budgets import policy_of
from penstock.core.messages.money import AddCredit, MoneyDone, ReverseEntry
from penstock.core.messages.requests import Refusal
from penstock.core.model.accounts import CreditKind
from penstock.core.model.answers import JournalEntry
from penstock.core.model.cluster import Tenant
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.events import CreditAdded, InvoicePaid
from penstock.core.model.ids import TenantName
from penstock.core.model.quantities import parse_time_ms
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.lists import ACCOUNTS, LEDGER
from penstock.server.routes.openapi import MADE, returns
from penstock.server.services.billing import BillingService
from penstock.server.tables import ListQuery, list_query, paged

BODY_MAX_BYTES = 65_536
EXAMPLE = {"amount": "1250.00", "reference": "transfer 4711", "expires": "2099-01-01T00:00Z"}
REVERSAL = {"reason": "the transfer was returned"}
TenantPath = Annotated[str, Path(max_length=63, description="name of the tenant", examples=["default"])]


class NewCredit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tenant paid in advance, or is granted."""

    amount: str | int | float
    """In the currency, such as `1250.00`."""
    reference: str
    """Names it: sent again, it changes nothing."""
    kind: CreditKind = "payment"
    expires: str = ""
    """A time with its offset; empty: never."""
    note: str = ""


class NewReversal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a credit or a payment is taken back."""

    reason: str


def account_routes(app: FastAPI, backend: Backend, service: BillingService, caller: Any) -> None:
    @app.get("/api/v1/accounts", **returns(api.AccountList))
    async def list_accounts(
        who: caller,
        query: Annotated[ListQuery, list_query(ACCOUNTS)],
        tenant: Annotated[str | None, Query(max_length=63, description="only this one")] = None,
    ) -> Response:
        """Say how the money of each tenant stands: credit, what is owed, budgets and where they end at this rate."""

        def compute() -> Response:
            names = [name for name in service.tenants() if who.sees(name)]
            _check_known(tenant, names)
            found = [_view(backend, service, name) for name in (names if tenant is None else [TenantName(tenant)])]
            billing = backend.state.config.billing
            said, priced = (billing.currency, billing.digits), bool(billing.tariff.prices)
            return paged(ACCOUNTS, query, found, lambda rows: api.AccountList(*said, priced, rows, billing.time_zone))

        question = ("accounts", who.sight, tenant, query.question)
        return await backend.past.of(question, lambda: backend.pools.heavy.run(compute), backend.durable_seq)

    @app.post(
        "/api/v1/accounts/{tenant}/credits",
        status_code=201,
        **returns(api.MoneyAnswer, body=NewCredit, example=EXAMPLE, statuses=MADE),
    )
    async def add_credit(request: Request, who: caller, tenant: TenantPath) -> Response:
        """Add what a tenant paid in advance, or is granted; the same reference again changes nothing."""
        allow(who.administers, "add credit")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewCredit)
        amount = amount_of(wanted.amount, backend)
        reply = await backend.ask(
            AddCredit(
                TenantName(tenant), wanted.reference, amount, wanted.kind, who.user, _time(wanted.expires), wanted.note
            )
        )
        if isinstance(reply, Refusal):
            raise refused(reply)
        assert isinstance(reply, MoneyDone)
        return answer(api.MoneyAnswer("", reply.repeated), 200 if reply.repeated else 201)


def ledger_routes(app: FastAPI, backend: Backend, service: BillingService, caller: Any) -> None:
    @app.post(
        "/api/v1/ledger/{record}/reversal",
        status_code=201,
        **returns(api.MoneyAnswer, body=NewReversal, example=REVERSAL, statuses=(201,)),
    )
    async def reverse_entry(
        request: Request,
        who: caller,
        record: Annotated[int, Path(ge=1, le=2**53, description="number of its record", examples=[7])],
    ) -> Response:
        """Take back a credit or a payment that was entered wrongly, or did not come; of a grant what is left.

        What was spent of a payment leaves a balance below zero.
        """
        allow(who.administers, "reverse credits and payments")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewReversal)
        found = await backend.pools.reads.run(backend.log.records, record - 1, 1)
        if not found or not isinstance(found[0].event, CreditAdded | InvoicePaid):
            raise ApiError("not_found", f"record {record} is no credit and no payment")
        asked = ReverseEntry(record, found[0].time_ms, found[0].event, wanted.reason, who.user)
        reply = await backend.ask(asked)
        if isinstance(reply, Refusal):
            raise refused(reply)
        assert isinstance(reply, MoneyDone)
        return answer(api.MoneyAnswer(reply.number), 201)

    @app.get("/api/v1/ledger", **returns(api.Journal))
    async def show_ledger(
        who: caller,
        query: Annotated[ListQuery, list_query(LEDGER)],
        tenant: Annotated[str | None, Query(max_length=63, description="only its entries")] = None,
        after: Annotated[int, Query(ge=0, le=2**53, description="only entries with a higher number")] = 0,
    ) -> Response:
        """Return the double-entry journal: each entry adds up to zero. Debits are positive."""

        def compute() -> Response:
            _check_known(tenant, [name for name in service.tenants() if who.sees(name)])
            entries = (one for one in service.journal() if one.seq > after and tenant in (None, one.tenant))
            ledger = backend.state.money.ledger.copy()
            shown = {name: amount for name, amount in sorted(ledger.items()) if _is_theirs(name, who, tenant)}
            billing = backend.state.config.billing

            def made(page: list[JournalEntry]) -> api.Journal:
                timed = [replace(one, time=local_time(billing.time_zone, one.time_ms)) for one in page]
                return api.Journal(billing.currency, billing.digits, timed, shown, billing.time_zone)

            return paged(LEDGER, query, (one for one in entries if who.sees(one.tenant)), made)

        return await backend.pools.heavy.run(compute)


def _check_known(tenant: str | None, names: list[TenantName]) -> None:
    """Raise ApiError where a tenant is named that is none of those that the caller sees."""
    if tenant is not None and tenant not in names:
        raise ApiError("not_found", f"there is no tenant '{tenant}'", hint=nearest(tenant, names))


def _is_theirs(account: str, scope: Any, tenant: str | None) -> bool:
    _, colon, owner = account.partition(":")
    return scope.sees(owner) and tenant in (None, owner) if colon else scope.sees_all and tenant is None


def _view(backend: Backend, service: BillingService, name: TenantName) -> api.AccountView:
    standing = service.standing(name)
    account, config = standing.account, backend.state.config
    zone = config.billing.time_zone
    declared = next((one for one in config.tenants if one.name == name), Tenant(name))
    return api.AccountView(
        tenant=name,
        balance=account.balance - standing.accrued,
        credit=account.credit,
        owed=account.owed,
        unbilled=account.unbilled + standing.accrued,
        month_spent=standing.month_spent,
        day_cost=standing.day_cost,
        credit_limit=declared.credit_limit,
        at_zero=policy_of(declared, config.billing),
        left=standing.left,
        held=account.hold.text if account.hold is not None else "",
        credits=list(account.lots),
        budgets=[replace(one, until_time=local_time(zone, one.until_ms)) for one in standing.budgets],
    )


def amount_of(value: str | int | float, backend: Backend) -> int:
    """Return an amount of the currency in its smallest unit. Raises: ApiError."""
    problems: list[Problem] = []
    amount = read_amount(Reader("", problems), "amount", value, backend.state.config.billing.digits)
    if problems:
        raise invalid(problems)
    return amount


def _time(text: str) -> int:
    if not text:
        return 0
    try:
        return parse_time_ms(text)
    except ValueError:
        expected = "a time with its offset such as 2027-01-01T00:00+01:00"
        raise invalid([Problem("bad_value", "expires", f"expires is '{text}', expected {expected}", text)]) from None
