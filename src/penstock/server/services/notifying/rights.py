"""Who may hear of what: checked when it is chosen, and again for each event, for roles change."""

from collections.abc import Collection

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.notifications import NODE_EVENTS, TENANT_EVENTS


def may_hear(
    owner: UserName, event: str, tenant: TenantName, config: ClusterConfig, operators: Collection[UserName]
) -> bool:
    """Return whether a user may still hear of an event of a tenant's job, of a tenant, or of a node.

    Args:
        operators: who runs the server, declared or not.
    """
    if owner in operators:
        return True
    user = config.user_by_name.get(owner)
    if user is None or user.disabled:
        return False
    role = dict(user.tenants).get(tenant)
    if event in NODE_EVENTS:
        return user.role in ("operator", "admin")
    if event in TENANT_EVENTS:
        return user.role == "admin" or role == "tenant_admin"
    return bool(user.role) or role is not None
