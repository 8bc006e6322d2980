"""What somebody may see and do. Default deny: a question that no rule answers with yes is answered with no."""

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType

import msgspec

from penstock.core.model.access import LEVELS, ClusterRole, Level, TenantRole, Token, User
from penstock.core.model.events import TokenIssued, TokenRevoked
from penstock.core.model.ids import TenantName, UserName


class Scope(msgspec.Struct, frozen=True):
    """What one caller may see and do: the rights of a user, cut to what the token is for."""

    user: UserName
    role: ClusterRole = ""
    tenants: Mapping[TenantName, TenantRole] = MappingProxyType({})
    level: Level = "read"
    only: frozenset[TenantName] = frozenset()
    """Where it is not empty, nothing outside these tenants is seen or done."""
    expires_ms: int = 0
    """When the token that speaks expires; 0: never."""
    local: bool = False
    """Who runs the server: the token was read from its own folder."""
    delegated: bool = False
    """The token was made for the user by somebody else: own secrets and the own account are out of its reach."""

    @property
    def sees_all(self) -> bool:
        """Whether everything is seen, and what belongs to no tenant."""
        return bool(self.role) and not self.only

    @property
    def sight(self) -> frozenset[TenantName] | None:
        """The tenants of which anything is seen; None: all of them. Equal for callers who see the same."""
        if self.role:
            return self.only or None
        return frozenset(self.tenants) & self.only if self.only else frozenset(self.tenants)

    def sees(self, tenant: str) -> bool:
        """Return whether what belongs to a tenant is seen at all."""
        name = TenantName(tenant)
        return self._inside(name) and (bool(self.role) or name in self.tenants)

    def submits(self, tenant: str) -> bool:
        """Return whether jobs of the tenant may be submitted, and leases taken."""
        name = TenantName(tenant)
        rights = self.role == "admin" or self.tenants.get(name) in ("member", "tenant_admin")
        return rights and self._inside(name) and self._may("write")

    @property
    def submits_anywhere(self) -> bool:
        """Whether jobs may be submitted in any tenant at all: what is asked before a request is read."""
        return self._may("write") and (
            self.role == "admin"
            or any(role != "viewer" and self._inside(tenant) for tenant, role in self.tenants.items())
        )

    def keeps_secrets(self, tenants: Iterable[TenantName]) -> bool:
        """Return whether own secrets may be set: by whoever submits in one of all `tenants`, with an uncut token."""
        return not self.only and not self.delegated and any(self.submits(tenant) for tenant in tenants)

    def acts_on(self, tenant: str, owner: str) -> bool:
        """Return whether a job of this owner may be ended, or asked to save."""
        name = TenantName(tenant)
        role = self.tenants.get(name)
        own = role == "member" and owner == self.user
        rights = own or role == "tenant_admin" or self.role in ("operator", "admin")
        return rights and self._inside(name) and self._may("write")

    @property
    def operates(self) -> bool:
        """Whether nodes may be closed and opened."""
        return self.role in ("operator", "admin") and not self.only and self._may("write")

    @property
    def administers(self) -> bool:
        """Whether the cluster may be declared, money moved, and everybody's tokens managed."""
        return self.role == "admin" and not self.only and self._may("admin")

    def manages(self, tenant: str) -> bool:
        """Return whether tokens of the tenant's members may be managed."""
        name = TenantName(tenant)
        rights = self.role == "admin" or self.tenants.get(name) == "tenant_admin"
        return rights and self._inside(name) and self._may("admin")

    def beyond(self, token: Token) -> str:
        """Return in which field a token would reach further than the one that speaks; empty: in none."""
        if LEVELS.index(token.level) > LEVELS.index(self.level):
            return "level"
        if self.only and not (token.tenants and self.only.issuperset(token.tenants)):
            return "tenants"
        return "expires" if self.expires_ms and not 0 < token.expires_ms <= self.expires_ms else ""

    def _inside(self, tenant: TenantName) -> bool:
        return not self.only or tenant in self.only

    def _may(self, level: Level) -> bool:
        return LEVELS.index(self.level) >= LEVELS.index(level)


def scope_of(user: User, token: Token) -> Scope:
    """Return what a token of a user may be used for."""
    tenants = MappingProxyType(dict(user.tenants))
    only = frozenset(token.tenants)
    return Scope(user.name, user.role, tenants, token.level, only, token.expires_ms, delegated=token.delegated)


def local_scope(user: UserName) -> Scope:
    """Return the scope of whoever can read the server's own folder: everything."""
    return Scope(user, "admin", level="admin", local=True)


class Tokens:
    """A fold of the tokens in the log. What has expired is kept until it is revoked: it says so when it is used."""

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
        """Return the tokens of all who are not among these users."""
        return [token for user, own in self._by_user.items() if user not in users for token in own.values()]

    def find(self, token_id: str) -> Token | None:
        return self._by_id.get(token_id)
