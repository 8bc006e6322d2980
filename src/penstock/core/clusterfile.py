"""Cluster files: plain data to pools, tenants, the queue tree, settings and virtual nodes, with all problems found."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from penstock.core.errors import Problem, nearest
from penstock.core.model import cluster as c
from penstock.core.model.ids import PoolName, QueueName, TenantName
from penstock.core.reader import Reader
from penstock.core.units import parse_duration_ms, parse_size_bytes

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
NODES_MAX = 256


class VirtualNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node declared on this machine. Quantities that are 0 are taken from the machine."""

    name: str
    cpu_milli: int = 0
    memory_bytes: int = 0
    storage_bytes: int = 0
    pool: PoolName = c.DEFAULT_POOL
    labels: tuple[tuple[str, str], ...] = ()
    rack: str = ""
    switch: str = ""
    simulated_count: int = 0
    simulated_model: str = "SIM-80G"
    simulated_memory_bytes: int = 80 * 2**30


class ClusterFile(msgspec.Struct, frozen=True):
    config: c.ClusterConfig
    nodes: tuple[VirtualNode, ...]


def parse_cluster(raw: object) -> tuple[ClusterFile, list[Problem]]:
    """Return what a cluster file declares (usable only without problems), and everything wrong with it."""
    problems: list[Problem] = []
    top = Reader("", problems)
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        top.wrong("", raw, "a mapping with pools, tenants, queues, settings, nodes")
        return ClusterFile(c.ClusterConfig(), ()), problems
    top.unknown(raw, ("pools", "tenants", "queues", "root_policy", "settings", "nodes"))
    default = c.ClusterConfig()
    config = c.ClusterConfig(
        pools=tuple(_pool(r, e) for r, e in _entries(top, raw, "pools")) or default.pools,
        tenants=tuple(_tenant(r, e) for r, e in _entries(top, raw, "tenants")) or default.tenants,
        queues=tuple(_queue(r, e) for r, e in _entries(top, raw, "queues")) or default.queues,
        settings=_settings(Reader("settings", problems), raw.get("settings") or {}),
        root_policy="fifo" if _policy(top, "root_policy", raw.get("root_policy", "priority")) == "fifo" else "priority",
    )
    nodes = tuple(_node(r, e) for r, e in _entries(top, raw, "nodes"))
    problems += tree_problems(config.queues)
    known_pools = [p.name for p in config.pools]
    for index, node in enumerate(nodes):
        if node.pool not in known_pools:
            hint = nearest(node.pool, known_pools)
            text = f"nodes[{index}].pool: there is no pool '{node.pool}'"
            problems.append(Problem("unknown_pool", f"nodes[{index}].pool", text, node.pool, hint))
    return ClusterFile(config, nodes), problems


def tree_problems(queues: tuple[c.Queue, ...]) -> list[Problem]:
    """Return what keeps `queues` from being a tree below `root`."""
    problems = []
    parents = {q.name: q.parent for q in queues}
    for index, queue in enumerate(queues):
        where = f"queues[{index}].parent"
        if queue.parent != c.ROOT_QUEUE and queue.parent not in parents:
            text = f"queue '{queue.name}' has the unknown parent '{queue.parent}'"
            problems.append(Problem("unknown_queue", where, text, queue.parent, nearest(queue.parent, parents)))
            continue
        seen, above = {queue.name}, queue.parent
        while above != c.ROOT_QUEUE and above in parents:
            if above in seen:
                text = f"queue '{queue.name}' is above itself"
                problems.append(Problem("queue_cycle", where, text, queue.parent))
                break
            seen.add(above)
            above = parents[above]
    return problems


def _entries(top: Reader, raw: Mapping[str, Any], field: str) -> list[tuple[Reader, Mapping[str, Any]]]:
    """Return the named entries of a list, each with a reader for its place; reports doubles and wrong shapes."""
    found: list[tuple[Reader, Mapping[str, Any]]] = []
    names: set[str] = set()
    value = raw.get(field) or []
    if not isinstance(value, list) or len(value) > 10_000:
        top.wrong(field, value, "a list of mappings with a name")
        return []
    for index, entry in enumerate(value):
        where = f"{field}[{index}]"
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, Mapping):
            top.wrong(where, entry, "a mapping with a name")
            continue
        reader = Reader(where, top.problems)
        name = entry.get("name")
        if not isinstance(name, str) or not name or len(name) > 63 or not set(name) <= NAME_CHARACTERS:
            reader.wrong("name", name, "1 to 63 letters, digits, '.', '_' or '-'")
        elif name in names:
            reader.wrong("name", name, "a name that no other entry has", code="duplicate_name")
        else:
            names.add(name)
            found.append((reader, entry))
    return found


def _policy(reader: Reader, field: str, value: object) -> str:
    return reader.word(field, value, ("priority", "fifo"), "priority")


def _pool(reader: Reader, raw: Mapping[str, Any]) -> c.Pool:
    reader.unknown(raw, ("name", "kind", "description"))
    reader.word("kind", raw.get("kind", "mixed"), ("gpu", "npu", "cpu", "mixed"), "mixed")
    return c.Pool(PoolName(raw["name"]), raw.get("kind", "mixed"), str(raw.get("description", "")))


def _tenant(reader: Reader, raw: Mapping[str, Any]) -> c.Tenant:
    reader.unknown(raw, ("name", "description"))
    return c.Tenant(TenantName(raw["name"]), str(raw.get("description", "")))


def _queue(reader: Reader, raw: Mapping[str, Any]) -> c.Queue:
    reader.unknown(raw, ("name", "parent", "policy", "preemption", "max_waiting"))
    _policy(reader, "policy", raw.get("policy", "priority"))
    reader.word("preemption", raw.get("preemption", "lower_priority"), ("never", "lower_priority"), "never")
    if raw["name"] == c.ROOT_QUEUE:
        reader.wrong("name", "root", "another name: 'root' is above all queues")
    return c.Queue(
        name=QueueName(raw["name"]),
        parent=QueueName(reader.text("parent", raw.get("parent", "root"), "root")),
        policy=raw.get("policy", "priority"),
        preemption=raw.get("preemption", "lower_priority"),
        max_waiting=reader.integer("max_waiting", raw.get("max_waiting", 200_000), low=1, high=10_000_000, default=1),
    )


def _settings(reader: Reader, raw: object) -> c.Settings:
    """Read settings by their own names; those that end in `_ms` may be given as durations without that ending."""
    if not isinstance(raw, Mapping):
        reader.wrong("", raw, "a mapping of settings")
        return c.Settings()
    hints = get_type_hints(c.Settings)
    short = {name.removesuffix("_ms"): name for name in hints if name.endswith("_ms")}
    reader.unknown(raw, [*hints, *short])
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name in short:
            values[short[name]] = reader.quantity(name, value, parse_duration_ms, "30s")
        elif hints.get(name) is bool:
            values[name] = reader.flag(name, value, default=False)
        elif name in hints:
            values[name] = reader.integer(name, value, low=0, high=2**53, default=0)
    settings = c.Settings(**values)
    if settings.lease_margin_ms >= settings.lease_ttl_ms:
        reader.wrong("lease_margin", f"{settings.lease_margin_ms} ms", "less than lease_ttl")
    return settings


def _node(reader: Reader, raw: Mapping[str, Any]) -> VirtualNode:
    known = ("name", "cpus", "memory", "storage", "pool", "labels", "rack", "switch", "simulated_devices")
    reader.unknown(raw, known)
    simulated = raw.get("simulated_devices") or {}
    inner = Reader(reader.path("simulated_devices"), reader.problems)
    if not isinstance(simulated, Mapping):
        reader.wrong("simulated_devices", simulated, "a mapping with count, model, memory")
        simulated = {}
    inner.unknown(simulated, ("count", "model", "memory"))
    cpus = raw.get("cpus", 0)
    if isinstance(cpus, bool) or not isinstance(cpus, int | float) or not 0 <= cpus <= 100_000:
        reader.wrong("cpus", cpus, "a number of CPUs")
        cpus = 0
    return VirtualNode(
        name=raw["name"],
        cpu_milli=round(cpus * 1000),
        memory_bytes=reader.quantity("memory", raw.get("memory", 0), parse_size_bytes, "16GiB"),
        storage_bytes=reader.quantity("storage", raw.get("storage", 0), parse_size_bytes, "100GiB"),
        pool=PoolName(reader.text("pool", raw.get("pool", c.DEFAULT_POOL))),
        labels=reader.pairs("labels", raw.get("labels") or {}),
        rack=str(raw.get("rack", "")),
        switch=str(raw.get("switch", "")),
        simulated_count=inner.integer("count", simulated.get("count", 0), low=0, high=1024, default=0),
        simulated_model=inner.text("model", simulated.get("model", "SIM-80G")),
        simulated_memory_bytes=inner.quantity("memory", simulated.get("memory", "80GiB"), parse_size_bytes, "80GiB"),
    )
