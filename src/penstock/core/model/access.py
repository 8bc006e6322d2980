"""Who may do what: users with roles in the cluster and in tenants, and the tokens that speak for them."""

from typing import Literal

import msgspec

from penstock.core.model.ids import TenantName, UserName

ClusterRole = Literal["", "viewer", "operator", "admin"]
"""In the whole cluster: sees everything; also keeps nodes and all jobs; also declares, pays, and says who may what."""
TenantRole = Literal["viewer", "member", "tenant_admin"]
"""In a tenant: sees it; also submits and ends own jobs; also ends all of its jobs, and manages its members' tokens."""
Level = Literal["read", "write", "admin"]
"""What a token may be used for, of all that its user may do: reading; jobs and nodes; everything."""
LEVELS: tuple[Level, ...] = ("read", "write", "admin")


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody, as an operator declares."""

    name: UserName
    role: ClusterRole = ""
    tenants: tuple[tuple[TenantName, TenantRole], ...] = ()
    """By name of the tenant."""
    disabled: bool = False
    """No token speaks for them."""
    description: str = ""
    account: str = ""
    """Of the machines, as which their jobs run where the server is root."""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token as the server knows it: by its hash."""

    id: str
    sha256: str
    user: UserName
    level: Level = "write"
    tenants: tuple[TenantName, ...] = ()
    """It speaks in these tenants only; none: in all of its user's."""
    created_ms: int = 0
    expires_ms: int = 0
    """0: never."""
    by: UserName = UserName("")
    note: str = ""
    delegated: bool = False
    """Somebody who is no administrator made it for another user, or made it with such a token: it reaches neither the
    user's own secrets nor their account."""
