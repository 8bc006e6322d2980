"""The one way from the queue model of imports to Penstock's configuration.

Guarantees have to add up here, level by level; where a source does not ask for that, the upper one is raised and
reported. A contradiction (a cycle, a double, a guarantee above a maximum) is an error with its place.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from penstock.core.config.pools import ENTRIES_MAX
from penstock.core.config.queues import MODEL_PREFIX, WEIGHT_MAX, amount_of
from penstock.core.model import cluster as c
from penstock.core.model.errors import nearest
from penstock.core.model.ids import QueueName
from penstock.core.model.quantities import BYTES, format_resource
from penstock.formats.devices import plain_model
from penstock.migrate.model import Amount, Imported, MigrationSource, SourceQueue
from penstock.migrate.names import Names
from penstock.migrate.report import MigrationReport, SourcePlace

AMOUNT_MAX = 2**50
"""Thousandths and jobs: above it a decimal number of a cluster file is no longer exact."""
MEMORY_MAX_BYTES = 2**60
QUOTAS_MAX = 1_000_000
"""Guarantees and maxima of all queues together."""
MAX_WAITING_LIMIT = 10_000_000
ZERO_WEIGHT_PART = 1000
"""A weight of 0 counts as this part of the smallest other one."""

Amounts = dict[str, int]


def to_config(source: MigrationSource, report: MigrationReport) -> Imported:
    """Return the nodes and configuration of `source`, with all entries of the report.

    Raises: ImportFault for a cycle, an unknown parent, two queues with one key, more than 10,000 of anything, and
        for a promise above a maximum.
    """
    _check_counts(source)
    order = _parents_first(source.queues)
    plain = _names(order, report)
    tree = _Tree(source, order, report)
    weights = _weights(order, report)
    queues = tuple(
        c.Queue(
            name=plain[q.key],
            parent=plain[q.parent] if q.parent else c.ROOT_QUEUE,
            policy=q.policy,
            preemption=q.preemption,
            weight=weights[q.key],
            guaranteed=_quota(tree.promised[q.key]),
            max=_quota(tree.limits[q.key]),
            lend=_lend(tree.lends[q.key]),
            min_runtime_ms=q.min_runtime_ms,
            max_waiting=200_000 if q.max_waiting is None else min(max(1, q.max_waiting), MAX_WAITING_LIMIT),
        )
        for q in order
    )
    default = c.ClusterConfig()
    config = c.ClusterConfig(
        pools=source.pools or default.pools,
        tenants=source.tenants or default.tenants,
        queues=queues or default.queues,
        settings=source.settings,
        root_policy=source.root_policy,
    )
    return Imported(source.nodes, config, report.entries())


def _check_counts(source: MigrationSource) -> None:
    counts = {"queues": source.queues, "pools": source.pools, "tenants": source.tenants, "nodes": source.nodes}
    for what, entries in counts.items():
        if len(entries) > ENTRIES_MAX:
            place = source.queues[0].place if source.queues else SourcePlace("")
            raise place.fault(what, len(entries), f"at most {ENTRIES_MAX} {what}", "import a part of them")


def _parents_first(queues: Sequence[SourceQueue]) -> list[SourceQueue]:
    """Return queues with parents before children, otherwise in the order of the source."""
    by_key: dict[str, SourceQueue] = {}
    for queue in queues:
        if queue.key in by_key:
            first = by_key[queue.key].place
            raise queue.place.fault("name", queue.name, f"each queue once; it is also at {first.file}:{first.line}")
        by_key[queue.key] = queue
    depth: dict[str, int] = {"": 0}
    for queue in queues:
        _measure(queue, by_key, depth)
    return sorted(queues, key=lambda q: depth[q.key])


def _measure(queue: SourceQueue, by_key: Mapping[str, SourceQueue], depth: dict[str, int]) -> None:
    """Note how far `queue` and those above it are from the root."""
    path: list[SourceQueue] = []
    seen: set[str] = set()
    at = queue
    while at.key not in depth:
        if at.key in seen:
            raise at.place.fault("parent", at.parent, "a tree: this queue is above itself")
        seen.add(at.key)
        path.append(at)
        if at.parent and at.parent not in by_key:
            raise at.place.fault("parent", at.parent, "the name of a queue", nearest(at.parent, by_key))
        if at.parent in depth:
            break
        at = by_key[at.parent]
    for found in reversed(path):
        depth[found.key] = depth[found.parent] + 1


def _names(order: Sequence[SourceQueue], report: MigrationReport) -> dict[str, QueueName]:
    names = Names(c.ROOT_QUEUE)
    found: dict[str, QueueName] = {}
    for queue in order:
        name = names.plain(queue.name)
        found[queue.key] = QueueName(name)
        if name != queue.name:
            report.approximated(queue.place, "name", queue.name, f"the queue is called '{name}'")
    return found


class _Tree:
    """Guarantee, maximum and loans of each queue, by the resource names of cluster files."""

    def __init__(self, source: MigrationSource, order: Sequence[SourceQueue], report: MigrationReport) -> None:
        self._models = {flavour.name: plain_model(flavour.model) for flavour in source.flavours}
        self._count = 0
        self._report = report
        self._below: dict[str, list[SourceQueue]] = {}
        for queue in order:
            self._below.setdefault(queue.parent, []).append(queue)
        self.promised: dict[str, Amounts] = {}
        self.limits: dict[str, Amounts] = {}
        self.lends: dict[str, Amounts | None] = {}
        for queue in reversed(order):
            self.promised[queue.key] = self._promise(queue)
            self.limits[queue.key] = self._limit(queue)
            self.lends[queue.key] = self._lend(queue)
            self._check(queue)

    def _resource(self, amount: Amount) -> str:
        if amount.resource == "devices" and self._models.get(amount.flavour):
            return MODEL_PREFIX + self._models[amount.flavour]
        return amount.resource

    def _sums(self, queue: SourceQueue, field: str) -> Amounts:
        """Return one field of the amounts by resource name; flavours of one name add up, None is left out."""
        found: Amounts = {}
        for amount in queue.amounts:
            value: int | None = getattr(amount, field)
            if value is not None:
                name = self._resource(amount)
                found[name] = found.get(name, 0) + value
        return found

    def _promise(self, queue: SourceQueue) -> Amounts:
        own = {name: value for name, value in self._sums(queue, "nominal").items() if value}
        children = self._below.get(queue.key, [])
        below = {
            name: sum(amount_of(_quota(self.promised[child.key]), name) for child in children)
            for name in {name for child in children for name in self.promised[child.key]}
        }
        if queue.adds:
            return _with_devices({name: own.get(name, 0) + below.get(name, 0) for name in {*own, *below}})
        lifted = _with_devices(own)
        for name in sorted(below, key=lambda name: (name == "devices", name)):  # models first: they are devices, too
            if lifted.get(name, 0) < below[name]:
                lifted = _with_devices({**lifted, name: below[name]})
                had, text = format_resource(name, own.get(name, 0)), format_resource(name, below[name])
                how = f"lifted to {text}, which the queues below '{queue.name}' are promised together"
                self._report.approximated(queue.place, f"guaranteed {name}", had, how)
        return lifted

    def _limit(self, queue: SourceQueue) -> Amounts:
        """Return the maxima, declared or from borrowing limits; none where one flavour has no limit."""
        found: Amounts = {}
        promised = self.promised[queue.key]
        open_ended: set[str] = set()
        own = self._sums(queue, "nominal")
        for amount in queue.amounts:
            name = self._resource(amount)
            limit = amount.max
            if amount.borrow is not None:
                borrowed = amount.nominal + amount.borrow
                limit = borrowed if limit is None else min(limit, borrowed)
            if limit is None:
                open_ended.add(name)
            else:
                found[name] = found.get(name, 0) + limit
        for name in open_ended & found.keys():
            del found[name]
        if queue.adds:  # guarantees of the queues below come on top of its own amount
            found = {name: limit + promised.get(name, 0) - own.get(name, 0) for name, limit in found.items()}
        if queue.sealed:
            found = {**own, **promised, **found}
        if queue.only_named:
            found = self._named_only(queue, found, {self._resource(a) for a in queue.amounts})
        return found

    def _named_only(self, queue: SourceQueue, limits: Amounts, named: set[str]) -> Amounts:
        """Close device models that the queue does not name, and the sum where each of its models is closed."""
        found = dict(limits)
        mine = {name for name in named if name.startswith(MODEL_PREFIX)}
        if "devices" in named:
            return found
        for model in sorted(set(self._models.values())):
            if model and MODEL_PREFIX + model not in mine:
                found[MODEL_PREFIX + model] = 0
        if mine <= found.keys():
            found["devices"] = sum(found[name] for name in mine)
        return found

    def _lend(self, queue: SourceQueue) -> Amounts | None:
        """Return the lent part of each guarantee, or None where no lending limit is set."""
        promised, lent = self.promised[queue.key], self._sums(queue, "lend")
        if not lent:
            return None
        for amount in queue.amounts:
            if amount.lend is None and self._resource(amount) in lent:
                lent[self._resource(amount)] += amount.nominal
        found = {name: min(value, lent.get(name, value)) for name, value in promised.items()}
        kept = sum(value - found[name] for name, value in promised.items() if name.startswith(MODEL_PREFIX))
        if kept and "devices" not in lent:
            found["devices"] = max(0, promised["devices"] - kept)
        return found

    def _check(self, queue: SourceQueue) -> None:
        for name, limit in sorted(self.limits[queue.key].items()):
            promised = amount_of(_quota(self.promised[queue.key]), name)
            if promised > limit:
                given, most = format_resource(name, promised), format_resource(name, limit)
                expected = f"at most {most} of {name}, the maximum of queue '{queue.name}'"
                raise queue.place.fault(f"guaranteed {name}", given, expected, "raise the maximum, or promise less")
        named = [*self.limits[queue.key].items(), *self.promised[queue.key].items()]
        self._count += len(named)
        if self._count > QUOTAS_MAX:
            raise queue.place.fault("", self._count, f"at most {QUOTAS_MAX} quotas in all queues together")
        for name, value in sorted(named):
            highest = MEMORY_MAX_BYTES if name in BYTES else AMOUNT_MAX
            if value > highest:
                raise queue.place.fault(name, value, f"an amount of at most {highest}")


def _with_devices(amounts: Amounts) -> Amounts:
    """Return guarantees in which devices are at least those of single models: a job may ask for any of them."""
    models = sum(value for name, value in amounts.items() if name.startswith(MODEL_PREFIX))
    return {**amounts, "devices": max(models, amounts.get("devices", 0))} if models else amounts


def _quota(amounts: Amounts) -> c.Quota:
    return tuple(sorted(amounts.items()))


def _lend(amounts: Amounts | None) -> c.Quota | None:
    return None if amounts is None else _quota(amounts)


def _weights(order: Sequence[SourceQueue], report: MigrationReport) -> dict[str, int]:
    """Return whole weights from 1 to 1,000,000 whose ratios among siblings are the source's, as far as they go."""
    found: dict[str, int] = {}
    siblings: dict[str, list[SourceQueue]] = {}
    for queue in order:
        siblings.setdefault(queue.parent, []).append(queue)
    for group in siblings.values():
        above = [q.weight for q in group if q.weight > 0]
        nothing = min(above) / ZERO_WEIGHT_PART if above else Fraction(1)
        wanted = [q.weight if q.weight > 0 else nothing for q in group]
        scale = Fraction(lcm(*(w.denominator for w in wanted)))
        if max(wanted) * scale > WEIGHT_MAX:
            scale = WEIGHT_MAX / max(wanted)
        for queue, weight in zip(group, wanted, strict=True):
            whole = max(1, round(weight * scale))
            found[queue.key] = whole
            if queue.weight == 0:
                how = f"the least: 1/{ZERO_WEIGHT_PART} of the smallest other weight beside it; Penstock knows no 0"
                report.approximated(queue.place, "weight", 0, how)
            elif whole != weight * scale:
                report.approximated(queue.place, "weight", queue.weight, f"{whole}, rounded with those beside it")
    return found
