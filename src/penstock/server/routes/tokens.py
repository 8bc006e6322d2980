"""Routes about tokens: made, listed, revoked."""

import secrets
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.api import types as api
from penstock.core.messages.access import IssueToken, RevokeToken
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Level, Scope, Token
from penstock.core.model.errors import Problem
from penstock.core.model.ids import TenantName, UserName
from penstock.server.backend import Backend
from penstock.server.http.auth import digest_of, new_secret
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.lists import TOKENS
from penstock.server.routes.openapi import returns
from penstock.server.tables import ListQuery, list_query, paged

BODY_MAX_BYTES = 65_536
DAY_MS = 86_400_000
DAYS_DEFAULT = 90
EXAMPLE = {"user": "ann", "level": "read", "note": "for the dashboard"}


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For whom, what for, and for how long."""

    user: str = ""
    """Empty: the caller."""
    level: Level = "write"
    tenants: list[str] = []
    days: int | None = None
    """0: it never expires; None: 90, or as long as the token that it is made with, if that is less."""
    note: str = ""


def token_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post(
        "/api/v1/tokens", status_code=201, **returns(api.TokenMade, body=NewToken, example=EXAMPLE, statuses=(201,))
    )
    async def create_token(request: Request, who: caller) -> Response:
        """Make a token; its secret is in this answer and nowhere else."""
        allow(who.administers or who.level == "admin", "make tokens with this one")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewToken)
        user = UserName(wanted.user or who.user)
        allow(_manages(who, user, backend), f"make tokens for {user}")
        expires_ms = _expires_ms(wanted.days, who, backend.clock.unix_ms())
        limited = wanted.tenants or _tenants_of(who, user, backend)
        secret = new_secret()
        token = Token(
            secrets.token_hex(6),
            digest_of(secret),
            user,
            wanted.level,
            tuple(sorted({TenantName(name) for name in limited})),
            expires_ms=expires_ms,
            by=who.user,
            note=wanted.note,
            delegated=who.delegated or (user != who.user and not who.administers),
        )
        reply = await backend.ask(IssueToken(token, who))
        if isinstance(reply, Refusal):
            raise refused(reply)
        return answer(api.TokenMade(token.id, secret, expires_ms), 201)

    @app.get("/api/v1/tokens", **returns(api.TokenList))
    async def list_tokens(who: caller, query: Annotated[ListQuery, list_query(TOKENS)]) -> Response:
        """List the tokens that the caller may revoke, without their secrets."""

        def compute() -> Response:
            known, users = backend.state.tokens, [user.name for user in backend.state.config.users]
            managed = users if who.administers else [name for name in users if _manages(who, name, backend)]
            mine = sorted((token for name in managed for token in known.of_user(name)), key=lambda one: one.created_ms)
            return paged(TOKENS, query, map(_shown, mine), api.TokenList)

        return await backend.pools.reads.run(compute)

    @app.delete("/api/v1/tokens/{token_id}", **returns(api.DoneAnswer))
    async def revoke_token(who: caller, token_id: str) -> Response:
        """Revoke a token, from this moment on."""
        found = backend.state.tokens.find(token_id)
        if found is None or not _manages(who, found.user, backend):
            raise ApiError("not_found", f"there is no token '{token_id[:40]}'")
        await backend.ask(RevokeToken(token_id, who.user))
        return answer(api.DoneAnswer(True))


def _expires_ms(days: int | None, maker: Scope, now_ms: int) -> int:
    """Return when a token expires. Raises: ApiError."""
    if days is None:
        expires_ms = now_ms + DAYS_DEFAULT * DAY_MS
        return min(expires_ms, maker.expires_ms or expires_ms)
    if not 0 <= days <= 3660:
        raise invalid([Problem("bad_value", "days", f"days is {days}, expected 0 to 3660", str(days))])
    return now_ms + days * DAY_MS if days else 0


def _manages(scope: Scope, user: UserName, backend: Backend) -> bool:
    """Return whether the caller may manage a user's tokens: an administrator all, others their own and members'.

    A manager of tenants manages only users without a role anywhere else.
    """
    if scope.administers:
        return True
    if scope.only or scope.level != "admin":
        return False
    known = backend.state.config.user_by_name.get(user)
    if known is None:
        return False
    if user == scope.user:
        return True
    return not known.role and bool(known.tenants) and all(scope.manages(name) for name, _ in known.tenants)


def _tenants_of(scope: Scope, user: UserName, backend: Backend) -> list[TenantName]:
    """Return the default tenants of a token; empty: no limit.

    A token made for another user is limited to the tenants that its maker manages now, even if the user gets more.
    """
    if scope.administers or user == scope.user:
        return []
    return [name for name, _ in backend.state.config.user_by_name[user].tenants]


def _shown(token: Token) -> api.TokenView:
    return api.TokenView(
        token.id,
        token.user,
        token.level,
        list(token.tenants),
        token.created_ms,
        token.expires_ms,
        token.by,
        token.note,
        token.delegated,
    )
