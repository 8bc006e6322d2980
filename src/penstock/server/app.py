"""The application of `/api/v1`: authentication, errors, and all routes.

Each route checks the caller's rights, translates, asks the control loop, translates back.
"""

from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock import __version__
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem, StoreError
from penstock.server.backend import Backend
from penstock.server.http.auth import refused_title
from penstock.server.http.door import TOKEN_MAX, Door, scope_at_door, token_of
from penstock.server.http.encoding import AnswerEncoding
from penstock.server.http.responses import ApiError, problem
from penstock.server.http.turns import CallerGone
from penstock.server.routes.accounts import account_routes, ledger_routes
from penstock.server.routes.bill import bill_routes
from penstock.server.routes.changes import change_routes
from penstock.server.routes.cluster import cluster_routes, foresight_routes, scheduling_routes
from penstock.server.routes.config import declaring_routes
from penstock.server.routes.devices import device_routes
from penstock.server.routes.events import event_routes
from penstock.server.routes.history import history_routes
from penstock.server.routes.invoices import invoice_routes, payment_routes
from penstock.server.routes.job_actions import job_action_routes
from penstock.server.routes.job_findings import job_findings_routes
from penstock.server.routes.job_story import job_story_routes
from penstock.server.routes.jobs import JobViews, job_routes
from penstock.server.routes.nodes import node_routes
from penstock.server.routes.notifications import notification_routes
from penstock.server.routes.oidc import oidc_routes
from penstock.server.routes.openapi import describe, document_route
from penstock.server.routes.quotas import quota_routes
from penstock.server.routes.schedules import schedule_routes
from penstock.server.routes.secrets import sealing_turn, secret_routes
from penstock.server.routes.series import series_routes
from penstock.server.routes.sessions import session_routes
from penstock.server.routes.snapshots import snapshot_routes
from penstock.server.routes.tokens import token_routes
from penstock.server.routes.usage import usage_routes
from penstock.server.routes.waste import waste_routes
from penstock.server.routes.whatif import whatif_routes
from penstock.server.services.billing import BillingService
from penstock.server.services.changes import ChangeFeed
from penstock.server.services.estimates import EstimateService
from penstock.server.services.held import HeldLog
from penstock.server.services.history import HistoryService
from penstock.server.services.notifying.service import NotificationService
from penstock.server.services.signin.service import SignInService
from penstock.server.services.whatif import WhatIfService


def create_app(
    backend: Backend,
    estimates: EstimateService,
    billing: BillingService,
    history: HistoryService,
    notifications: NotificationService,
    lab: WhatIfService,
    signins: SignInService,
) -> FastAPI:
    """Return the application; it owns nothing and ends nothing."""
    app = FastAPI(title="Penstock", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(AnswerEncoding, pools=backend.pools)
    app.add_middleware(Door, backend=backend)
    _errors(app, backend)

    async def scope(request: Request) -> Scope:
        found = scope_at_door(request.scope)
        token = token_of(request.headers)[:TOKEN_MAX] if found is None else ""
        backend.access.came(request, found, token, backend.state)
        backend.gate.check(found.user if found else None, request.client.host if request.client else "")
        if found is None:
            title = _refused(backend, token) if token else "a token is needed"
            raise ApiError("unauthenticated", title, hint="send 'Authorization: Bearer TOKEN'")
        return found

    caller = Annotated[Scope, Depends(scope)]
    job_action_routes(app, backend, caller)
    job_routes(app, backend, estimates, caller)
    job_story_routes(app, backend, caller)
    change_routes(app, backend, ChangeFeed(backend, JobViews(backend).live), caller)
    session_routes(app, backend, caller)
    oidc_routes(app, backend, signins)
    cluster_routes(app, backend, caller)
    node_routes(app, backend, caller)
    device_routes(app, backend, caller)
    snapshot_routes(app, backend, caller)
    scheduling_routes(app, backend, caller)
    foresight_routes(app, backend, estimates, caller)
    event_routes(app, backend, caller)
    job_findings_routes(app, backend, estimates, history, caller)
    history_routes(app, backend, history, caller)
    series_routes(app, backend, history, caller)
    whatif_routes(app, backend, lab, caller)
    bill_routes(app, backend, billing, caller)
    account_routes(app, backend, billing, caller)
    ledger_routes(app, backend, billing, caller)
    invoice_routes(app, backend, billing, caller)
    payment_routes(app, backend, caller)
    token_routes(app, backend, caller)
    _standing_routes(app, backend, notifications, caller)
    held = HeldLog(backend)
    usage_routes(app, backend, held, caller)
    waste_routes(app, backend, held, caller)
    declaring_routes(app, backend, lab, caller)
    quota_routes(app, backend, caller)
    describe(app)
    document_route(app)
    return app


def _standing_routes(app: FastAPI, backend: Backend, notifications: NotificationService, caller: Any) -> None:
    """What users set once, and holds until they change it."""
    sealing = sealing_turn()
    secret_routes(app, backend, sealing, caller)
    notification_routes(app, backend, notifications, sealing, caller)
    schedule_routes(app, backend, caller)


def _refused(backend: Backend, token: str) -> str:
    now_ms = backend.clock.unix_ms()
    if backend.sessions.expired(token, now_ms):
        return "the session has ended: sign in again"
    return refused_title(token, backend.state, now_ms)


def _errors(app: FastAPI, backend: Backend) -> None:
    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> Response:
        backend.access.answered(request, error)
        if error.details.code == "not_found" and backend.may_lag:  # it may just have come: the leader knows
            title = f"{error.details.title} yet as far as this server knows"
            error = ApiError("not_leader", title, hint="ask the server that leads", leader=backend.service.leader)
        return problem(error)

    @app.exception_handler(CallerGone)
    async def on_gone(_: Request, error: CallerGone) -> Response:
        return Response(status_code=503)  # to nobody

    @app.exception_handler(Exception)
    async def on_fault(_: Request, error: Exception) -> Response:
        return problem(ApiError("internal_error", "something went wrong in the server; nothing was answered"))

    @app.exception_handler(StoreError)
    async def on_store_error(_: Request, error: StoreError) -> Response:
        return problem(ApiError(error.code, error.message, hint=error.hint))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        problems = [
            Problem("bad_value", ".".join(map(str, e["loc"])), f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}")
            for e in error.errors()
        ]
        return problem(ApiError("invalid_input", "the request has wrong parameters", problems=problems))

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        return problem(ApiError(code, str(error.detail)), error.headers)
