"""Cluster files: plain data to pools, tenants, the queue tree, reservations, prices, settings and virtual nodes.

All problems are found, not the first.
"""

from collections.abc import Mapping
from typing import Any, cast, get_args, get_type_hints

import msgspec

from penstock.core.config.access import read_user
from penstock.core.config.billing import read_billing
from penstock.core.config.queues import read_policy, read_queue, tree_problems
from penstock.core.config.reader import Reader
from penstock.core.config.tenants import read_tenant
from penstock.core.model import cluster as c
from penstock.core.model.amounts import format_time, parse_milli, parse_part_milli, parse_time_ms
from penstock.core.model.errors import Problem, Problems, TooManyProblems, nearest
from penstock.core.model.identities import is_node_name
from penstock.core.model.ids import NodeName, PoolName, TenantName
from penstock.core.model.resources import Virtualization
from penstock.core.model.units import parse_duration_ms, parse_size_bytes
from penstock.core.order.extension import NAME_CHARACTERS as NAME_CHARACTERS
from penstock.core.order.extension import Policies

ENTRIES_MAX = 10_000
DEVICES_PER_NODE_MAX = 1_024
SPEED_MAX_MILLI = 10**9
POOL_KINDS = ("gpu", "npu", "cpu", "mixed")
PLACEMENTS: tuple[str, ...] = get_args(c.PlacementPolicy)
VIRTUALIZATIONS: tuple[str, ...] = get_args(Virtualization)
BACKFILL_RULES: tuple[str, ...] = get_args(c.BackfillRule)
SECTIONS = (
    "pools", "tenants", "users", "queues", "root_policy", "reservations", "candidates", "billing", "settings", "nodes"
)  # fmt: skip

Entries = list[tuple[Reader, Mapping[str, Any]]]


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
    simulated_mig: bool = False
    simulated_links: tuple[tuple[int, ...], ...] | None = None
    """Groups of simulated devices that NVLink joins, each with each; None joins them in pairs."""


class ClusterFile(msgspec.Struct, frozen=True):
    config: c.ClusterConfig
    nodes: tuple[VirtualNode, ...]


def parse_cluster(raw: object, policies: Policies | None = None) -> tuple[ClusterFile, list[Problem]]:
    """Return what a cluster file declares (usable only without problems), and everything wrong with it.

    Args:
        policies: third-party policies by name, which queues may name as `ext:NAME`; by default none.
    """
    problems = Problems()
    try:
        return _parse(raw, policies, problems), problems
    except TooManyProblems:
        return ClusterFile(c.ClusterConfig(), ()), problems.and_more()


def _parse(raw: object, policies: Policies | None, problems: Problems) -> ClusterFile:
    top = Reader("", problems)
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        top.wrong("", raw, "a mapping with " + ", ".join(SECTIONS))
        return ClusterFile(c.ClusterConfig(), ())
    top.unknown(raw, SECTIONS)
    default = c.ClusterConfig()
    billing = read_billing(Reader("billing", problems), raw.get("billing") or {})
    queues = _entries(top, raw, "queues")
    reservations = _entries(top, raw, "reservations")
    nodes, users = _entries(top, raw, "nodes"), _entries(top, raw, "users")
    pools = tuple(_pool(r, e) for r, e in _entries(top, raw, "pools")) or default.pools
    tenants = _entries(top, raw, "tenants")
    config = c.ClusterConfig(
        pools=pools,
        tenants=tuple(read_tenant(r, e, _note(r, e, "description"), billing.digits) for r, e in tenants)
        or default.tenants,
        queues=tuple(read_queue(r, e, policies or {}) for r, e in queues) or default.queues,
        settings=_settings(Reader("settings", problems), raw.get("settings") or {}),
        root_policy=read_policy(top, "root_policy", raw.get("root_policy", "priority"), policies or {}),
        reservations=tuple(_reservation(r, e) for r, e in reservations),
        candidates=_candidates(top, raw.get("candidates") or []),
        billing=billing,
        users=tuple(read_user(r, e, _note(r, e, "description")) for r, e in users),
    )
    declared = tuple(_node(r, e) for r, e in nodes)
    problems += tree_problems(config.queues, [r.where for r, _ in queues])
    problems += _reservation_problems(config, [r.where for r, _ in reservations])
    known = [t.name for t in config.tenants]
    for user, (reader, _) in zip(config.users, users, strict=True):
        for name, _role in user.tenants:
            problems += _unknown("tenant", reader.path(f"tenants.{name}"), name, known)
    names = [p.name for p in pools]
    problems += _quota_problems(config, [r.where for r, _ in queues], [r.where for r, _ in tenants], names)
    for node, (reader, _) in zip(declared, nodes, strict=True):
        problems += _unknown("pool", reader.path("pool"), node.pool, names)
    return ClusterFile(config, declared)


def _candidates(top: Reader, value: object) -> tuple[c.PlacementPolicy, ...]:
    """Return the strategies that each cycle is planned with: two or more, each once."""
    words = get_args(c.PlacementPolicy)
    if not isinstance(value, list) or len(value) == 1 or len(set(map(str, value))) != len(value):
        top.wrong("candidates", value, "a list of two or more different placement strategies")
        return ()
    found = [top.word(f"candidates[{i}]", word, words, words[0]) for i, word in enumerate(value)]
    return tuple(word for word in words if word in found)


def _unknown(kind: str, field: str, name: str, known: list[Any]) -> list[Problem]:
    if name in known:
        return []
    text = f"{field}: there is no {kind} '{name}'"
    return [Problem(f"unknown_{kind}", field, text, name, nearest(name, known))]


def _entries(top: Reader, raw: Mapping[str, Any], field: str) -> Entries:
    """Return the named entries of a list, each with a reader for its place; reports doubles and wrong shapes."""
    found: Entries = []
    names: set[str] = set()
    value = raw.get(field) or []
    if not isinstance(value, list) or len(value) > ENTRIES_MAX:
        given = f"a list of {len(value)}" if isinstance(value, list) else value
        top.wrong(field, given, f"a list of at most {ENTRIES_MAX} mappings with a name")
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
        if not _plain(name):
            reader.wrong("name", name, "1 to 63 letters, digits, '.', '_' or '-'")
        elif field == "nodes" and not is_node_name(str(name)):
            reader.wrong("name", name, "a name that does not begin with '.': a node has a folder of that name")
        elif name in names:
            reader.wrong("name", name, "a name that no other entry has", code="duplicate_name")
        else:
            names.add(str(name))
            found.append((reader, entry))
    return found


def _plain(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 63 and set(name) <= NAME_CHARACTERS


def _is_node(name: object) -> bool:
    return _plain(name) and is_node_name(str(name))


def _note(reader: Reader, raw: Mapping[str, Any], field: str) -> str:
    """Read a text that may be empty; a number is taken as it prints, for racks are often numbered."""
    value = raw.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 2**53 else value
    return reader.text(field, value) if value not in (None, "") else ""


def _pool(reader: Reader, raw: Mapping[str, Any]) -> c.Pool:
    reader.unknown(raw, ("name", "kind", "description", "placement", "backfill", "reserve", "speeds", "virtualization"))
    kind = reader.word("kind", raw.get("kind", "mixed"), POOL_KINDS, "mixed")
    placement = reader.word("placement", raw.get("placement", "fragmentation"), PLACEMENTS, "fragmentation")
    backfill = reader.word("backfill", raw.get("backfill", "easy"), BACKFILL_RULES, "easy")
    return c.Pool(
        name=PoolName(raw["name"]),
        kind=cast("Any", kind),
        description=_note(reader, raw, "description"),
        placement=cast("c.PlacementPolicy", placement),
        backfill=cast("c.BackfillRule", backfill),
        reserve_milli=_reserve(reader, raw.get("reserve", 0)),
        speeds=_speeds(reader, raw.get("speeds") or {}),
        virtualization=_virtualization(reader, raw.get("virtualization", "any")),
    )


def _virtualization(reader: Reader, value: object) -> Virtualization:
    if value == "vgpu":
        hint = "a virtual machine with a vGPU can be a node of its own, whose devices are given out whole"
        expected = f"one of {', '.join(VIRTUALIZATIONS)}: virtual GPUs are not made here"
        reader.wrong("virtualization", value, expected, code="not_supported", hint=hint)
        return "any"
    return cast("Virtualization", reader.word("virtualization", value, VIRTUALIZATIONS, "any"))


def _reserve(reader: Reader, value: object) -> int:
    try:
        return parse_part_milli(value)
    except ValueError:
        reader.wrong("reserve", value, "a part of the pool's devices from 0 to 1, such as 0.15 or 15%")
        return 0


def _speeds(reader: Reader, raw: object) -> tuple[tuple[str, int, int], ...]:
    """Read, by device model, its speed and its cost per hour: two numbers above 0, or the speed alone."""
    if not isinstance(raw, Mapping):
        reader.wrong("speeds", raw, "a mapping such as {A100: {speed: 1, cost: 1.5}, H100: {speed: 2.2, cost: 3}}")
        return ()
    found = []
    for model, entry in raw.items():
        inner = Reader(reader.path(f"speeds.{model}"), reader.problems)
        if not isinstance(model, str) or not model or len(model) > 128 or not model.isprintable():
            reader.wrong("speeds", model, "names of device models")
            continue
        if not isinstance(entry, Mapping):
            entry = {"speed": entry}
        inner.unknown(entry, ("speed", "cost"))
        found.append(
            (model, _factor(inner, "speed", entry.get("speed", 1)), _factor(inner, "cost", entry.get("cost", 1)))
        )
    return tuple(sorted(found))


def _factor(reader: Reader, field: str, value: object) -> int:
    try:
        milli = parse_milli(value)
    except ValueError:
        milli = 0
    if not 0 < milli <= SPEED_MAX_MILLI:
        reader.wrong(field, value, "a number above 0 in steps of 0.001, such as 2.2")
        return 1000
    return milli


def _reservation(reader: Reader, raw: Mapping[str, Any]) -> c.Reservation:
    reader.unknown(raw, ("name", "tenant", "start", "end", "nodes"))
    nodes = raw.get("nodes")
    if not isinstance(nodes, list) or not 0 < len(nodes) <= ENTRIES_MAX or not all(map(_is_node, nodes)):
        reader.wrong("nodes", nodes, "a list of names of nodes")
        nodes = []
    elif len(set(nodes)) < len(nodes):
        reader.wrong("nodes", nodes, "each node once")
    start, end = _time(reader, "start", raw.get("start")), _time(reader, "end", raw.get("end"))
    if start is not None and end is not None and end <= start:
        reader.wrong("end", format_time(end), f"later than start, {format_time(start)}")
    return c.Reservation(
        name=raw["name"],
        tenant=TenantName(reader.text("tenant", raw.get("tenant"))),
        start_ms=start or 0,
        end_ms=end or 0,
        nodes=tuple(sorted({NodeName(name) for name in nodes})),
    )


def _time(reader: Reader, field: str, value: object) -> int | None:
    try:
        return parse_time_ms(value)
    except ValueError:
        reader.wrong(field, value, "a time with its offset such as 2026-03-01T08:00+01:00, or unix seconds")
        return None


def _reservation_problems(config: c.ClusterConfig, places: list[str]) -> list[Problem]:
    """Report reservations for tenants that do not exist, and a node that is kept for two at one time."""
    problems: list[Problem] = []
    tenants = [t.name for t in config.tenants]
    held: dict[NodeName, list[tuple[int, int, str, str]]] = {}
    for found, place in zip(config.reservations, places, strict=True):
        if found.tenant:  # a missing one was said before
            problems += _unknown("tenant", f"{place}.tenant", found.tenant, tenants)
        for node in found.nodes:
            held.setdefault(node, []).append((found.start_ms, found.end_ms, found.name, f"{place}.nodes"))
    for node, windows in held.items():
        last_end, last_name = 0, ""
        for start, end, name, field in sorted(windows):
            if start < last_end:
                text = f"node '{node}' is kept for '{last_name}' and for '{name}' at one time"
                hint = "move one of them, or take the node out of it"
                problems.append(Problem("reservation_overlap", field, text, node, hint))
            if end > last_end:
                last_end, last_name = end, name
    return problems


def _quota_problems(
    config: c.ClusterConfig, queues: list[str], tenants: list[str], pools: list[PoolName]
) -> list[Problem]:
    """Report quotas of pools that do not exist."""
    found: list[tuple[str, c.Quota]] = []
    for queue, place in zip(config.queues, queues, strict=bool(queues)):  # one that is there by default has none
        own = (("guaranteed", queue.guaranteed), ("max", queue.max), ("lend", queue.lend or ()))
        found += [(f"{place}.{field}", quota) for field, quota in own]
    found += [(f"{place}.max", one.max) for one, place in zip(config.tenants, tenants, strict=bool(tenants))]
    problems = []
    for place, quota in found:
        for name, _ in quota:
            pool, _resource = c.split_resource(name)
            problems += _unknown("pool", f"{place}.{name}", pool, pools) if pool else []
    return problems


def _settings(reader: Reader, raw: object) -> c.Settings:
    """Read settings by their own names; those with a unit in the name also without it.

    Without `_ms` they are durations (`lease_ttl: 30s`), without `_milli` numbers (`admission: 1.2`).
    """
    if not isinstance(raw, Mapping):
        reader.wrong("", raw, "a mapping of settings")
        return c.Settings()
    hints = get_type_hints(c.Settings)
    durations = {name.removesuffix("_ms"): name for name in hints if name.endswith("_ms")}
    numbers = {name.removesuffix("_milli"): name for name in hints if name.endswith("_milli")}
    reader.unknown(raw, [*hints, *durations, *numbers])
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name in durations:
            values[durations[name]] = reader.quantity(name, value, parse_duration_ms, "30s")
        elif name in numbers:
            values[numbers[name]] = reader.quantity(name, value, parse_milli, "0.8, in steps of 0.001")
        elif hints.get(name) is bool:
            values[name] = reader.flag(name, value, default=False)
        elif hints.get(name) is str:
            values[name] = reader.text(name, value)
        elif words := get_args(hints.get(name)):
            values[name] = reader.word(name, value, words, words[0])
        elif name in hints:
            values[name] = reader.integer(name, value, low=0, high=2**53, default=0)
    settings = c.Settings(**values)
    parts = [getattr(settings, name) for name in hints if name.startswith("objective_")]
    if sum(parts) != 1000:
        reader.wrong("objective_utilisation_milli", f"a sum of {sum(parts)}", "five objectives that sum to 1000")
    if settings.lease_margin_ms >= settings.lease_ttl_ms:
        reader.wrong("lease_margin", f"{settings.lease_margin_ms} ms", "less than lease_ttl")
    return settings


def _node(reader: Reader, raw: Mapping[str, Any]) -> VirtualNode:
    known = ("name", "cpus", "memory", "storage", "pool", "labels", "rack", "switch", "simulated_devices")
    reader.unknown(raw, known)
    simulated = raw.get("simulated_devices") or {}
    inner = Reader(reader.path("simulated_devices"), reader.problems)
    if not isinstance(simulated, Mapping):
        reader.wrong("simulated_devices", simulated, "a mapping with count, model, memory, mig, links")
        simulated = {}
    inner.unknown(simulated, ("count", "model", "memory", "mig", "links"))
    cpus = raw.get("cpus", 0)
    if isinstance(cpus, bool) or not isinstance(cpus, int | float) or not 0 <= cpus <= 100_000:
        reader.wrong("cpus", cpus, "a number of CPUs")
        cpus = 0
    count = inner.integer("count", simulated.get("count", 0), low=0, high=DEVICES_PER_NODE_MAX, default=0)
    return VirtualNode(
        name=raw["name"],
        cpu_milli=round(cpus * 1000),
        memory_bytes=reader.quantity("memory", raw.get("memory", 0), parse_size_bytes, "16GiB"),
        storage_bytes=reader.quantity("storage", raw.get("storage", 0), parse_size_bytes, "100GiB"),
        pool=PoolName(reader.text("pool", raw.get("pool", c.DEFAULT_POOL), c.DEFAULT_POOL)),
        labels=reader.pairs("labels", raw.get("labels") or {}),
        rack=_note(reader, raw, "rack"),
        switch=_note(reader, raw, "switch"),
        simulated_count=count,
        simulated_model=inner.text("model", simulated.get("model", "SIM-80G")),
        simulated_memory_bytes=inner.quantity("memory", simulated.get("memory", "80GiB"), parse_size_bytes, "80GiB"),
        simulated_mig=inner.flag("mig", simulated.get("mig", False), default=False),
        simulated_links=_links(inner, simulated.get("links"), count),
    )


def _links(reader: Reader, value: object, count: int) -> tuple[tuple[int, ...], ...] | None:
    """Read groups of device indexes that NVLink joins; each device is in one group at most."""
    if value is None:
        return None
    groups = value if isinstance(value, list) and all(isinstance(g, list) for g in value) else [[None]]
    flat = [index for group in groups for index in group]
    whole = all(type(index) is int and 0 <= index < count for index in flat)
    if not whole or len(set(flat)) < len(flat):
        reader.wrong("links", value, f"groups of device numbers below {count}, each in one group, as [[0, 1], [2, 3]]")
        return None
    return tuple(tuple(sorted(group)) for group in groups)
