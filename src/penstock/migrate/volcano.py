"""Volcano's queues, and the configuration of its scheduler where it is given, to Penstock's queue tree.

Volcano knows three amounts: `guarantee` is never lent, `deserved` is got back by reclaim, `capability` is the maximum.
Penstock guarantees the larger of the first two, lends the part above Volcano's guarantee, and has `max`.
Source: https://volcano.sh/en/docs/queue/, https://volcano.sh/en/docs/hierarchical_queue/,
https://volcano.sh/en/docs/schduler_introduction/ (spelt so) and the API type scheduling.volcano.sh/v1beta1.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from penstock.core.model.cluster import DEFAULT_POOL, PlacementPolicy, Pool, PreemptionRule, Settings
from penstock.migrate.fields import Fields
from penstock.migrate.located import LocatedTable, Value
from penstock.migrate.manifests import Object, embedded, objects, priority_class, read_documents, resource_list
from penstock.migrate.model import Amount, Imported, MigrationSource, QueueResource, SourceQueue
from penstock.migrate.report import MigrationReport
from penstock.migrate.toconfig import to_config

GROUP = "scheduling.volcano.sh"
ROOT = "root"
SETTINGS_ENDING = "scheduler.conf"
"""Of the key in a ConfigMap; Volcano's other parts have a `volcano-admission.conf` and more of their own."""
WEIGHT_MAX = 2**31 - 1
DEFAULT_ACTIONS = ("enqueue", "allocate", "backfill")
DEFAULT_PLUGINS = ("priority", "gang", "conformance", "overcommit", "drf", "predicates", "proportion", "nodeorder")
"""Volcano's plugins without a configuration."""
_ELSEWHERE = {
    "PodGroup": "jobs are not imported",
    "Job": "jobs are not imported",
    "Command": "jobs are not imported",
    "HyperNode": "nodes carry `rack` and `switch`; Volcano's tiers of groups are not read",
    "Numatopology": "nodes report their own NUMA nodes",
}
_PLUGINS = {
    "priority": "a queue orders its jobs by priority, then age",
    "gang": "all replicas of a job start together, always",
    "proportion": "policy fair_share by `weight`",
    "capacity": "policy capacity: queues below their guarantee first",
    "binpack": "placement best_fit",
}


class Scheduler:
    """The configuration of the scheduler, as far as Penstock supports it."""

    def __init__(self) -> None:
        self.actions: tuple[str, ...] = DEFAULT_ACTIONS
        self.plugins: tuple[str, ...] = DEFAULT_PLUGINS

    @property
    def knows_deserved(self) -> bool:
        """Whether `deserved` counts: only the plugin capacity looks at it. Without a configuration it does."""
        return self.plugins is DEFAULT_PLUGINS or "capacity" in self.plugins

    @property
    def preemption(self) -> PreemptionRule:
        if "preempt" in self.actions:
            return "lower_priority"
        return "reclaim" if "reclaim" in self.actions else "never"


def read(paths: Iterable[Path]) -> Imported:
    """Return Penstock's equivalent of Volcano's queues in these YAML files, and the outcome of each field.

    Read are Queue, PriorityClass, and the scheduler's configuration by itself or in its ConfigMap; the order of files
    does not matter. Raises: ImportFault for a file that is not this, for slips in names, cycles and doubles.
    """
    report = MigrationReport()
    found = read_documents(paths)
    settings = [value for value in found if _is_settings(value)]
    things = objects([value for value in found if not _is_settings(value)], report)
    settings += embedded(things, SETTINGS_ENDING)
    scheduler = _scheduler(settings, report)
    queues = [queue for one in things for queue in _object(one, scheduler, report)]
    capacity = "capacity" in scheduler.plugins
    placement: PlacementPolicy = "best_fit" if "binpack" in scheduler.plugins else "fragmentation"
    source = MigrationSource(
        queues=tuple(queues),
        pools=(Pool(DEFAULT_POOL, placement=placement, backfill="none"),),
        settings=Settings(wait_bonus_max=0, size_penalty_per_device=0),  # priority, then age; nothing else counts
        root_policy="capacity" if capacity else "fair_share",
    )
    return to_config(source, report)


def _is_settings(value: Value) -> bool:
    """Whether a document is the scheduler's configuration and no object."""
    keys = {pair.key for pair in value.pairs} if isinstance(value, LocatedTable) else set()
    return "kind" not in keys and bool(keys & {"actions", "tiers"})


def _scheduler(settings: Sequence[Value], report: MigrationReport) -> Scheduler:
    found = Scheduler()
    if len(settings) > 1:
        raise settings[1].place.fault("actions", "", "one configuration of the scheduler")
    for value in settings:
        if not isinstance(value, LocatedTable):
            raise value.place.fault("", "", "a mapping with actions and tiers")
        fields = Fields(value, "", report)
        if fields.has("actions"):
            found.actions = tuple(word.strip() for word in fields.text("actions").split(",") if word.strip())
        fields.approximated("actions", f"preemption {found.preemption} in all queues; allocate is what a cycle does")
        names = []
        for tier in fields.items("tiers"):
            names += [_plugin(plugin) for plugin in tier.items("plugins")]
            tier.done()
        if fields.has("tiers"):
            found.plugins = tuple(names)
        fields.lost("configurations", "arguments of Volcano's actions")
        fields.lost("metrics", "Volcano's source of node metrics")
        fields.done()
    return found


def _plugin(fields: Fields) -> str:
    name = fields.required("name")
    if name in _PLUGINS:
        fields.mapped("name", _PLUGINS[name])
    else:
        fields.lost("name", "no such part in Penstock")
    for key in fields.names():
        if key != "name":
            fields.lost(key, f"an argument of Volcano's plugin {name}")
    return name


def _object(one: Object, scheduler: Scheduler, report: MigrationReport) -> list[SourceQueue]:
    if (one.group, one.kind) == (GROUP, "Queue"):
        return _queue(one, scheduler)
    if one.kind == "PriorityClass":
        priority_class(one)
    elif one.kind != "ConfigMap":
        report.lost(one.place, "kind", one.kind, _ELSEWHERE.get(one.kind, "no object that this importer reads"))
    return []


def _queue(one: Object, scheduler: Scheduler) -> list[SourceQueue]:
    spec, name = one.spec(), one.named()
    if name == ROOT:
        _root(spec)
        return []
    if not scheduler.knows_deserved:
        spec.lost("deserved", "in Volcano, too, only the plugin capacity looks at it, and that is not on")
    amounts = _amounts(spec, deserves=scheduler.knows_deserved)
    parent = spec.text("parent")
    spec.mapped("parent", f"parent of queue '{name}'")
    weight = spec.integer("weight", 1, low=0, high=WEIGHT_MAX)
    how = "weight in the order of queues; Volcano also reclaims by weight, Penstock only its guarantee"
    spec.approximated("weight", how)
    if spec.flag("reclaimable", default=True):
        spec.mapped("reclaimable", "what a queue holds above its guarantee can be reclaimed")
    else:
        spec.lost(
            "reclaimable", "what a queue holds above its guarantee can be reclaimed: guarantee what it has to keep"
        )
    spec.lost("priority", "queues have no priorities in Penstock: use weight and guarantees")
    spec.lost("affinity", "keep nodes for a queue in a pool of their own, or use node labels")
    spec.lost("extendClusters", "Penstock plans one cluster")
    spec.lost("type", "Penstock has one type of queue")
    spec.lost("dequeueStrategy", "a job that does not fit never holds back those behind it (backfill none)")
    spec.done()
    return [
        SourceQueue(
            key=name,
            name=name,
            parent="" if parent in ("", ROOT) else parent,
            place=one.place,
            weight=Fraction(weight),
            amounts=tuple(amounts),
            policy="priority" if "priority" in scheduler.plugins else "fifo",
            preemption=scheduler.preemption,
        )
    ]


def _root(spec: Fields) -> None:
    for key in spec.names():
        spec.lost(key, "Penstock's root is always there and has no quotas: what there is follows from the nodes")


def _amounts(spec: Fields, *, deserves: bool) -> list[Amount]:
    """Return per resource: the larger of guarantee and deserved, the loan (the part above the guarantee), max."""
    kept: dict[QueueResource, int] = {}
    deserved: dict[QueueResource, int] = {}
    limits: dict[QueueResource, int] = {}
    guarantee = spec.inner("guarantee")
    if guarantee is not None:
        resource_list(guarantee, "resource", "guaranteed and not lent", lambda a: _add(kept, a))
        guarantee.done()
    if deserves:
        resource_list(spec, "deserved", "guaranteed", lambda a: _add(deserved, a))
    resource_list(spec, "capability", "max", lambda a: _add(limits, a))
    found = []
    for resource in sorted({*kept, *deserved, *limits}):
        promised = max(kept.get(resource, 0), deserved.get(resource, 0))
        lend = promised - kept[resource] if resource in kept else None
        found.append(Amount(resource, "", promised, None, limits.get(resource), lend))
    return found


def _add(sums: dict[QueueResource, int], amount: Amount) -> None:
    sums[amount.resource] = sums.get(amount.resource, 0) + amount.nominal
