"""The first stage of a request: authentication, then its turn."""

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send

from penstock.core.model.access import Scope
from penstock.core.order.turns import Submitter, WaitingLimit
from penstock.server.backend import Backend
from penstock.server.http.auth import scope_for
from penstock.server.http.kept import max_stale_ms, max_stale_of
from penstock.server.http.limits import network_of
from penstock.server.http.listener import GONE
from penstock.server.http.responses import ApiError, problem
from penstock.server.http.sessions import PREFIX as SESSION_PREFIX
from penstock.server.http.sessions import scope_of_session
from penstock.server.http.turns import STRANGERS, AdmissionPace, caller_of, calling, is_gone

AT_ONCE = 4
"""Requests that begin in one pass of the event loop."""
SHARE = WaitingLimit(user=1_024, tenant=2_048, total=8_192)
"""Requests that wait for their turn to begin."""
TOKEN_MAX = 512
"""Characters of a token; ours have 47, sessions about 250."""
PIECE_BYTES = 131_072
"""Of an answer, which are sent in one pass of the event loop."""
READING = ("GET", "HEAD", "OPTIONS")
_SCOPE = "penstock.scope"


class Door:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, backend: Backend) -> None:
        self._app, self._backend = app, backend
        self._pace = AdmissionPace(AT_ONCE, SHARE)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        token = token_of(headers)
        found = scope_of_token(self._backend, token)
        address = scope["client"][0] if scope.get("client") else ""
        caller = caller_of(found) if found is not None else Submitter(STRANGERS, network_of(address))
        calling.set(caller)  # in the task of this request
        if scope["method"] == "GET":
            max_stale_ms.set(max_stale_of(headers.get("cache-control", "")))
            is_gone.set(scope.get(GONE, is_gone.get()))
        if found is not None:
            self._backend.pools.crowd.note(caller.tenant)
        try:
            waited = await self._pace.begin(caller)
        except ApiError as error:
            await problem(error)(scope, receive, send)
            return
        scope[_SCOPE] = scope_of_token(self._backend, token) if waited else found  # it may be revoked by now
        changes = nullcontext() if scope["method"] in READING else self._backend.pools.precedence.change()
        with changes:
            await self._app(scope, receive, partial(send_in_pieces, send))


async def send_in_pieces(send: Send, message: Message) -> None:
    """Send a message; others have the event loop between the pieces of a large answer."""
    body = message.get("body", b"")
    if len(body) > PIECE_BYTES:
        pieces = memoryview(body)
        for begin in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            await send({**message, "body": bytes(pieces[begin : begin + PIECE_BYTES]), "more_body": True})
            await asyncio.sleep(0)
        message = {**message, "body": bytes(pieces[begin + PIECE_BYTES :])}
    await send(message)


def token_of(headers: Headers) -> str:
    """Return the bearer token of a request, '' where it has none."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def scope_of_token(backend: Backend, token: str) -> Scope | None:
    """Return the present scope of a token; None when it is unknown, or no longer valid."""
    if not token or len(token) > TOKEN_MAX:
        return None
    now_ms = backend.clock.unix_ms()
    if token.startswith(SESSION_PREFIX):
        session = backend.sessions.read(token, now_ms)
        return scope_of_session(session, backend.tokens, backend.state, now_ms) if session is not None else None
    return scope_for(token, backend.tokens, backend.state, now_ms)


def scope_at_door(scope: Any) -> Scope | None:
    """Return the scope found at the door."""
    found: Scope | None = scope[_SCOPE]
    return found
