"""Routes of the sign-in by an identity provider. They need no token: their callers have none yet."""

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.api.sessions import OidcView, SessionView, SignInBegun
from penstock.server.backend import Backend
from penstock.server.http.limits import network_of
from penstock.server.http.parsing import body_of, json_of, read_body
from penstock.server.http.responses import ApiError, answer
from penstock.server.routes.openapi import returns
from penstock.server.routes.sessions import session_view
from penstock.server.services.signin.service import SignInService

BODY_MAX_BYTES = 16 * 1024
EXAMPLE_START = {"redirect_uri": "https://penstock.example.org/login/callback"}
EXAMPLE_FINISH = {"code": "of the provider", "state": "of the begin", "code_verifier": "of the begin"}


class BeginSignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the provider sends the browser back to."""

    redirect_uri: str


class FinishSignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came back from the provider, and the verifier that the browser kept."""

    code: str
    state: str
    code_verifier: str


def oidc_routes(app: FastAPI, backend: Backend, signins: SignInService) -> None:
    def address_of(request: Request) -> str:
        """Return where a request comes from, when it may come: as seldom as logins that fail."""
        address = request.client.host if request.client else ""
        backend.gate.check(None, address)
        return address

    @app.get("/api/v1/oidc", **returns(OidcView))
    async def show_oidc() -> Response:
        """Say whether people can sign in by an identity provider; needs no token."""
        return answer(signins.view())

    @app.post("/api/v1/oidc/start", **returns(SignInBegun, body=BeginSignIn, example=EXAMPLE_START))
    async def begin_sign_in(request: Request) -> Response:
        """Begin a sign-in at the identity provider, to be finished within ten minutes; needs no token."""
        address = address_of(request)
        sent = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), BeginSignIn)
        return answer(await signins.begin(sent.redirect_uri, request.headers.get("host", ""), address))

    @app.post("/api/v1/oidc/finish", **returns(SessionView, body=FinishSignIn, example=EXAMPLE_FINISH))
    async def finish_sign_in(request: Request) -> Response:
        """Begin the session of a user whom the identity provider has identified; needs no token."""
        address = address_of(request)
        sent = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), FinishSignIn)
        try:
            session = await signins.finish(sent.code, sent.state, sent.code_verifier, address)
        except ApiError as error:
            if error.details.code in ("unauthenticated", "forbidden"):
                backend.access.note("login_failed", network_of(address), error.details.title)
            raise
        return answer(session_view(backend, session))
