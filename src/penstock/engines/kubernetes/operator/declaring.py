"""Queues and ComputePools as objects: what they say becomes the configuration, and what it comes to their status.

As long as there is any object of a kind, objects are all that there is of it, beside what is called `default` and what
live jobs still use: a queue whose object is gone leaves with its last job. What only Penstock knows of a queue or pool,
such as its order, is kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.model import cluster as c
from penstock.core.model.errors import nearest
from penstock.core.model.ids import PoolName, QueueName, TenantName
from penstock.core.model.resources import Virtualization
from penstock.engines.kubernetes.amounts import CPU, MEMORY, STORAGE, BadAmount, amount
from penstock.engines.kubernetes.nodes import DEVICE_RESOURCES
from penstock.engines.kubernetes.objects import penstock as objects

WORDS = {CPU: "cpus", "cpus": "cpus", MEMORY: "memory", STORAGE: "storage", "storage": "storage",
         "devices": "devices", "jobs": "jobs"}  # fmt: skip
"""Resources of Kubernetes and of Penstock, in Penstock's words."""
IN_MILLI = ("cpus", "devices")
DEVICES = "devices"
PREEMPTION: Mapping[str, c.PreemptionRule] = {
    "PreemptLowerPriority": "lower_priority", "Reclaim": "reclaim", "Never": "never"
}  # fmt: skip
"""Whom the jobs of a queue may ask to leave, in the words of objects and ours."""
FAIR_SHARE: c.BuiltinPolicy = "fair_share"
Kind = TypeVar("Kind", c.Queue, c.Pool)
Thing = TypeVar("Thing", objects.Queue, objects.ComputePool)


class FairShare(msgspec.Struct, frozen=True):
    """How the top-level queues share what there is."""

    enabled: bool = True
    """By weight and use; False: not in this way."""
    half_life_ms: int | None = None
    """After this long half of a queue's past use is forgotten; None: as it is."""


class Declared(NamedTuple):
    """A configuration as objects declare it."""

    config: c.ClusterConfig
    problems: Mapping[str, str]
    """What is wrong, by object (`queue NAME`, `pool NAME`); nothing is applied then."""


def declared(
    config: c.ClusterConfig,
    queues: Iterable[objects.Queue],
    pools: Iterable[objects.ComputePool],
    in_use: Iterable[str] = (),
    fair_share: FairShare | None = None,
) -> Declared:
    """Return the configuration that holds with these objects.

    Args:
        config: the present one.
        in_use: objects that are gone (as in `problems`), and whose queue or pool live jobs use still.
        fair_share: None: as it is.
    """
    problems: dict[str, str] = {}
    kept, queues, pools = set(in_use), list(queues), list(pools)
    if queues:
        known_queues = {queue.name: queue for queue in config.queues}
        made = {one.metadata.name: _try(queue_of, one, known_queues, "queue", problems) for one in queues}
        stay = {q.name: q for q in config.queues if q.name == c.DEFAULT_QUEUE or f"queue {q.name}" in kept}
        config = msgspec.structs.replace(config, queues=_all(stay, made))
    if pools:
        known_pools = {pool.name: pool for pool in config.pools}
        declared_pools = {one.metadata.name: _try(pool_of, one, known_pools, "pool", problems) for one in pools}
        remain = {p.name: p for p in config.pools if p.name == c.DEFAULT_POOL or f"pool {p.name}" in kept}
        config = with_quotas(msgspec.structs.replace(config, pools=_all(remain, declared_pools)), pools)
    if fair_share is not None:
        config = _sharing(config, fair_share)
    if not problems:
        _, found = parse_cluster(declaration(config))
        for one in found:
            text = f"{one.message} ({one.hint})" if one.hint else one.message
            problems.setdefault(_object_of(one.field, config), text)
    return Declared(config, problems)


def _sharing(config: c.ClusterConfig, wanted: FairShare) -> c.ClusterConfig:
    """Return the configuration with the order of top-level queues that is wanted."""
    policy = config.root_policy
    if wanted.enabled or policy == FAIR_SHARE:
        policy = FAIR_SHARE if wanted.enabled else c.ClusterConfig().root_policy
    settings = config.settings
    if wanted.half_life_ms is not None:
        settings = msgspec.structs.replace(settings, fair_share_half_life_ms=wanted.half_life_ms)
    return msgspec.structs.replace(config, root_policy=policy, settings=settings)


def _try(
    make: Callable[[Thing, Kind | None], Kind],
    one: Thing,
    known: Mapping[Any, Kind],
    word: str,
    problems: dict[str, str],
) -> Kind | None:
    """Return what an object declares; None, with the problem noted, where it cannot be read."""
    try:
        return make(one, known.get(one.metadata.name))
    except ValueError as error:
        problems[f"{word} {one.metadata.name}"] = str(error)
        return None


def _all(stay: Mapping[Any, Kind], made: Mapping[str, Kind | None]) -> tuple[Kind, ...]:
    both = {**stay, **{name: one for name, one in sorted(made.items()) if one is not None}}
    return tuple(both.values())


def _object_of(field: str, config: c.ClusterConfig) -> str:
    """Return the object that a field of a configuration comes from, such as `queues[2].max` or `pools[0]`."""
    head, _, rest = field.partition("[")
    number = rest.partition("]")[0]
    entries: Sequence[c.Queue | c.Pool] = config.queues if head == "queues" else config.pools
    if head in ("queues", "pools") and number.isdecimal() and int(number) < len(entries):
        return f"{head.removesuffix('s')} {entries[int(number)].name}"
    return ""


def queue_of(one: objects.Queue, known: c.Queue | None) -> c.Queue:
    """Return a queue as its object has it. Raises: ValueError."""
    spec, base = one.spec, known or c.Queue(QueueName(one.metadata.name))
    lend = spec.lending_limit
    return msgspec.structs.replace(
        base,
        parent=QueueName(spec.parent) if spec.parent else c.ROOT_QUEUE,
        weight=spec.weight,
        guaranteed=quota(spec.guaranteed_capacity, "spec.guaranteedCapacity"),
        max=quota(spec.max_capacity, "spec.maxCapacity"),
        lend=None if lend is None else quota(lend, "spec.lendingLimit"),
        preemption=PREEMPTION[spec.preemption_policy],
    )


def pool_of(one: objects.ComputePool, known: c.Pool | None) -> c.Pool:
    """Return a pool as its object has it. Raises: ValueError."""
    spec, base = one.spec, known or c.Pool(PoolName(one.metadata.name))
    parts, capacity = spec.virtualization, spec.capacity
    if parts.enabled and parts.strategy == "vgpu":
        raise ValueError("spec.virtualization.strategy is vgpu, expected mig or time-slicing: no vGPU is given out")
    if capacity.reserved and not capacity.total:
        raise ValueError("spec.capacity.total is 0, expected the devices of the pool, of which some are reserved")
    if capacity.reserved > capacity.total:
        text = f"spec.capacity.reserved is {capacity.reserved}, expected {capacity.total} (total) at most"
        raise ValueError(text)
    promised = next((one for one in spec.quotas if one.guaranteed), None)
    if promised is not None:
        text = f"spec.quotas: {promised.guaranteed} are guaranteed to {promised.tenant}, expected 0"
        raise ValueError(f"{text}: it is a Queue whose guaranteedCapacity is kept")
    given: dict[str, Virtualization] = {"mig": "mig", "time-slicing": "time_slicing"}
    return msgspec.structs.replace(
        base,
        kind=spec.pool_type,
        reserve_milli=1000 * capacity.reserved // capacity.total if capacity.total else 0,
        virtualization=given[parts.strategy] if parts.enabled else "none",
    )


def with_quotas(config: c.ClusterConfig, pools: Iterable[objects.ComputePool]) -> c.ClusterConfig:
    """Return the configuration with the limits that pools set to tenants; tenants that are not known are added."""
    limits: dict[TenantName, dict[str, int]] = {}
    for pool in pools:
        for one in pool.spec.quotas:
            limits.setdefault(TenantName(one.tenant), {})[f"{pool.metadata.name}/{DEVICES}"] = 1000 * one.limit
    if not limits:
        return config
    known = {tenant.name: tenant for tenant in config.tenants}
    for name, amounts in sorted(limits.items()):
        tenant = known.get(name, c.Tenant(name))
        kept = {resource: value for resource, value in tenant.max if not resource.endswith(f"/{DEVICES}")}
        known[name] = msgspec.structs.replace(tenant, max=tuple(sorted({**kept, **amounts}.items())))
    return msgspec.structs.replace(config, tenants=tuple(known.values()))


def quota(share: objects.Share, field: str) -> c.Quota:
    """Return amounts in Penstock's units. Args: field: where they stand. Raises: ValueError."""
    found: dict[str, int] = {}
    for name, text in share.items():
        word = WORDS.get(name) or (DEVICES if name in DEVICE_RESOURCES else name if name.startswith("devices:") else "")
        if not word:
            raise ValueError(_no_resource(name, field))
        try:
            number = amount(CPU if word.split(":")[0] in IN_MILLI else MEMORY, str(text))
        except BadAmount:
            raise ValueError(f"{field}.{name} is '{text}', expected a quantity such as 8 or 64Gi") from None
        found[word] = found.get(word, 0) + number
    return tuple(sorted(found.items()))


def _no_resource(name: str, field: str) -> str:
    known = (*WORDS, "nvidia.com/gpu")
    close = nearest(name, (*known, *DEVICE_RESOURCES))
    hint = f"; {close}" if close.startswith("did you mean") else ""
    return f"{field}.{name}: expected one of {', '.join(known)}{hint}"
