"""The queue tree with the use of each queue: shares, guarantees, and the maximum that a job would exceed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from penstock.core.model.cluster import ROOT_QUEUE, ClusterConfig, Node, Queue, Quota, Tenant
from penstock.core.model.ids import NodeName, QueueName, TenantName
from penstock.core.model.jobs import GangAsk, ReplicaPlace, RequestClass
from penstock.core.model.plan import QuotaExceeded
from penstock.core.model.quantities import split_resource
from penstock.core.model.resources import Models
from penstock.core.model.tentative import Tentative
from penstock.core.order.expected_power import PoolPowers, least_power, most_power, power_of, power_resource
from penstock.core.order.policies import OrderKey
from penstock.core.order.usage_over_time import UsageOverTime, UsedAmounts, models_with

SHARE_SCALE = 10**9
DEMANDS_MAX = 100_000
"""Classes whose demand is remembered from one cycle to the next."""
_FIRST = ("devices", "cpus", "memory", "jobs")
_NO_POWERS: PoolPowers = MappingProxyType({})


TENANT_PREFIX = "tenant:"
"""Prefix of the account that all jobs of a tenant count in; no queue has such a name."""


def holder_text(name: str) -> str:
    """Return the holder of a maximum in words: a queue, or a tenant."""
    return f"tenant {name[len(TENANT_PREFIX) :]}" if name.startswith(TENANT_PREFIX) else f"queue {name}"


class QueueNode:
    """One queue (or one tenant's part of a leaf): its use, its limits, and a heap of its children or classes."""

    __slots__ = ("base", "children", "cursors", "guaranteed", "heap", "kept", "limits", "name", "parent", "past",
                 "policy", "position", "promised", "siblings_kept", "tenant_limit", "used", "weight")  # fmt: skip

    def __init__(self, name: QueueName, policy: str, parent: "QueueNode | None", weight: int, width: int) -> None:
        self.name, self.policy, self.parent, self.weight = name, policy, parent, weight
        self.position = 0
        self.children: list[QueueNode] = []
        self.cursors: list[Any] = []
        """Classes of jobs that wait here, during a walk."""
        self.heap: list[tuple[OrderKey, int, Any]] = []
        self.used = [0] * width
        self.base = [0] * width
        """Use at the time it was loaded."""
        self.guaranteed: tuple[int, ...] = ()
        self.promised: tuple[tuple[int, int], ...] = ()
        """The guarantee as (column, amount), without zeros."""
        self.limits: tuple[tuple[int, int], ...] = ()
        self.kept: tuple[int, ...] | None = None
        """The part of the guarantee that is never lent; None where all of it is."""
        self.siblings_kept = False
        self.past = 0
        """Average of past use, in device thousandths, when it counts."""
        self.tenant_limit: QueueNode | None = None
        """The account of all jobs of the tenant, where it has a maximum; outside the tree, beside all queues."""

    def path(self) -> "Iterator[QueueNode]":
        """Yield this queue and those above it, the root last."""
        at: QueueNode | None = self
        while at is not None:
            yield at
            at = at.parent

    def counted_in(self) -> "Iterator[QueueNode]":
        """Yield every node whose use grows with a job of this account: its queues, and its tenant's limit."""
        yield from self.path()
        if self.tenant_limit is not None:
            yield self.tenant_limit


class QueueTree:
    """The queues of a configuration with their use. Resources are columns of small vectors."""

    def __init__(self, config: ClusterConfig) -> None:
        self.resources = _resources(config)
        kinds = [split_resource(name) for name in self.resources]
        self._column = {name: i for i, name in enumerate(self.resources)}
        self._power_columns = tuple((self._column[power_resource(pool)], pool) for pool in config.power_limits)
        self.power_columns = frozenset(i for i, _ in self._power_columns)
        """Columns (mW) of pools with a limit of power, which is a maximum of the root."""
        self._powers: PoolPowers = {}
        self._limits_models = any(name.startswith("devices:") for _, name in kinds)
        self._counts_models = self._limits_models or bool(self.power_columns)
        self.needs_places = self._limits_models
        """Whether some limit depends on which models of devices a job gets: its places alone tell its demand."""
        self.pools = config.counted_pools
        """Pools that some quota, or a limit of power, is bound to."""
        self.bound_columns = frozenset(i for i, (pool, _) in enumerate(kinds) if pool)
        self.cpu_columns = frozenset(i for i, (_, name) in enumerate(kinds) if name == "cpus")
        self.job_columns = frozenset(i for i, (_, name) in enumerate(kinds) if name == "jobs")
        self.unlent_columns = self.job_columns | self.power_columns
        """Columns of what no queue lends to another."""
        self.promises = any(amount for queue in config.queues for _, amount in queue.guaranteed)
        """Whether some queue is guaranteed anything."""
        self.total: tuple[int, ...] = (0,) * len(self.resources)
        self._half_life_ms = config.settings.fair_share_half_life_ms
        width = len(self.resources)
        self.root = QueueNode(ROOT_QUEUE, config.root_policy, None, 1, width)
        self.root.limits = tuple((i, config.power_limits[pool]) for i, pool in self._power_columns)
        self.branches: dict[QueueName, QueueNode] = {ROOT_QUEUE: self.root}
        self.rules = {queue.name: queue for queue in config.queues}
        self._grow(config.queues, width)
        self._loaded: dict[tuple[QueueName, TenantName], UsageOverTime] = {}
        """The shares whose sum the bases of the branches are."""
        self._tenants: dict[tuple[QueueName, TenantName], QueueNode] = {}
        self.tenant_limits = {tenant.name: self._tenant_limit(tenant, width) for tenant in config.tenants if tenant.max}
        """By tenant, where it has a maximum."""
        self._capped: dict[tuple[QueueName, TenantName], QueueNode] = {}
        self._unsorted: dict[QueueName, QueueNode] = {}
        """Queues that got a new tenant."""
        self._demands: dict[int, tuple[RequestClass, tuple[int, ...]]] = {}

    def weigh(self, powers: PoolPowers) -> "QueueTree":
        """Count the power of devices as given from now on. Returns itself."""
        if powers != self._powers:
            self._powers = powers
            mixed = any(len(set(by_model.values())) > 1 for by_model in powers.values())
            self.needs_places = self._limits_models or mixed
            self._demands.clear()
            self._loaded.clear()
            for branch in self._all():
                branch.base = [0] * len(self.resources)
        return self

    def load(
        self,
        usage: Mapping[tuple[QueueName, TenantName], UsageOverTime],
        total: UsedAmounts,
        now_ms: int,
        powers: PoolPowers = _NO_POWERS,
    ) -> "QueueTree":
        """Load present use and total capacity; forget everything else. Returns itself.

        Only shares that are not the same objects as in the last call are counted anew.

        Args:
            powers: what devices draw in pools with a limit of power.
        """
        self.weigh(powers)
        self.total = self.vector(total)
        for key in self._loaded.keys() - usage.keys():
            self._count(key, self._loaded.pop(key), -1)
        for key, share in usage.items():
            known = self._loaded.get(key)
            if known is not share:
                if known is not None:
                    self._count(key, known, -1)
                self._count(key, share, 1)
                self._loaded[key] = share
        for branch in self._all():
            branch.used = branch.base.copy()
            branch.past = 0
            branch.heap, branch.cursors = [], []
        if self._half_life_ms:
            self._remember(usage, now_ms)
        return self

    def _count(self, key: tuple[QueueName, TenantName], share: UsageOverTime, sign: int) -> None:
        queue, tenant = key
        branch = self.branches.get(queue)
        if branch is not None:
            amounts = self.vector(share.now)
            for at in self._account(branch, tenant).counted_in():
                at.base = [had + sign * amount for had, amount in zip(at.base, amounts, strict=True)]

    def _all(self) -> Iterator[QueueNode]:
        yield from self.branches.values()
        yield from self._tenants.values()
        yield from self._capped.values()
        yield from self.tenant_limits.values()

    def _tenant_limit(self, tenant: Tenant, width: int) -> QueueNode:
        limit_node = QueueNode(QueueName(TENANT_PREFIX + tenant.name), "fifo", None, 1, width)
        limit_node.limits = tuple((self._column[name], amount) for name, amount in tenant.max)
        return limit_node

    def named(self, name: QueueName) -> QueueNode:
        """Return the queue of this name, or the tenant's account for `tenant:NAME`."""
        of_tenant = name.startswith(TENANT_PREFIX)
        return self.tenant_limits[TenantName(name[len(TENANT_PREFIX) :])] if of_tenant else self.branches[name]

    def _remember(self, usage: Mapping[tuple[QueueName, TenantName], UsageOverTime], now_ms: int) -> None:
        for (queue, tenant), share in usage.items():
            branch = self.branches.get(queue)
            if branch is not None:
                past = share.average_at(now_ms, self._half_life_ms) >> 20
                for at in self._account(branch, tenant).path():
                    at.past += past

    def sort_tenants(self) -> None:
        """Give the tenants of each queue positions that do not depend on which was seen first."""
        for name, branch in self._unsorted.items():
            parts = [part for (queue, _), part in sorted(self._tenants.items()) if queue == name]
            mine = set(map(id, parts))
            branch.children = [*(c for c in branch.children if id(c) not in mine), *parts]
            for position, child in enumerate(branch.children):
                child.position = position
        self._unsorted.clear()

    def _grow(self, queues: Iterable[Queue], width: int) -> None:
        waiting = list(queues)
        while waiting:
            later = []
            for queue in waiting:
                parent = self.branches.get(queue.parent)
                if parent is None:
                    later.append(queue)
                    continue
                branch = QueueNode(queue.name, queue.policy, parent, queue.weight, width)
                branch.position = len(parent.children)
                branch.guaranteed = self._amounts(queue.guaranteed)
                branch.promised = tuple((i, amount) for i, amount in enumerate(branch.guaranteed) if amount)
                branch.limits = tuple((self._column[name], amount) for name, amount in queue.max)
                if queue.lend is not None:
                    lent = self._amounts(queue.lend)
                    branch.kept = tuple(max(0, g - b) for g, b in zip(branch.guaranteed, lent, strict=True))
                    parent.siblings_kept = True
                parent.children.append(branch)
                self.branches[queue.name] = branch
            if len(later) == len(waiting):
                break
            waiting = later

    def _amounts(self, quota: Quota) -> tuple[int, ...]:
        amounts = dict(quota)
        return tuple(amounts.get(name, 0) for name in self.resources)

    def account(self, queue: QueueName, tenant: TenantName) -> QueueNode | None:
        """Return where jobs of a tenant in a queue count, with the tenant's own maximum; None for an unknown queue.

        A queue is unknown to the tree, too, when one of the queues above it is not declared.
        """
        branch = self.branches.get(queue)
        return self._account(branch, tenant) if branch is not None else None

    def _account(self, branch: QueueNode, tenant: TenantName) -> QueueNode:
        seat = self.node_of(branch, tenant)
        limit_node = self.tenant_limits.get(tenant) if self.tenant_limits else None
        if limit_node is None:
            return seat
        key = (branch.name, tenant)
        found = self._capped.get(key)
        if found is None:
            found = self._capped[key] = QueueNode(branch.name, seat.policy, seat, 1, len(self.resources))
            found.tenant_limit = limit_node
        return found

    def node_of(self, branch: QueueNode, tenant: TenantName) -> QueueNode:
        """Return where jobs of a tenant wait in a queue: the queue, or the tenant's part where tenants share it."""
        if branch.policy != "fair_share":
            return branch
        key = (branch.name, tenant)
        found = self._tenants.get(key)
        if found is None:
            found = self._tenants[key] = QueueNode(branch.name, "capacity", branch, 1, len(self.resources))
            found.position = len(branch.children)
            branch.children.append(found)
            self._unsorted[branch.name] = branch
        return found

    def vector(self, charge: UsedAmounts) -> tuple[int, ...]:
        """Return a charge as columns."""
        first = (charge.device_milli, charge.cpu_milli, charge.memory_bytes, charge.jobs)
        named = self.resources[len(_FIRST) : len(self.resources) - len(self._power_columns)]
        amounts = first + tuple(charge.amount(name) for name in named)
        return amounts + self._power_amounts(charge) if self._power_columns else amounts

    def _power_amounts(self, charge: UsedAmounts) -> tuple[int, ...]:
        parts = dict(charge.pools)
        pools = (pool for _, pool in self._power_columns)
        return tuple(power_of(parts[p].models, self._powers.get(p, {})) if p in parts else 0 for p in pools)

    def demand(self, key: RequestClass) -> tuple[int, ...]:
        """Return the demand of a job of the class; for a model or a pool only where it accepts no other."""
        known = self._demands.get(id(key))
        if known is None or known[0] is not key:
            if len(self._demands) > DEMANDS_MAX:
                self._demands.clear()
            known = self._demands[id(key)] = (key, self._demand(key))
        return known[1]

    def _demand(self, key: RequestClass) -> tuple[int, ...]:
        ask, host = key.ask, key.ask.host_total
        wanted = ask.each.devices
        model = wanted.models[0] if wanted is not None and len(wanted.models) == 1 else ""
        models: Models = ((model, ask.device_milli),) if model else ()
        for each, count in ((ask.each, ask.replicas), *((group.each, group.replicas) for group in ask.others)):
            models = models_with(models, each.claimed, count) if each.claimed else models
        charge = UsedAmounts(ask.charged_milli, host.cpu_milli, host.memory_bytes, 1, models, (), host.storage_bytes)
        if self.pools_differ(key):
            return self.vector(charge)
        demand = self.vector(charge.of_pool(ask.pool, self.pools))
        return self.with_power(demand, ask) if self.power_columns else demand

    def with_power(self, demand: tuple[int, ...], ask: GangAsk, *, most: bool = False) -> tuple[int, ...]:
        """Return a demand with the least power of a gang without places, or the most, by the models it accepts."""
        powers = self._powers.get(ask.pool, {})
        draw = most_power(ask, powers) if most else least_power(ask, powers)
        first = len(demand) - len(self._power_columns)
        return demand[:first] + tuple(draw if pool == ask.pool else 0 for _, pool in self._power_columns)

    def pools_differ(self, key: RequestClass) -> bool:
        """Return whether the demand of a job of the class depends on its pool, known only from its place."""
        return bool(self.pools) and any(other.pool != key.ask.pool for other in key.alternatives)

    def demand_of(
        self, ask: GangAsk, places: Sequence[ReplicaPlace], nodes: Mapping[NodeName, Node]
    ) -> tuple[int, ...]:
        """Return the demand of a placed gang, its devices by their actual models."""
        models: dict[str, int] = {}
        if self._counts_models:
            for rank, place in enumerate(places):
                each = ask.each_of(rank)
                wanted = each.devices
                for model, milli in each.claimed:
                    models[model] = models.get(model, 0) + milli
                for index in place.devices:
                    assert wanted is not None
                    model = nodes[place.node].spec.devices[index].model
                    models[model] = models.get(model, 0) + wanted.milli // len(place.devices)
        host = ask.host_total
        devices = tuple(sorted(models.items()))
        charge = UsedAmounts(ask.charged_milli, host.cpu_milli, host.memory_bytes, 1, devices, (), host.storage_bytes)
        return self.vector(charge.of_pool(ask.pool, self.pools) if self.pools else charge)

    def cpus_of(self, ask: GangAsk) -> tuple[int, ...]:
        """Return the CPUs of a gang alone: the demand that a suspended attempt adds when it resumes."""
        return self.vector(UsedAmounts(0, ask.host_total.cpu_milli).of_pool(ask.pool, self.pools))

    def charge(self, branch: QueueNode, demand: Sequence[int], sign: int = 1) -> None:
        """Count `demand` for a queue and every queue above it."""
        devices, cpus, memory, jobs = sign * demand[0], sign * demand[1], sign * demand[2], sign * demand[3]
        more = len(demand) > len(_FIRST)
        at: QueueNode | None = branch
        limit_node = branch.tenant_limit
        while at is not None:
            used = at.used
            used[0] += devices
            used[1] += cpus
            used[2] += memory
            used[3] += jobs
            if more:
                for i in range(len(_FIRST), len(demand)):
                    used[i] += sign * demand[i]
            at, limit_node = (at.parent, limit_node) if at.parent is not None else (limit_node, None)

    def charge_within(self, account: QueueNode, demand: Sequence[int]) -> bool:
        """Count `demand` where it exceeds no maximum; return whether it was counted."""
        if self.exceeded(account, demand) is not None:
            return False
        self.charge(account, demand)
        return True

    def without(self, charges: Iterable[tuple[QueueNode, Sequence[int]]]) -> Tentative[None]:
        """Leave these amounts out of the use of their accounts while the context lasts."""
        left_out = list(charges)
        return Tentative(partial(self._charge_all, left_out, -1), lambda _: self._charge_all(left_out))

    def _charge_all(self, charges: Iterable[tuple[QueueNode, Sequence[int]]], times: int = 1) -> None:
        for account, demand in charges:
            self.charge(account, demand, times)

    def exceeded(self, branch: QueueNode, demand: Sequence[int]) -> QuotaExceeded | None:
        """Return the lowest maximum that `demand` would exceed, or None when it may start."""
        tenant = branch.tenant_limit
        if tenant is not None:
            for i, limit in tenant.limits:
                if demand[i] and tenant.used[i] + demand[i] > limit:
                    return QuotaExceeded(tenant.name, self.resources[i], tenant.used[i], limit, demand[i])
        at: QueueNode | None = branch
        while at is not None:
            for i, limit in at.limits:
                if demand[i] and at.used[i] + demand[i] > limit:
                    return QuotaExceeded(at.name, self.resources[i], at.used[i], limit, demand[i])
            parent = at.parent
            if parent is not None and parent.siblings_kept:
                found = self._not_lent(at, parent, demand)
                if found is not None:
                    return found
            at = parent
        return None

    def _not_lent(self, branch: QueueNode, parent: QueueNode, demand: Sequence[int]) -> QuotaExceeded | None:
        """Return the maximum exceeded because siblings do not lend part of their guarantees, even while idle."""
        limits = dict(parent.limits)
        for i, amount in enumerate(demand):
            whole = limits.get(i, self.total[i])
            if not amount or whole <= 0 or i in self.power_columns:
                continue
            others = sum(max(c.used[i], c.kept[i] if c.kept else 0) for c in parent.children if c is not branch)
            if branch.used[i] + amount + others > whole:
                return QuotaExceeded(parent.name, self.resources[i], branch.used[i] + others, whole, amount)
        return None

    def share(self, branch: QueueNode) -> int:
        """Return the weighted dominant share in billionths: the largest use of any resource over its total.

        With a half-life it is the mean of present and past use: what the average will be a half-life from now if the
        present use goes on. Source: DRF, Ghodsi et al., NSDI'11.
        """
        devices, cpus, memory, *_ = branch.used
        all_devices, all_cpus, all_memory, *_ = self.total
        if self._half_life_ms:
            devices = (devices + branch.past) // 2
        dominant = devices * SHARE_SCALE // all_devices if all_devices else 0
        if all_cpus and cpus * SHARE_SCALE > dominant * all_cpus:
            dominant = cpus * SHARE_SCALE // all_cpus
        if all_memory and memory * SHARE_SCALE > dominant * all_memory:
            dominant = memory * SHARE_SCALE // all_memory
        return dominant // branch.weight

    def guarantee_used(self, branch: QueueNode) -> tuple[int, int]:
        """Return (0, use over guarantee in billionths) below the guarantee, else (1, weighted share)."""
        worst, promised = 0, False
        for i, amount in branch.promised:
            promised = True
            worst = max(worst, branch.used[i] * SHARE_SCALE // amount)
        if promised and worst < SHARE_SCALE:
            return (0, worst)
        return (1, self.share(branch))


def _resources(config: ClusterConfig) -> tuple[str, ...]:
    quotas = [quota for queue in config.queues for quota in (queue.guaranteed, queue.max, queue.lend or ())]
    named = {name for quota in (*quotas, *(tenant.max for tenant in config.tenants)) for name, _ in quota}
    return (*_FIRST, *sorted(named.difference(_FIRST)), *(power_resource(pool) for pool in config.power_limits))
