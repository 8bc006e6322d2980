"""The partitions of slurm.conf: pools where they share no nodes, else one pool with a label for each.

A node is in one pool, but may be in many partitions. Partitions that share nodes become one pool together, so that
jobs reach as many nodes as before; which of them a job may use it says by `node_labels`.
Source: https://slurm.schedmd.com/slurm.conf.html#SECTION_PARTITION-CONFIGURATION
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from penstock.core.model.cluster import DEFAULT_POOL, BackfillRule, PlacementPolicy, Pool
from penstock.core.model.ids import PoolName
from penstock.formats.slurm import limit_ms
from penstock.migrate.names import Names
from penstock.migrate.report import Fate, MigrationReport, SourcePlace, fates
from penstock.migrate.slurm.hosts import Hosts
from penstock.migrate.slurm.lines import PlacedValue, SlurmField, SlurmLine, Values, is_true, with_defaults
from penstock.migrate.slurm.nodes import Draft

PoolKind = Literal["gpu", "npu", "cpu", "mixed"]
NO_PARTITION = "no-partition"
PARTITIONS_MAX = 1_000
MEMBERSHIPS_MAX = 1_000_000
"""Nodes in partitions, counted once for each partition."""
LABEL_PREFIX = "partition."
DESCRIPTION_NAMES_MAX = 20
_WHOLE_WHY = "jobs share nodes; a job that wants a whole one asks for all of it"
_FATES = {
    **fates("mapped", {
        "the pool of these nodes, or their label partition.NAME": "Nodes",
        "the pool called 'default', for jobs that name none": "Default",
    }),
    **fates("approximated", {
        "whole devices are never shared; a job may ask for a share of one": "OverSubscribe Shared",
    }),
    **fates("not mapped", {
        "Penstock has no limit per pool; a job's own `time_limit` holds": "MaxTime",
        "a job that says no time has none; `predict_run_times` expects one from jobs like it": "DefaultTime",
        "pools have no priority; give such jobs a higher `priority`": "PriorityTier PriorityJobFactor Priority",
        "whether jobs may be preempted is said by the job (`preemptible`), not by the pool": "PreemptMode",
        "the grace before a stop is the job's own: `grace`": "GraceTime",
        "nodes are shared between users; a reservation keeps nodes for a tenant": "ExclusiveUser",
        "switches and racks are shared between jobs": "ExclusiveTopo",
        _WHOLE_WHY: "Exclusive",
        "all users see all pools": "Hidden",
        "a job says its pool": "Alternate",
        "reservations are for tenants, in the cluster file": "ReqResv",
        "a pool has no quotas: give the queue of its jobs a max": "QOS",
        "how Slurm binds tasks": "CpuBind",
        "Penstock always counts CPUs, memory and devices": "SelectTypeParameters",
        "prices are not part of the cluster file": "TRESBillingWeights",
        "one topology holds for all pools": "Topology",
        "a limit per job; Penstock has none: jobs say what they need": "DefCpuPerGPU DefMemPerCPU DefMemPerGPU"
        " DefMemPerNode MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MinNodes OverTimeLimit",
        "who may use which nodes is not part of the cluster file": "AllocNodes AllowAccounts AllowGroups AllowQos"
        " DenyAccounts DenyQos DisableRootJobs RootOnly",
        "Penstock switches no nodes on or off": "PowerDownOnIdle ResumeTimeout SuspendTime SuspendTimeout",
        "a line names its partitions once": "PartitionName",
    }),
}  # fmt: skip
KEYS = ("LLN", "State", *_FATES)
"""Keys of a line, as Slurm spells them."""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    place: SourcePlace
    nodes: tuple[str, ...]
    default: bool
    least_loaded: bool


def read_partitions(
    lines: Sequence[SlurmLine], nodes: dict[str, Draft], hosts: Hosts, report: MigrationReport
) -> tuple[Partition, ...]:
    """Return partitions in the order of the file; each field of their lines gets an entry.

    Raises: ImportFault for a partition given twice, bad times and numbers, and above `PARTITIONS_MAX`.
    """
    sets = _node_sets(lines, nodes, hosts, report)
    found: dict[str, Partition] = {}
    members = 0
    for line, values in with_defaults(lines, "PartitionName", _fate, report):
        for name in hosts.expand(line.place, "PartitionName", line.name):
            if name in found:
                raise line.place.fault("PartitionName", name, "each partition once")
            if len(found) >= PARTITIONS_MAX:
                raise line.place.fault("PartitionName", name, f"at most {PARTITIONS_MAX} partitions")
            found[name] = _partition(name, values, line, _Known(nodes, sets, hosts, report))
            members += len(found[name].nodes)
            if members > MEMBERSHIPS_MAX:
                raise line.place.fault("Nodes", name, f"at most {MEMBERSHIPS_MAX} nodes in all partitions together")
    return tuple(found.values())


class _Known(msgspec.Struct, frozen=True):
    nodes: dict[str, Draft]
    sets: dict[str, tuple[str, ...]]
    hosts: Hosts
    report: MigrationReport


def _partition(name: str, values: Values, line: SlurmLine, known: _Known) -> Partition:
    given = values.get("Nodes")
    nodes = _nodes_of(given, known) if given else ()
    for key in ("MaxTime", "DefaultTime"):
        _check_time(key, values.get(key))
    return Partition(
        name=name,
        place=line.place,
        nodes=nodes,
        default="Default" in values and is_true(values["Default"].text),
        least_loaded="LLN" in values and is_true(values["LLN"].text),
    )


def _check_time(key: str, value: PlacedValue | None) -> None:
    if value is None or value.text.upper() in ("NONE", "DEFAULT"):
        return
    try:
        limit_ms(value.text)
    except ValueError:
        raise value.place.fault(key, value.text, "a time such as 60, 1-12:00:00 or INFINITE") from None


def _nodes_of(value: PlacedValue, known: _Known) -> tuple[str, ...]:
    """Return the nodes that a list names by name, by node set or by `ALL`; the others are reported."""
    if value.text.upper() == "ALL":
        return tuple(known.nodes)
    found: dict[str, None] = {}
    unknown: list[str] = []
    for name in known.hosts.expand(value.place, "Nodes", value.text):
        if name in known.nodes:
            found[name] = None
        elif name in known.sets:
            found.update(dict.fromkeys(known.sets[name]))
        elif name != '""':
            unknown.append(name)
    if unknown:
        how = f"{len(unknown)} are no nodes or node sets, such as '{unknown[0]}'"
        known.report.approximated(value.place, "Nodes", value.text, how)
    return tuple(found)


def _node_sets(
    lines: Iterable[SlurmLine], nodes: dict[str, Draft], hosts: Hosts, report: MigrationReport
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if line.kind != "NodeSet":
            continue
        name, feature, names = line.name, line.get("Feature"), line.get("Nodes")
        if feature is None and names is None:
            raise line.place.fault("NodeSet", name, "Feature or Nodes in its line")
        here = dict.fromkeys(hosts.expand(line.place, "Nodes", names) if names else ())
        here.update(dict.fromkeys(node.name for node in nodes.values() if feature in node.features))
        found[name] = tuple(node for node in here if node in nodes)
        for field in line.fields:
            report.mapped(line.place, field.key, field.value, f"{len(found[name])} nodes, where partitions name it")
    return found


def _fate(field: SlurmField) -> Fate:
    word = field.value.upper()
    if field.key == "LLN":
        return Fate("mapped", "placement worst_fit" if is_true(word) else "placement of the other settings")
    if field.key == "State" and word == "UP":
        return Fate("mapped", "a pool is always up")
    if field.key == "State":
        return Fate("not mapped", "a pool is always up: drain its nodes with `penstock drain`")
    if field.key in ("OverSubscribe", "Shared") and word == "EXCLUSIVE":
        return Fate("not mapped", _WHOLE_WHY)
    return _FATES[field.key]


def to_pools(
    partitions: Sequence[Partition],
    nodes: dict[str, Draft],
    report: MigrationReport,
    *,
    placement: PlacementPolicy,
    backfill: BackfillRule,
) -> tuple[tuple[Pool, ...], dict[str, PoolName]]:
    """Return pools, and by node the pool it is in. The default partition's pool is called `default`."""
    for partition in partitions:
        for name in partition.nodes:
            nodes[name].partitions.append(partition.name)
    names = Names()
    pools: list[Pool] = []
    pool_of: dict[str, PoolName] = {}
    groups = _groups(partitions)
    default = next((g for g in groups if any(p.default for p in g)), groups[0] if len(groups) == 1 else ())
    names.plain(DEFAULT_POOL)
    for group in groups:
        pool = DEFAULT_POOL if group is default else PoolName(names.plain(group[0].name))
        members = [name for partition in group for name in partition.nodes]
        pool_of.update(dict.fromkeys(members, pool))
        least_loaded = any(partition.least_loaded for partition in group)
        shown = ", ".join(p.name for p in group[:DESCRIPTION_NAMES_MAX])
        pools.append(
            Pool(
                pool,
                kind=_kind(members, nodes),
                description=f"Slurm partition {shown}" if len(group) == 1 else f"Slurm partitions {shown}",
                placement="worst_fit" if least_loaded else placement,
                backfill=backfill,
            )
        )
        _say_pool(group, pool, report)
    outside = [name for name in nodes if name not in pool_of]
    if outside and partitions:
        pool = PoolName(names.plain(NO_PARTITION))
        pool_of.update(dict.fromkeys(outside, pool))
        pools.append(Pool(pool, description="nodes of no Slurm partition", backfill=backfill))
        why = f"{len(outside)} nodes are in no partition, such as '{outside[0]}': pool '{pool}'"
        report.approximated(nodes[outside[0]].place, "NodeName", outside[0], why)
    return tuple(pools) or (Pool(DEFAULT_POOL, placement=placement, backfill=backfill),), pool_of


def _kind(names: Iterable[str], nodes: dict[str, Draft]) -> PoolKind:
    having = {any(gres.name == "gpu" for gres in nodes[name].gres) for name in names}
    return "mixed" if len(having) != 1 else "gpu" if having == {True} else "cpu"


def _say_pool(group: Sequence[Partition], pool: PoolName, report: MigrationReport) -> None:
    for partition in group:
        if len(group) == 1:
            report.mapped(partition.place, "PartitionName", partition.name, f"pool '{pool}'")
        else:
            how = f"pool '{pool}', which {len(group)} partitions with common nodes share; its jobs say"
            how += f' `node_labels: {{{LABEL_PREFIX}{partition.name}: "true"}}`'
            report.approximated(partition.place, "PartitionName", partition.name, how)


def _groups(partitions: Sequence[Partition]) -> list[tuple[Partition, ...]]:
    """Return partitions in groups that share nodes, directly or through others, in the order of the file."""
    root = list(range(len(partitions)))

    def top(at: int) -> int:
        while root[at] != at:
            root[at] = root[root[at]]
            at = root[at]
        return at

    first: dict[str, int] = {}
    for index, partition in enumerate(partitions):
        for name in partition.nodes:
            one, other = sorted((top(first.setdefault(name, index)), top(index)))
            root[other] = one
    found: dict[int, list[Partition]] = {}
    for index, partition in enumerate(partitions):
        found.setdefault(top(index), []).append(partition)
    return [tuple(group) for group in found.values()]
