"""Penstock's queues as Volcano's, for clusters that keep Volcano as their scheduler, and what it has no word for.

A guarantee is `deserved`, the part of it that is not lent `guarantee`, a maximum `capability`: `volcano.read` makes the
same of them again. The objects keep to what Volcano's admission asks for: guarantee <= deserved <= capability
within a queue, guarantees of the queues below within that of theirs, and no capability above that of a queue above.
Source: scheduling.volcano.sh/v1beta1 and the admission of queues, as of August 2026.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.core.config.cluster import declaration
from penstock.core.config.queues import MODEL_PREFIX, amount_of
from penstock.core.config.reader import brief
from penstock.core.model import cluster as c
from penstock.core.model.ids import QueueName
from penstock.core.model.quantities import exact_size, format_resource, split_resource
from penstock.formats.names import ObjectNames
from penstock.migrate.report import MigrationEntry, MigrationReport, SourcePlace

VERSION = "scheduling.volcano.sh/v1beta1"
WEIGHT_MAX = 65_535
DEPTH_MAX = 5
"""Levels of queues that Volcano admits unless its webhook was told otherwise."""
CPU, MEMORY, STORAGE = "cpu", "memory", "ephemeral-storage"
Json = dict[str, Any]
Sums = dict[str, int]
"""Amounts by resource of Kubernetes: CPUs in thousandths, memory and storage in bytes, others whole."""
_SECTIONS = {
    "pools": "Volcano has no pools: pods choose nodes by labels, queues by node groups (`affinity`)",
    "tenants": "Volcano has no tenants: a namespace has a ResourceQuota",
    "users": "rights are those of the cluster (RBAC)",
    "reservations": "Volcano reserves no nodes for a time",
    "billing": "Volcano sends no bills",
    "notifications": "Volcano notifies nobody",
    "settings": "how the scheduler decides is its own configuration (volcano-scheduler.conf)",
    "candidates": "how the scheduler places is its own configuration (volcano-scheduler.conf)",
}
_FIELDS = {
    "policy": "its jobs go by the scheduler's plugins: `priority`, then age",
    "preemption": "the scheduler's actions `preempt` and `reclaim` hold for all queues",
    "min_runtime": "Volcano keeps no attempt from being preempted for a time",
    "max_waiting": "Volcano bounds no number of waiting jobs",
    "idle": "Volcano does not look at idle jobs",
    "alerts": "Volcano raises no alerts: see its metrics",
}
_ROOT_POLICIES = {
    "capacity": "the scheduler's plugin `capacity`, which looks at `deserved`",
    "fair_share": "the scheduler's plugin `proportion`: it shares by weight, and does not look at `deserved`",
}


class Exported(NamedTuple):
    """Objects of Kubernetes, and the outcome of each key of the configuration."""

    objects: tuple[Json, ...]
    report: tuple[MigrationEntry, ...]


class VolcanoQueues:
    """The queues of a configuration as Volcano has them.

    Args:
        place: where the configuration comes from, for the report.
        device: the resource that devices are counted as.
    """

    def __init__(self, config: c.ClusterConfig, place: SourcePlace, report: MigrationReport, device: str) -> None:
        self._place, self._report = place, report
        self._resources = {"devices": device, "cpus": CPU, "memory": MEMORY, "storage": STORAGE}
        self._queues = _parents_first(config.queues)
        self._depths = _depths(self._queues)
        names = ObjectNames(c.ROOT_QUEUE)
        self.names: dict[QueueName, str] = {queue.name: names.plain(queue.name) for queue in self._queues}
        self.parents = {queue.parent for queue in self._queues} - {c.ROOT_QUEUE}
        """Queues that have queues below them."""
        self._deserved: dict[QueueName, Sums] = {}
        self._kept: dict[QueueName, Sums] = {}
        self._limits: dict[QueueName, Sums] = {}
        declared = declaration(config)
        written = {entry["name"]: entry for entry in declared["queues"]}
        self._sections(declared, config)
        weights = self._weights()
        for queue in self._queues:
            self._take(queue, written[queue.name])
        self._fit()
        self.objects = [self._object(queue, weights[queue.name]) for queue in self._queues]

    # What has no counterpart.

    def _sections(self, declared: Mapping[str, Any], config: c.ClusterConfig) -> None:
        usual = declaration(c.ClusterConfig())
        for section, why in _SECTIONS.items():
            if section in declared and declared[section] != usual.get(section):
                self._report.lost(self._place, section, brief(declared[section]), why)
        how = _ROOT_POLICIES.get(config.root_policy, "the scheduler's plugins decide the order of queues")
        self._report.approximated(self._place, "root_policy", config.root_policy, how)

    def _take(self, queue: c.Queue, written: Mapping[str, Any]) -> None:
        """Note what becomes of each field, and the amounts."""
        name, report, key = self.names[queue.name], self._report, f"queues.{queue.name}"
        if name != queue.name:
            report.approximated(self._place, f"{key}.name", queue.name, f"the queue is called '{name}'")
        if queue.parent != c.ROOT_QUEUE:
            report.mapped(self._place, f"{key}.parent", queue.parent)
            if (depth := self._depths[queue.name]) > DEPTH_MAX:
                how = f"{depth} queues deep: Volcano's webhook admits {DEPTH_MAX} unless --max-queue-depth says more"
                report.approximated(self._place, f"{key}.parent", queue.parent, how)
        for field, how in _FIELDS.items():
            if field in written:
                report.lost(self._place, f"{key}.{field}", brief(written[field]), how)
        for field, quota in (("guaranteed", queue.guaranteed), ("max", queue.max), ("lend", queue.lend or ())):
            for resource, amount in quota:
                self._note(f"{key}.{field}.{resource}", field, resource, amount)
        promised = {one: amount_of(queue.guaranteed, one) for one in self._resources}
        lent = dict(queue.lend) if queue.lend is not None else promised
        self._deserved[queue.name] = self._sums(promised)
        self._kept[queue.name] = self._sums({one: has - lent.get(one, 0) for one, has in promised.items()})
        limits = {one: amount for one, amount in queue.max if one in self._resources}
        self._limits[queue.name] = self._sums(limits, zero=("devices", "storage"))

    def _note(self, key: str, field: str, resource: str, amount: int) -> None:
        pool, kind = split_resource(resource)
        text, report, place = format_resource(resource, amount), self._report, self._place
        to = {"guaranteed": "deserved", "max": "capability", "lend": "guarantee: what is not lent"}[field]
        if pool:
            report.lost(place, key, text, "Volcano has no pools")
        elif kind.startswith(MODEL_PREFIX) and field == "guaranteed":
            report.approximated(place, key, text, "among its devices: Volcano counts these by resource, not by model")
        elif kind.startswith(MODEL_PREFIX):
            report.lost(place, key, text, "Volcano counts devices by resource, not by model")
        elif kind not in self._resources:
            report.lost(place, key, text, f"Volcano counts no {kind}")
        elif field == "max" and not amount and kind in ("cpus", "memory"):
            report.lost(place, key, text, "a capability of 0 is no limit in Volcano: close the queue")
        elif kind == "devices" and amount % 1000:
            report.approximated(place, key, text, f"{to}, in whole devices: parts of one are left out")
        else:
            report.mapped(place, key, text, to)

    def _sums(self, amounts: Mapping[str, int], *, zero: Sequence[str] = ()) -> Sums:
        """Return amounts by resource of Kubernetes. Args: zero: resources of which 0 says something, too."""
        found = {}
        for kind, amount in amounts.items():
            whole = amount // 1000 if kind == "devices" else amount
            if whole > 0 or kind in zero:
                found[self._resources[kind]] = whole
        return found

    # What Volcano's admission asks for.

    def _raise_kept(self, queue: c.Queue, below: Sums) -> None:
        """Keep at least what the queues below keep together, which is never more than is deserved."""
        kept = self._kept[queue.name]
        for resource, amount in sorted(below.items()):
            if kept.get(resource, 0) < amount:
                had, text = (quantity(resource, one) for one in (kept.get(resource, 0), amount))
                how = f"guarantee {text}: the queues below keep so much together"
                self._report.approximated(self._place, f"queues.{queue.name}.guarantee of {resource}", had, how)
                kept[resource] = amount

    def _clip(self, queue: c.Queue, above: Sums) -> None:
        """Lower maxima to those of the queues above: more than these it can never hold."""
        limits = self._limits[queue.name]
        for resource, amount in sorted(limits.items()):
            if amount > above.get(resource, amount):
                had, text = (quantity(resource, one) for one in (amount, above[resource]))
                how = f"capability {text}: the queues above hold no more"
                self._report.approximated(self._place, f"queues.{queue.name}.capability of {resource}", had, how)
                limits[resource] = above[resource]

    def _fit(self) -> None:
        below: dict[QueueName, Sums] = {}
        for queue in reversed(self._queues):
            self._raise_kept(queue, below.get(queue.name, {}))
            sums = below.setdefault(queue.parent, {})
            for resource, amount in self._kept[queue.name].items():
                sums[resource] = sums.get(resource, 0) + amount
        above: dict[QueueName, Sums] = {}
        for queue in self._queues:
            self._clip(queue, above.get(queue.parent, {}))
            above[queue.name] = {**above.get(queue.parent, {}), **self._limits[queue.name]}

    def _weights(self) -> dict[QueueName, int]:
        """Return weights that Volcano admits; where one of siblings is larger, all of these are divided."""
        largest: dict[QueueName, int] = {}
        for queue in self._queues:
            largest[queue.parent] = max(largest.get(queue.parent, 1), queue.weight)
        found: dict[QueueName, int] = {}
        for queue in self._queues:
            most = largest[queue.parent]
            key = f"queues.{queue.name}.weight"
            if most <= WEIGHT_MAX:
                found[queue.name] = queue.weight
                self._report.mapped(self._place, key, queue.weight)
            else:
                weight = found[queue.name] = max(1, round(queue.weight * WEIGHT_MAX / most))
                self._report.approximated(
                    self._place, key, queue.weight, f"{weight}: Volcano admits {WEIGHT_MAX} at most"
                )
        return found

    def _object(self, queue: c.Queue, weight: int) -> Json:
        spec: Json = {} if queue.parent == c.ROOT_QUEUE else {"parent": self.names[queue.parent]}
        spec |= {"weight": weight, "reclaimable": True}
        if kept := quantities(self._kept[queue.name]):
            spec["guarantee"] = {"resource": kept}
        for field, sums in (("deserved", self._deserved), ("capability", self._limits)):
            if amounts := quantities(sums[queue.name]):
                spec[field] = amounts
        return {"apiVersion": VERSION, "kind": "Queue", "metadata": {"name": self.names[queue.name]}, "spec": spec}


def _parents_first(queues: Sequence[c.Queue]) -> list[c.Queue]:
    below: dict[QueueName, list[c.Queue]] = {}
    for queue in queues:
        below.setdefault(queue.parent, []).append(queue)
    found = list(below.get(c.ROOT_QUEUE, ()))
    for queue in found:
        found += below.get(queue.name, ())
    return found


def _depths(queues: Sequence[c.Queue]) -> dict[QueueName, int]:
    """Return how many queues each is deep, itself included. Args: queues: parents first."""
    found: dict[QueueName, int] = {}
    for queue in queues:
        found[queue.name] = found.get(queue.parent, 0) + 1
    return found


def quantity(resource: str, amount: int) -> str:
    """Return an amount as Kubernetes writes it, such as `8`, `1500m` or `64Gi`."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in (MEMORY, STORAGE):
        return exact_size(amount).removesuffix("B")
    return str(amount)


def quantities(sums: Sums) -> dict[str, str]:
    return {resource: quantity(resource, amount) for resource, amount in sorted(sums.items())}
