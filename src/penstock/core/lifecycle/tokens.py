"""Decisions about tokens: issued to declared users, for a while, and revoked, also with their users."""

from collections.abc import Iterable, Iterator

import msgspec

from penstock.core.lifecycle.thresholds import Holding, over_share
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.access import IssueToken, RevokeToken, TokenDone, TokenRequest
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope, Token
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.events import TokenIssued, TokenRevoked
from penstock.core.model.quantities import format_time

TOKENS_MAX = 10_000
RESERVE = 1_000
"""Beyond that, for administrators."""
NOTE_MAX = 200


def decide(tx: Transaction, request: TokenRequest) -> TokenDone | Refusal:
    """Carry a request out, or say why not."""
    if isinstance(request, RevokeToken):
        if tx.state.tokens.find(request.token_id) is None:
            return TokenDone(found=False)
        tx.emit(TokenRevoked(request.token_id, request.by))
        return TokenDone()
    token = msgspec.structs.replace(request.token, created_ms=tx.now_ms, note=request.token.note[:NOTE_MAX])
    problem = _problem(tx, token) or _beyond(request.maker, token) or _too_many(tx, request)
    if problem is not None:
        return Refusal("invalid_input", (problem,))
    if len(tx.state.tokens.by_hash) >= TOKENS_MAX and (over := _expired(tx)) is not None:
        tx.emit(TokenRevoked(over.id, token.by))
    tx.emit(TokenIssued(token))
    return TokenDone()


def _claims(tx: Transaction, token: Token) -> Iterator[Holding]:
    """Yield how many tokens the user has, and how many the issuer has made for other users."""
    known = tx.state.tokens
    yield Holding(f"user {token.user}", _live(tx, known.of_user(token.user)))
    if token.by != token.user:
        made = (one for one in known.by_hash.values() if one.by == token.by != one.user)
        yield Holding(f"user {token.by}, for others,", _live(tx, made))


def _live(tx: Transaction, tokens: Iterable[Token]) -> int:
    return sum(not 0 < token.expires_ms <= tx.now_ms for token in tokens)


def _expired(tx: Transaction) -> Token | None:
    """Return the token whose time has been over the longest: it makes room for a new one."""
    known = (token for token in tx.state.tokens.by_hash.values() if 0 < token.expires_ms <= tx.now_ms)
    return min(known, key=lambda token: (token.expires_ms, token.id), default=None)


def _beyond(maker: Scope | None, token: Token) -> Problem | None:
    field = maker.beyond(token) if maker is not None else ""
    if maker is None or not field:
        return None
    most = {
        "level": maker.level,
        "tenants": ", ".join(sorted(maker.only)),
        "expires": format_time(maker.expires_ms),
    }[field]
    text = f"{field} reaches further than that of the token it is made with: {most}"
    return Problem("beyond_own_token", field, text, most, "use one that reaches so far, or that of the data folder")


def _problem(tx: Transaction, token: Token) -> Problem | None:
    config = tx.state.config
    users = {user.name: user for user in config.users}
    if token.user not in users:
        hint = nearest(token.user, sorted(users)) or "declare users in the cluster file, or with penstock admin"
        return Problem("unknown_user", "user", f"there is no user '{token.user}'", token.user, hint)
    user = users[token.user]
    mine = [name for name, _ in user.tenants] if not user.role else [tenant.name for tenant in config.tenants]
    for name in token.tenants:
        if name not in mine:
            text = f"user '{token.user}' has no role in tenant '{name}'"
            return Problem("unknown_tenant", "tenants", text, name, nearest(name, mine))
    if 0 < token.expires_ms <= tx.now_ms:
        text = f"expires is {format_time(token.expires_ms)}, expected a later time than now"
        return Problem("bad_value", "expires", text, str(token.expires_ms))
    return None


def _too_many(tx: Transaction, request: IssueToken) -> Problem | None:
    """Return why this user may have no further token: the maximum is reached, or the rest is for other users."""
    user, administrator = request.token.user, request.maker is None or request.maker.administers
    used, most = len(tx.state.tokens.by_hash), TOKENS_MAX + (RESERVE if administrator else 0)
    hint = "revoke unused ones"
    if used >= most and _expired(tx) is None:
        return Problem("too_many_tokens", "user", f"there are {used} tokens, and no more may be", user, hint)
    over = None if administrator else over_share(_claims(tx, request.token), used=used, most=most)
    if over is not None:  # expired tokens make room
        over = over_share(_claims(tx, request.token), used=_live(tx, tx.state.tokens.by_hash.values()), most=most)
    if over is None:
        return None
    text = f"{over.who} has {over.own} tokens; the {over.left} that there may still be are for others"
    return Problem("share_used_up", "user", text, user, hint)
