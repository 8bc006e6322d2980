"""The tenant and queue of jobs that name none. The first that applies counts; '' where none does.

A tenant counts only if the caller may submit jobs for it: a default never leads to a refusal.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from penstock.core.model.access import SUBMITTING_ROLES, Scope
from penstock.core.model.cluster import DEFAULT_QUEUE, DEFAULT_TENANT, ClusterConfig
from penstock.core.model.ids import QueueName, TenantName, UserName

Name = TypeVar("Name", TenantName, QueueName)


def default_tenant(config: ClusterConfig, scope: Scope) -> TenantName:
    """Return the user's default tenant, their only one, the cluster's default, its only one, or `default`."""
    names = (name for name in _tenants(config, scope) if name in config.tenant_by_name and scope.submits(name))
    return next(names, TenantName(""))


def _tenants(config: ClusterConfig, scope: Scope) -> Iterator[TenantName]:
    """Yield candidates, most specific first; what takes a look at all tenants comes late."""
    user = config.user_by_name.get(scope.user)
    if user is not None:
        yield user.default_tenant
    yield from _only(
        name
        for name, role in scope.tenants.items()
        if role in SUBMITTING_ROLES and name in config.tenant_by_name and scope.submits(name)
    )
    yield TenantName(config.settings.default_tenant)
    yield from _only(tenant.name for tenant in config.tenants if scope.submits(tenant.name))
    yield DEFAULT_TENANT


def _only(names: Iterable[Name]) -> list[Name]:
    """Return the name where there is exactly one."""
    first = list(islice(names, 2))
    return first if len(first) == 1 else []


def default_queue(config: ClusterConfig, user_name: UserName) -> QueueName:
    """Return the user's default queue, the cluster's, the only one without queues below it, or `default`."""
    return next((name for name in _queues(config, user_name) if name in config.queue_by_name), QueueName(""))


def _queues(config: ClusterConfig, user_name: UserName) -> Iterator[QueueName]:
    """Yield candidates, most specific first; what takes a look at all queues comes late."""
    user = config.user_by_name.get(user_name)
    if user is not None:
        yield user.default_queue
    yield QueueName(config.settings.default_queue)
    parents = {queue.parent for queue in config.queues}
    yield from _only(queue.name for queue in config.queues if queue.name not in parents)
    yield DEFAULT_QUEUE
