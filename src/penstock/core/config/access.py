"""The `users` section of a cluster file: who has which role, in the cluster and in tenants."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from penstock.core.config.reader import Reader
from penstock.core.model.access import ClusterRole, TenantRole, User
from penstock.core.model.ids import TenantName, UserName

FIELDS = ("name", "role", "tenants", "disabled", "description", "account")
CLUSTER_ROLES: tuple[str, ...] = tuple(role for role in get_args(ClusterRole) if role)
TENANT_ROLES: tuple[str, ...] = get_args(TenantRole)


def read_user(reader: Reader, raw: Mapping[str, Any], description: str) -> User:
    """Return one user; whether their tenants exist is checked for the file as a whole."""
    reader.unknown(raw, FIELDS)
    role = raw.get("role")
    return User(
        UserName(raw["name"]),
        cast("ClusterRole", "" if role is None else reader.word("role", role, CLUSTER_ROLES, "")),
        _tenants(reader, raw.get("tenants") or {}),
        reader.flag("disabled", raw.get("disabled", False), default=False),
        description,
        reader.text("account", raw["account"]) if raw.get("account") is not None else "",
    )


def _tenants(reader: Reader, raw: object) -> tuple[tuple[TenantName, TenantRole], ...]:
    """Read roles by tenant; a plain list of tenants makes a member of each."""
    if isinstance(raw, list):
        raw = dict.fromkeys((str(name) for name in raw), "member")
    if not isinstance(raw, Mapping):
        reader.wrong("tenants", raw, "a mapping of tenants to roles such as {vision: member}")
        return ()
    found = []
    for name, role in raw.items():
        word = reader.word(f"tenants.{name}", role, TENANT_ROLES, "viewer")
        found.append((TenantName(str(name)), cast("TenantRole", word)))
    return tuple(sorted(found))
