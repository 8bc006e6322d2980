"""What somebody may see and do. Default deny: a question that no rule answers with yes is answered with no."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from penstock.core.model.access import LEVELS, ClusterRole, Level, TenantRole, Token, User
from penstock.core.model.ids import TenantName, UserName


class Scope(msgspec.Struct, frozen=True):
    """What one caller may see and do: the rights of a user, cut to what the token is for."""

    user: UserName
    role: ClusterRole = ""
    tenants: Mapping[TenantName, TenantRole] = MappingProxyType({})
    level: Level = "read"
    only: frozenset[TenantName] = frozenset()
    """Where it is not empty, nothing outside these tenants is seen or done."""

    @property
    def sees_all(self) -> bool:
        """Whether everything is seen, and what belongs to no tenant."""
        return bool(self.role) and not self.only

    def sees(self, tenant: str) -> bool:
        """Return whether what belongs to a tenant is seen at all."""
        name = TenantName(tenant)
        return self._inside(name) and (bool(self.role) or name in self.tenants)

    def submits(self, tenant: str) -> bool:
        """Return whether jobs of the tenant may be submitted, and leases taken."""
        name = TenantName(tenant)
        rights = self.role == "admin" or self.tenants.get(name) in ("member", "tenant_admin")
        return rights and self._inside(name) and self._may("write")

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

    def _inside(self, tenant: TenantName) -> bool:
        return not self.only or tenant in self.only

    def _may(self, level: Level) -> bool:
        return LEVELS.index(self.level) >= LEVELS.index(level)


def scope_of(user: User, token: Token) -> Scope:
    """Return what a token of a user may be used for."""
    return Scope(user.name, user.role, MappingProxyType(dict(user.tenants)), token.level, frozenset(token.tenants))


def local_scope(user: UserName) -> Scope:
    """Return the scope of whoever can read the server's own folder: everything."""
    return Scope(user, "admin", level="admin")


class Tokens:
    """A fold of the tokens in the log. What has expired is kept until it is revoked: it says so when it is used."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self.by_hash: dict[str, Token] = {token.sha256: token for token in tokens}

    def issued(self, token: Token) -> None:
        self.by_hash[token.sha256] = token

    def revoked(self, token_id: str) -> None:
        self.by_hash = {digest: token for digest, token in self.by_hash.items() if token.id != token_id}

    def find(self, token_id: str) -> Token | None:
        return next((token for token in list(self.by_hash.values()) if token.id == token_id), None)
