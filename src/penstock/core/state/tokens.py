"""Rights of a caller. Default deny: what no rule allows is denied."""

from collections.abc import Container, Iterable
from types import MappingProxyType

from penstock.core.model.access import Level, Scope, Token, User
from penstock.core.model.events import TokenIssued, TokenRevoked
from penstock.core.model.ids import UserName


def scope_of(user: User, token: Token) -> Scope:
    """Return what a token of a user may be used for."""
    tenants = MappingProxyType(dict(user.tenants))
    only = frozenset(token.tenants)
    return Scope(user.name, user.role, tenants, token.level, only, token.expires_ms, delegated=token.delegated)


def scope_of_user(user: User, level: Level) -> Scope:
    """Return all that a user may do at a level, without a token: an identity provider has identified them."""
    return Scope(user.name, user.role, MappingProxyType(dict(user.tenants)), level)


def local_scope(user: UserName) -> Scope:
    """Return the scope of a caller that can read the server's own folder: everything."""
    return Scope(user, "admin", level="admin", local=True)


class Tokens:
    """A fold of the tokens in the log. An expired token is kept until it is revoked: its use is refused as expired."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self.by_hash: dict[str, Token] = {}
        self._by_id: dict[str, Token] = {}
        self._by_user: dict[UserName, dict[str, Token]] = {}
        for token in tokens:
            self.issued(token)

    def apply(self, event: TokenIssued | TokenRevoked) -> None:
        if isinstance(event, TokenIssued):
            self.issued(event.token)
        else:
            self.revoked(event.token_id)

    def issued(self, token: Token) -> None:
        self.by_hash[token.sha256] = token
        self._by_id[token.id] = token
        self._by_user.setdefault(token.user, {})[token.id] = token

    def revoked(self, token_id: str) -> None:
        token = self._by_id.pop(token_id, None)
        if token is not None:
            del self.by_hash[token.sha256], self._by_user[token.user][token_id]

    def of_user(self, user: UserName) -> list[Token]:
        """Return a user's tokens. Any thread."""
        return list(self._by_user.get(user, {}).values())

    def of_nobody(self, users: Container[UserName]) -> list[Token]:
        """Return the tokens of all users but these."""
        return [token for user, own in self._by_user.items() if user not in users for token in own.values()]

    def find(self, token_id: str) -> Token | None:
        return self._by_id.get(token_id)
