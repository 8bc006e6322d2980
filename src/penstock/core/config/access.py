"""The `users` of a cluster file: their roles, in the cluster and in tenants."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from penstock.core.config.fields import NAME, Field, Section, flag, note, text, word
from penstock.core.config.reader import Reader
from penstock.core.model.access import ClusterRole, TenantRole, User
from penstock.core.model.ids import TenantName

CLUSTER_ROLES: tuple[str, ...] = tuple(role for role in get_args(ClusterRole) if role)
TENANT_ROLES: tuple[str, ...] = get_args(TenantRole)


def _read_tenants(reader: Reader, field: str, raw: Any) -> tuple[tuple[TenantName, TenantRole], ...]:
    """Read roles by tenant; a plain list of tenants makes a member of each."""
    if isinstance(raw, list):
        raw = dict.fromkeys((str(name) for name in raw), "member")
    if not isinstance(raw, Mapping):
        reader.wrong(field, raw, "a mapping of tenants to roles such as {vision: member}")
        return ()
    found = []
    for name, role in raw.items():
        word = reader.word(f"{field}.{name}", role, TENANT_ROLES, "viewer")
        found.append((TenantName(str(name)), cast("TenantRole", word)))
    return tuple(sorted(found))


_TENANTS = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"enum": list(TENANT_ROLES)}},
        {"type": "array", "items": {"type": "string"}},
    ]
}
USER = Section(
    User,
    {
        "name": NAME,
        "role": word("role in the whole cluster (none)", CLUSTER_ROLES),
        "tenants": Field(
            _read_tenants,
            _TENANTS,
            "roles by tenant; a list makes a member of each",
            write=dict,
        ),
        "disabled": flag("refuses all tokens of the user"),
        "description": note("description"),
        "default_tenant": text("tenant of their jobs that name none (their only one, or `settings.default_tenant`)"),
        "default_queue": text("queue of their jobs that name none (`settings.default_queue`)"),
        "account": text("operating system account of their jobs, where the server is root"),
    },
)
