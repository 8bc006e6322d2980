"""The tenant and queue of jobs that name none. The first that applies counts; '' where none does.

A tenant counts only if the caller may submit jobs for it: a default never leads to a refusal.
"""

from penstock.core.model.access import Scope
from penstock.core.model.cluster import DEFAULT_QUEUE, DEFAULT_TENANT, ClusterConfig
from penstock.core.model.ids import QueueName, TenantName, UserName


def default_tenant(config: ClusterConfig, scope: Scope) -> TenantName:
    """Return the user's default tenant, their only one, the cluster's default, its only one, or `default`."""
    user = config.user_by_name.get(scope.user)
    allowed = [tenant.name for tenant in config.tenants if scope.submits(tenant.name)]
    members = [name for name in allowed if scope.tenants.get(name) in ("member", "tenant_admin")]
    wanted = (
        user.default_tenant if user is not None else "",
        members[0] if len(members) == 1 else "",
        config.settings.default_tenant,
        allowed[0] if len(allowed) == 1 else "",
        DEFAULT_TENANT,
    )
    return next((TenantName(name) for name in wanted if name in allowed), TenantName(""))


def default_queue(config: ClusterConfig, user_name: UserName) -> QueueName:
    """Return the user's default queue, the cluster's, the only one without queues below it, or `default`."""
    user = config.user_by_name.get(user_name)
    parents = {queue.parent for queue in config.queues}
    leaves = [queue.name for queue in config.queues if queue.name not in parents]
    wanted = (
        user.default_queue if user is not None else "",
        config.settings.default_queue,
        leaves[0] if len(leaves) == 1 else "",
        DEFAULT_QUEUE,
    )
    return next((QueueName(name) for name in wanted if name in config.queue_by_name), QueueName(""))
