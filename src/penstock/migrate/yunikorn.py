"""YuniKorn's queues to Penstock's queue tree, and its partitions to pools.

Source: https://yunikorn.apache.org/docs/user_guide/queue_config, .../sorting_policies, .../priorities and
.../resource_quota_management; the defaults of properties and what children inherit as in yunikorn-core.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path

from penstock.core.model.cluster import DEFAULT_POOL, Pool, PreemptionRule, QueuePolicy, Settings
from penstock.core.model.ids import PoolName
from penstock.formats.quantities import rounded_up, yunikorn_quantity
from penstock.migrate.fields import Fields
from penstock.migrate.located import LocatedTable, Value
from penstock.migrate.manifests import amount_of_resource, embedded, objects, read_documents
from penstock.migrate.model import Amount, Imported, MigrationSource, SourceQueue
from penstock.migrate.names import Names
from penstock.migrate.report import MigrationReport
from penstock.migrate.toconfig import to_config

ROOT = "root"
DEFAULT_PARTITION = "default"
DEPTH_MAX = 20
JOBS_MAX = 2**50
_WHO = "who may do what is not part of the cluster file"
_SORT, _SORT_PRIORITY = "application.sort.policy", "application.sort.priority"
_PREEMPTION = "preemption.policy"

Properties = dict[str, str]


def read(paths: Iterable[Path]) -> Imported:
    """Return Penstock's equivalent of YuniKorn's queues, and the outcome of each field.

    Files are `queues.yaml` itself or the ConfigMap that carries it. A queue is called by its path without `root.`.
    Raises: ImportFault for a file that is not this, for slips in names of fields, and for queues given twice.
    """
    report = MigrationReport()
    partitions: list[Fields] = []
    for value in _settings(read_documents(paths), report):
        if not isinstance(value, LocatedTable):
            raise value.place.fault("", "", "a mapping with partitions")
        top = Fields(value, "", report)
        partitions += top.items("partitions")
        top.skip("checksum")
        top.done()
    reading = _Reading(report)
    for partition in partitions:
        reading.partition(partition)
    source = MigrationSource(
        queues=tuple(reading.queues),
        pools=tuple(reading.pools),
        settings=Settings(wait_bonus_max=0, size_penalty_per_device=0),  # priority, then age; nothing else counts
        root_policy="capacity",
    )
    return to_config(source, report)


def _settings(found: Iterable[Value], report: MigrationReport) -> list[Value]:
    """Return the documents that hold partitions, out of ConfigMaps where they are in one."""
    given = list(found)
    bare = [value for value in given if not _is_object(value)]
    things = objects([value for value in given if _is_object(value)], report)
    for one in things:
        if one.kind != "ConfigMap":
            report.lost(one.place, "kind", one.kind, "no object that this importer reads")
    return [*bare, *embedded(things, "queues.yaml")]


def _is_object(value: Value) -> bool:
    return isinstance(value, LocatedTable) and any(pair.key == "kind" for pair in value.pairs)


class _Reading:
    """Queues and pools read so far."""

    def __init__(self, report: MigrationReport) -> None:
        self.report = report
        self.queues: list[SourceQueue] = []
        self.pools: list[Pool] = []
        self._pool_names = Names()
        self._partitions: set[str] = set()

    def partition(self, fields: Fields) -> None:
        name = fields.required("name")
        if name in self._partitions:
            raise fields.fault("name", "each partition once")
        self._partitions.add(name)
        pool = PoolName(self._pool_names.plain(DEFAULT_POOL if name == DEFAULT_PARTITION else name))
        fields.mapped("name", f"pool '{pool}'; each job names its pool")
        self.pools.append(_pool(fields, pool))
        fields.lost("placementrules", "a job names its queue; Penstock makes no queues by rule")
        fields.lost("limits", "Penstock has no quotas for single users: only for queues")
        fields.lost("statedumpfilepath", "YuniKorn's own setting")
        properties: Properties = {}
        preemption = fields.inner("preemption")
        if preemption is not None:
            if not preemption.flag("enabled", default=True):
                properties[_PREEMPTION] = "disabled"
            preemption.mapped("enabled", "preemption of the queues")
            preemption.done()
        prefix = "" if name == DEFAULT_PARTITION else f"{name}."
        queues = fields.items("queues")
        fields.done()
        if len(queues) == 1 and queues[0].text("name").lower() == ROOT:
            self._root(queues[0], prefix, properties)
        else:
            for queue in queues:
                self._queue(queue, "", prefix, properties, 1)

    def _root(self, fields: Fields, prefix: str, properties: Properties) -> None:
        fields.mapped("name", "Penstock's root, which is always there")
        fields.lost("resources", "Penstock's root has no quotas: what there is follows from the nodes")
        fields.lost("maxapplications", "Penstock's root has no quotas")
        properties = self._common(fields, properties)
        for queue in fields.items("queues"):
            self._queue(queue, "", prefix, properties, 1)
        fields.done()

    def _common(self, fields: Fields, inherited: Properties) -> Properties:
        """Read the fields of every queue beside quotas; return its effective properties."""
        for key in ("submitacl", "adminacl"):
            fields.lost(key, _WHO)
        fields.lost("limits", "Penstock has no quotas for single users: only for queues")
        fields.lost("childtemplate", "Penstock makes no queues by rule")
        if fields.flag("parent", default=False):
            fields.mapped("parent", "any queue may have queues below it")
        fields.skip("parent")
        return _properties(fields, inherited)

    def _queue(self, fields: Fields, parent: str, prefix: str, inherited: Properties, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise fields.place.fault(fields.path("queues"), "", f"at most {DEPTH_MAX} levels of queues")
        own = fields.required("name")
        name = f"{prefix}{own}"
        fields.mapped("name", f"queue '{name}'")
        properties = self._common(fields, inherited)
        amounts = _amounts(fields)
        if fields.has("maxapplications"):
            limit = fields.integer("maxapplications", 0, low=0, high=JOBS_MAX)
            fields.mapped("maxapplications", "max jobs" if limit else "0: no limit")
            amounts += [Amount("jobs", max=limit)] if limit else []
        children = fields.items("queues")
        fields.done()
        self.queues.append(
            SourceQueue(
                key=name.lower(),
                name=name,
                parent=parent,
                place=fields.place,
                amounts=tuple(amounts),
                policy="capacity" if children else _policy(properties),
                preemption=_rule(properties),
            )
        )
        for child in children:
            self._queue(child, name.lower(), f"{name}.", _passed_on(properties), depth + 1)


def _pool(fields: Fields, name: PoolName) -> Pool:
    sort = fields.inner("nodesortpolicy")
    kind = "fair"
    if sort is not None:
        kind = sort.word("type", ("fair", "binpacking"), "fair")
        sort.mapped("type", "placement best_fit" if kind == "binpacking" else "placement worst_fit")
        sort.lost("resourceweights", "Penstock's placement has its own weights")
        sort.done()
    return Pool(name, placement="best_fit" if kind == "binpacking" else "worst_fit", backfill="none")


def _amounts(fields: Fields) -> list[Amount]:
    resources = fields.inner("resources")
    if resources is None:
        return []
    promised = _resource_list(resources, "guaranteed", "guaranteed")
    limits = _resource_list(resources, "max", "max")
    resources.done()
    found = [amount._replace(max=limits[name].nominal if name in limits else None) for name, amount in promised.items()]
    rest = (amount for name, amount in limits.items() if name not in promised)
    return found + [Amount(amount.resource, max=amount.nominal) for amount in rest]


def _resource_list(parent: Fields, key: str, note: str) -> dict[str, Amount]:
    """Return amounts by Penstock's resource; several accelerators' resources add up."""
    inner = parent.inner(key)
    found: dict[str, Amount] = {}
    for resource in inner.names() if inner else ():
        assert inner is not None
        parse = partial(yunikorn_quantity, vcore=resource == "vcore")
        number = inner.quantity(resource, parse, "10, 500m (of vcore) or 64Gi")
        amount = _amount(resource, number)
        if amount is None:
            inner.lost(resource, f"Penstock has no quota for {resource}: only for devices, cpus, memory and jobs")
            continue
        inner.mapped(resource, note)
        had = found.get(amount.resource)
        found[amount.resource] = amount._replace(nominal=amount.nominal + (had.nominal if had else 0))
    return found


def _amount(resource: str, number: Fraction) -> Amount | None:
    if resource == "vcore":
        return Amount("cpus", "", rounded_up(number, 1000))
    return None if resource == "cpu" else amount_of_resource(resource, number)


def _properties(fields: Fields, inherited: Properties) -> Properties:
    """Return a queue's properties over those of its parent, with an entry for each."""
    found = dict(inherited)
    inner = fields.inner("properties")
    if inner is None:
        return found
    for key, words in _WORDS.items():
        if inner.has(key):
            found[key] = inner.word(key, words, words[0])
    _say_sort(inner, found)
    _say_preemption(inner, found)
    if inner.text("priority.offset", "0") == "0":
        inner.mapped("priority.offset", "no offset")
    else:
        inner.lost("priority.offset", "queues have no priorities in Penstock: add the offset to the jobs' own")
    if inner.text("priority.policy", "default") == "default":
        inner.mapped("priority.policy", "priorities of jobs are compared across queues where policies look at them")
    else:
        inner.lost("priority.policy", "priorities are not fenced: they count beyond the queue in preemption")
    inner.lost("preemption.delay", "a job waits for no delay before others are asked to leave")
    inner.lost("quota.preemption.delay", "YuniKorn's own setting")
    inner.done()
    return found


_WORDS: dict[str, tuple[str, ...]] = {
    _SORT: ("fifo", "fair", "stateaware"),
    _SORT_PRIORITY: ("enabled", "disabled"),
    _PREEMPTION: ("default", "fence", "disabled"),
    "priority.policy": ("default", "fence"),
}


def _say_sort(inner: Fields, properties: Properties) -> None:
    policy = _policy(properties)
    if properties.get(_SORT, "fifo") == "fifo":
        inner.mapped(_SORT, f"policy {policy}")
    elif properties[_SORT] == "fair":
        inner.approximated(_SORT, "policy fair_share: between tenants, by what they hold; not between single jobs")
    else:
        inner.approximated(_SORT, f"policy {policy}; jobs that are starting do not hold back others")
    inner.mapped(_SORT_PRIORITY, f"policy {policy}")


def _say_preemption(inner: Fields, properties: Properties) -> None:
    word = properties.get(_PREEMPTION, "default")
    if word == "default":
        inner.mapped(_PREEMPTION, "preemption reclaim: up to its guarantee")
    elif word == "fence":
        inner.approximated(_PREEMPTION, "preemption reclaim: victims are sought beyond the queue's subtree, too")
    else:
        inner.approximated(_PREEMPTION, "preemption never; others may still reclaim what it holds above its guarantee")


def _policy(properties: Properties) -> QueuePolicy:
    if properties.get(_SORT, "fifo") == "fair":
        return "fair_share"
    return "fifo" if properties.get(_SORT_PRIORITY, "enabled") == "disabled" else "priority"


def _rule(properties: Properties) -> PreemptionRule:
    return "never" if properties.get(_PREEMPTION, "default") == "disabled" else "reclaim"


def _passed_on(properties: Properties) -> Properties:
    """Return the properties that children inherit: not priorities. That they inherit fences changes nothing here."""
    return {key: value for key, value in properties.items() if not key.startswith("priority.")}
