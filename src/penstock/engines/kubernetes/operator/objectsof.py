"""A configuration as Queue and ComputePool objects: what `declaring.py` makes of these is the same again.

What they cannot carry is named: the order of a queue, tenants, settings. It stays as it is where objects are applied.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.core.config.cluster import declaration
from penstock.core.config.reader import brief
from penstock.core.model import cluster as c
from penstock.core.model.quantities import BYTES, exact_size, format_milli, split_resource
from penstock.engines.kubernetes.amounts import CPU, MEMORY, STORAGE
from penstock.engines.kubernetes.install.schemas import RESOURCES_MAX
from penstock.engines.kubernetes.objects.penstock import GROUP, VERSION
from penstock.engines.kubernetes.operator.declaring import IN_MILLI, PREEMPTION
from penstock.formats.names import ObjectNames

Json = dict[str, Any]
_RESOURCES = {"cpus": CPU, "memory": MEMORY, "storage": STORAGE}
_POLICIES = {rule: word for word, rule in PREEMPTION.items()}
_QUEUE_FIELDS = ("policy", "min_runtime", "max_waiting", "idle", "alerts")
_SECTIONS = {
    "tenants": "no object says it: penstock admin add tenant NAME",
    "users": "no object says it: penstock admin add user NAME",
    "reservations": "no object says it: penstock admin add reservation NAME",
    "billing": "no object says it: penstock admin set billing.FIELD=VALUE",
    "notifications": "no object says it: penstock admin set notifications.FIELD=VALUE",
    "settings": "no object says it: penstock admin set settings.FIELD=VALUE",
    "candidates": "no object says it: penstock admin set candidates=VALUE",
    "root_policy": "no object says it: penstock admin set root_policy=VALUE",
}
_KINDS = {"gpu": "gpu", "npu": "npu", "mixed": "mixed"}
_STRATEGIES: Mapping[str, Json] = {
    "none": {},
    "mig": {"enabled": True, "strategy": "mig"},
    "time_slicing": {"enabled": True, "strategy": "time-slicing"},
}


class NotSaid(NamedTuple):
    """A key of the configuration that is otherwise in the objects, or not at all."""

    key: str
    value: str
    why: str
    lost: bool = True
    """False: it is in the objects in another way."""


def objects_of(config: c.ClusterConfig) -> tuple[list[Json], list[NotSaid]]:
    """Return the objects, and what they do not say."""
    return _Writer(config).written()


class _Writer:
    def __init__(self, config: c.ClusterConfig) -> None:
        self._config, self._declared = config, declaration(config)
        names, of_pools = ObjectNames(c.ROOT_QUEUE), ObjectNames(c.DEFAULT_POOL)
        self._names: dict[str, str] = {queue.name: names.plain(queue.name) for queue in config.queues}
        self._pools = {one.name: of_pools.plain(one.name) for one in config.pools if one.name != c.DEFAULT_POOL}
        self._not_said: list[NotSaid] = []

    def written(self) -> tuple[list[Json], list[NotSaid]]:
        usual = declaration(c.ClusterConfig())
        for section, why in _SECTIONS.items():
            if section in self._declared and self._declared[section] != usual.get(section):
                value = brief(self._declared[section])
                self._lost(section, value, why.replace("=VALUE", f"={value}") if section == "root_policy" else why)
        fields = {entry["name"]: entry for entry in self._declared["queues"]}
        found = [self._queue(queue, fields[queue.name]) for queue in self._config.queues]
        of_pools = {entry["name"]: entry for entry in self._declared["pools"]}
        for pool in self._config.pools:
            if pool.name == c.DEFAULT_POOL:
                self._note_pool(pool, of_pools[pool.name])
            else:
                found.append(self._pool(pool, of_pools[pool.name]))
        return found, self._not_said

    def _lost(self, key: str, value: object, why: str) -> None:
        self._not_said.append(NotSaid(key, str(value), why))

    def _queue(self, queue: c.Queue, fields: Mapping[str, Any]) -> Json:
        key, name = f"queues.{queue.name}", self._names[queue.name]
        self._note_name(f"{key}.name", queue.name, name)
        for field in _QUEUE_FIELDS:
            if field in fields:
                why = f"a Queue does not say it: {_setting(f'queue.{name}.{field}', fields[field])}"
                self._lost(f"{key}.{field}", brief(fields[field]), why)
        spec: Json = {} if queue.parent == c.ROOT_QUEUE else {"parent": self._names[queue.parent]}
        spec["weight"] = queue.weight
        for field, word in (("guaranteed", "guaranteedCapacity"), ("max", "maxCapacity"), ("lend", "lendingLimit")):
            quota: c.Quota | None = getattr(queue, field)
            if quota or (field == "lend" and quota is not None):
                spec[word] = self._share(f"{key}.{field}", quota or ())
        spec["preemptionPolicy"] = _POLICIES[queue.preemption]
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Queue", "metadata": {"name": name}, "spec": spec}

    def _note_name(self, key: str, name: str, made: str) -> None:
        if made != name:
            self._not_said.append(NotSaid(key, name, f"it is called '{made}'", lost=False))

    def _share(self, key: str, quota: c.Quota) -> dict[str, str]:
        found: dict[str, str] = {}
        for resource, amount in quota:
            pool, kind = split_resource(resource)
            text = _quantity(kind, amount)
            if pool:
                self._lost(f"{key}.{resource}", text, "a Queue has no quotas of single pools")
            elif len(found) >= RESOURCES_MAX:
                self._lost(f"{key}.{resource}", text, f"a Queue has quotas of {RESOURCES_MAX} resources at most")
            else:
                found[_RESOURCES.get(kind, kind)] = text
        return found

    def _pool(self, pool: c.Pool, fields: Mapping[str, Any]) -> Json:
        self._note_pool(pool, fields)
        name = self._pools[pool.name]
        self._note_name(f"pools.{pool.name}.name", pool.name, name)
        key, spec = f"pools.{pool.name}", {"poolType": _KINDS.get(pool.kind, "mixed")}
        if pool.kind not in _KINDS:
            self._lost(f"{key}.kind", pool.kind, "a ComputePool is of kind gpu, npu or mixed")
        if pool.virtualization not in _STRATEGIES:
            why = "a ComputePool gives out whole devices, or parts of one kind (mig, time-slicing)"
            self._lost(f"{key}.virtualization", pool.virtualization, why)
        elif virtualization := _STRATEGIES[pool.virtualization]:
            spec["virtualization"] = virtualization  # type: ignore[assignment]
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "ComputePool", "metadata": {"name": name}, "spec": spec}

    def _note_pool(self, pool: c.Pool, fields: Mapping[str, Any]) -> None:
        """Note what no ComputePool says of a pool; of the default one, which needs none, that is everything."""
        said = ("name",) if pool.name == c.DEFAULT_POOL else ("name", "kind", "virtualization")
        for field, value in fields.items():
            if field not in said:
                name = self._pools.get(pool.name, pool.name)
                why = f"a ComputePool does not say it: {_setting(f'pool.{name}.{field}', value)}"
                self._lost(f"pools.{pool.name}.{field}", brief(value), why)


def _setting(path: str, value: object) -> str:
    """Return the command that sets a field by hand."""
    return f"penstock admin set {path}={'VALUE' if isinstance(value, list | dict) else value}"


def _quantity(kind: str, amount: int) -> str:
    if kind in BYTES:
        return exact_size(amount).removesuffix("B")
    return format_milli(amount) if kind.partition(":")[0] in IN_MILLI else str(amount)
