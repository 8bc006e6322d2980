"""Use of each quota: by queue and tenant, with guaranteed, borrowed and lent amounts, and the holders."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.model.answers import Holder, QuotaRow
from penstock.core.model.cluster import ShownHolders
from penstock.core.model.ids import PoolName, QueueName, TenantName, UserName
from penstock.core.order.queues import TENANT_PREFIX, QueueNode, QueueTree
from penstock.core.state.charges import HeldAlike
from penstock.core.state.quota_notes import PERIOD_MS, Key, QuotaSaid
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.usage import whole_total


def quota_rows(snapshot: Snapshot, now_ms: int, said: Mapping[Key, QuotaSaid] | None = None) -> list[QuotaRow]:
    """Return every quota that is declared, queues in their order, then tenants.

    Args:
        said: the last alert about each.
    """
    config = snapshot.config
    whole = whole_total(snapshot.free)
    tree = QueueTree(config).load(snapshot.usage, whole, now_ms, snapshot.pool_powers)
    found: list[QuotaRow] = []
    for queue in config.queues:
        branch = tree.branches.get(queue.name)
        if branch is not None:
            found += _rows(tree, branch, "queue", queue.name, queue.parent, queue.alerts)
    for tenant in config.tenants:
        cap = tree.tenant_limits.get(tenant.name)
        if cap is not None:
            found += _rows(tree, cap, "tenant", tenant.name, "", tenant.alerts)
    return [_with_alert(row, said, now_ms) for row in found] if said else found


def key_of(row: QuotaRow) -> Key:
    """Return the key of a quota in alerts."""
    return (TENANT_PREFIX + row.name if row.kind == "tenant" else row.name, row.resource)


def _with_alert(row: QuotaRow, said: Mapping[Key, QuotaSaid], now_ms: int) -> QuotaRow:
    last = said.get(key_of(row))
    fresh = last is not None and now_ms - last.time_ms < PERIOD_MS
    return replace(row, alerted=last.percent, alerted_ms=last.time_ms) if last is not None and fresh else row


def _rows(
    tree: QueueTree, branch: QueueNode, kind: str, name: str, parent: str, alerts: Sequence[int]
) -> Iterator[QuotaRow]:
    limits, promised = dict(branch.limits), dict(branch.promised)
    for column in sorted({*limits, *promised}):
        used, most, guaranteed = branch.used[column], limits.get(column), promised.get(column, 0)
        whole = most if most is not None else guaranteed
        percent = used * 100 // whole if whole else 100 if used else 0
        borrowed = max(0, used - guaranteed) if promised else 0
        reached = (
            [level for level in alerts if percent >= level] if most is not None else []
        )  # use may exceed a guarantee
        level = max(reached, default=0)
        lent = min(max(0, guaranteed - used), _taken_beside(branch, column))
        resource = tree.resources[column]
        yield QuotaRow(kind, name, parent, resource, used, guaranteed, most, borrowed, lent, percent, level)


def _taken_beside(branch: QueueNode, column: int) -> int:
    """Return the use of siblings beyond their own guarantees."""
    beside = [at for at in branch.parent.children if at is not branch] if branch.parent is not None else []
    return sum(max(0, at.used[column] - (at.guaranteed[column] if at.guaranteed else 0)) for at in beside)


def seen_holders(found: Sequence[Holder], sees: Callable[[TenantName], bool], others: ShownHolders) -> list[Holder]:
    """Return holders as a scope may see them, the largest first within each tenant.

    Args:
        sees: whether a tenant belongs to the scope.
        others: what the scope sees of all other tenants; hidden names of users are empty.
    """
    if others == "users":
        return list(found)
    own = [one for one in found if sees(one.tenant)]
    if others == "own":
        return own
    sums: dict[tuple[TenantName, QueueName, str], list[int]] = {}
    for one in found:
        if not sees(one.tenant):
            had = sums.setdefault((one.tenant, one.queue, one.resource), [0, 0])
            had[0] += one.used
            had[1] += one.jobs
    hidden = UserName("")
    own += [Holder(tenant, hidden, queue, resource, *had) for (tenant, queue, resource), had in sums.items()]
    return sorted(own, key=lambda one: (one.tenant, one.resource, -one.used, one.user, one.queue))


def holders(alike: Mapping[HeldAlike, int], quota_pools: Container[PoolName]) -> list[Holder]:
    """Return the present holders, the largest first within each tenant.

    Args:
        alike: the numbers of attempts that hold the same.
        quota_pools: pools with quotas of their own: what is held there is also listed by pool.
    """
    sums: dict[tuple[TenantName, UserName, QueueName, str], list[int]] = {}
    for (tenant, user, queue, pool, charge), jobs in alike.items():
        amounts = {"devices": charge.device_milli, "cpus": charge.cpu_milli, "memory": charge.memory_bytes}
        amounts["storage"] = charge.storage_bytes
        amounts |= {f"devices:{model}": milli for model, milli in charge.models}
        if pool in quota_pools:
            amounts |= {f"{pool}/{resource}": amount for resource, amount in amounts.items()}
        for resource, amount in amounts.items():
            if amount:
                had = sums.setdefault((tenant, user, queue, resource), [0, 0])
                had[0] += amount * jobs
                had[1] += jobs
    found = [Holder(*key, *held) for key, held in sums.items()]
    return sorted(found, key=lambda one: (one.tenant, one.resource, -one.used, one.user, one.queue))
