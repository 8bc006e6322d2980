"""Routes about sessions of web pages: begun with a token, or with the code of a one-time link; renewed."""

import re
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.api.sessions import LoginLink, SessionView
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem
from penstock.server.backend import Backend
from penstock.server.http.auth import digest_of
from penstock.server.http.door import token_of
from penstock.server.http.parsing import body_of, invalid, json_of, read_body
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.sessions import PATH_MAX, PREFIX, Session, begun, renewed
from penstock.server.routes.openapi import returns

BODY_MAX_BYTES = 4_096
CODE_MAX = 100
"""Characters of a code; ours have 43."""
PAGE = re.compile(r"/(?!/)[\x21-\x5b\x5d-\x7e]*")
"""A path at this server: two slashes at its begin, or a backslash, would lead to another one."""
EXAMPLE_LINK, EXAMPLE_CODE = {"path": "/jobs/3"}, {"code": "the code of the link"}


class NewLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a one-time link leads to."""

    path: str = "/"


class UsedCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    dry_run: bool = False
    """Answer whose session it would be, without its token, and leave the code unused."""


def session_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post("/api/v1/login-links", **returns(LoginLink, body=NewLink, example=EXAMPLE_LINK))
    async def make_login_link(request: Request, who: caller) -> Response:
        """Make a code that signs a browser in as the caller, once, within two minutes."""
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewLink)
        if PAGE.fullmatch(wanted.path) is None or len(wanted.path) > PATH_MAX:
            text = f"path is '{wanted.path[:40]}', expected a page of this server such as /jobs/3"
            raise invalid([Problem("bad_value", "path", text, wanted.path[:40])])
        session = _session_of(backend, request, who)
        code, expires_ms = backend.login_codes.make(session, wanted.path)
        return answer(LoginLink(code, wanted.path, expires_ms))

    @app.post("/api/v1/logins", **returns(SessionView, body=UsedCode, example=EXAMPLE_CODE))
    async def log_in(request: Request) -> Response:
        """Begin the session of a one-time link; needs no token.

        With `dry_run`: say whose session it would be (`token` is empty), and leave the code unused, so that a page can
        ask before it signs somebody in: whoever made a link sees what is done with it.
        """
        sent = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), UsedCode)
        codes = backend.login_codes
        code = (codes.known if sent.dry_run else codes.use)(sent.code[:CODE_MAX])
        if code is None:
            address = request.client.host if request.client else ""
            backend.access.came(request, None, "", backend.state)
            backend.gate.check(None, address)
            hint = "penstock ui makes a new one"
            raise ApiError("unauthenticated", "the link was used before, or is too old", hint=hint)
        if sent.dry_run:
            return answer(SessionView("", code.session.user, code.session.expires_ms, code.path))
        return answer(session_view(backend, code.session, code.path))

    @app.post("/api/v1/sessions", **returns(SessionView))
    async def begin_session(request: Request, who: caller) -> Response:
        """Begin a session with the caller's token, or renew the caller's session."""
        return answer(session_view(backend, _session_of(backend, request, who)))


def _session_of(backend: Backend, request: Request, who: Scope) -> Session:
    """Return a session of the caller's token; of a session the same one, renewed."""
    token, now_ms = token_of(request.headers), backend.clock.unix_ms()
    if token.startswith(PREFIX):
        known = backend.sessions.read(token, now_ms)
        assert known is not None, "else the caller is unknown"
        if known.parent:
            return renewed(known, who, now_ms)
        return renewed(known, who, now_ms, backend.state.config.oidc.session_ms)
    return begun(digest_of(token), who, now_ms)


def session_view(backend: Backend, session: Session, path: str = "/") -> SessionView:
    """Return a session with its token."""
    return SessionView(backend.sessions.signed(session), session.user, session.expires_ms, path)
