"""Access rights: users with roles in the cluster and in tenants, and the tokens that act for them."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from penstock.core.model.ids import QueueName, TenantName, UserName

ClusterRole = Literal["", "viewer", "operator", "admin"]
"""In the whole cluster: sees everything; also operates nodes and all jobs; also declares, pays and grants rights."""
TenantRole = Literal["viewer", "member", "tenant_admin"]
"""In a tenant: sees it; also submits and ends own jobs; also ends all its jobs and manages its members' tokens."""
SUBMITTING_ROLES: frozenset[TenantRole] = frozenset({"member", "tenant_admin"})
Level = Literal["read", "write", "admin"]
"""What a token may be used for, of all that its user may do: reading; jobs and nodes; everything."""
LEVELS: tuple[Level, ...] = ("read", "write", "admin")


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user, as an operator declares it."""

    name: UserName
    role: ClusterRole = ""
    tenants: tuple[tuple[TenantName, TenantRole], ...] = ()
    """By name of the tenant."""
    disabled: bool = False
    """None of their tokens is valid."""
    description: str = ""
    account: str = ""
    """The machine account under which their jobs run where the server is root."""
    default_tenant: TenantName = TenantName("")
    """Of their jobs that name none; empty: their only tenant, or the cluster's default."""
    default_queue: QueueName = QueueName("")
    """Of their jobs that name none; empty: the cluster's default."""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token as the server knows it: by its hash."""

    id: str
    sha256: str
    user: UserName
    level: Level = "write"
    tenants: tuple[TenantName, ...] = ()
    """Valid in these tenants only; none: in all of its user's."""
    created_ms: int = 0
    expires_ms: int = 0
    """0: never."""
    by: UserName = UserName("")
    note: str = ""
    delegated: bool = False
    """Issued by a non-administrator for another user, or with such a token: it reaches neither the user's own secrets
    nor their account."""


def submits_as(role: ClusterRole, of_tenant: TenantRole | None) -> bool:
    """Return whether roles in the cluster and in a tenant give the right to submit jobs of the tenant."""
    return role == "admin" or of_tenant in SUBMITTING_ROLES


class Scope(msgspec.Struct, frozen=True):
    """What one caller may see and do: the rights of a user, limited to those of the token."""

    user: UserName
    role: ClusterRole = ""
    tenants: Mapping[TenantName, TenantRole] = MappingProxyType({})
    level: Level = "read"
    only: frozenset[TenantName] = frozenset()
    """Where not empty, the caller sees and does nothing outside these tenants."""
    expires_ms: int = 0
    """When the caller's token expires; 0: never."""
    local: bool = False
    """The operator of the server: the token was read from the server's own folder."""
    delegated: bool = False
    """Another user issued the token: the user's own secrets and account are out of its reach."""

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
        return submits_as(self.role, self.tenants.get(name)) and self._inside(name) and self._may("write")

    @property
    def submits_anywhere(self) -> bool:
        """Whether jobs may be submitted in any tenant at all: checked before a request is read."""
        return self._may("write") and (self.role == "admin" or self._submits_as_member)

    def keeps_secrets(self, tenants: Iterable[TenantName]) -> bool:
        """Return whether own secrets may be set: by a submitter in one of `tenants`, with a token of full rights."""
        return not self.only and not self.delegated and any(self.submits(tenant) for tenant in tenants)

    @property
    def sets_notifications(self) -> bool:
        """Whether own notifications may be set: with a token of full rights."""
        return not self.only and not self.delegated and self._may("write")

    def acts_on(self, tenant: str, owner: str) -> bool:
        """Return whether a job of this owner may be ended, or asked to save."""
        name = TenantName(tenant)
        role = self.tenants.get(name)
        own = role == "member" and owner == self.user
        rights = own or role == "tenant_admin" or self.role in ("operator", "admin")
        return rights and self._inside(name) and self._may("write")

    @property
    def acts_anywhere(self) -> bool:
        """Whether there can be jobs to act on at all: checked before a request is read."""
        return self._may("write") and (self.role in ("operator", "admin") or self._submits_as_member)

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
        """Return the field in which a token would exceed the caller's own; empty: none."""
        if LEVELS.index(token.level) > LEVELS.index(self.level):
            return "level"
        if self.only and not (token.tenants and self.only.issuperset(token.tenants)):
            return "tenants"
        return "expires" if self.expires_ms and not 0 < token.expires_ms <= self.expires_ms else ""

    @property
    def _submits_as_member(self) -> bool:
        return any(role in SUBMITTING_ROLES and self._inside(tenant) for tenant, role in self.tenants.items())

    def _inside(self, tenant: TenantName) -> bool:
        return not self.only or tenant in self.only

    def _may(self, level: Level) -> bool:
        return LEVELS.index(self.level) >= LEVELS.index(level)
