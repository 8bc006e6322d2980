"""Cluster files: plain data to pools, tenants, the queue tree, reservations, prices, settings and virtual nodes.

All problems are found, not the first. Each section is a table of fields (`fields.py`), by which it is also written.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import msgspec

from penstock.core.config.access import USER
from penstock.core.config.billing import BILLING
from penstock.core.config.fields import STRING, Field, Json, Plain, Section, described, mappings, section, struct
from penstock.core.config.nodes import NODE, VirtualNode
from penstock.core.config.notifications import NOTIFICATIONS
from penstock.core.config.oidc import OIDC
from penstock.core.config.pools import ENTRIES_MAX, PLACEMENTS, POOL, RESERVATION, is_plain
from penstock.core.config.queues import policy, queue_section, tree_problems
from penstock.core.config.reader import Raw, Reader
from penstock.core.config.settings import SETTINGS
from penstock.core.config.tenants import tenant_section
from penstock.core.model import cluster as c
from penstock.core.model.access import User, submits_as
from penstock.core.model.errors import Problem, Problems, TooManyProblems, nearest
from penstock.core.model.ids import NodeName, PoolName, is_node_name
from penstock.core.model.prices import Billing
from penstock.core.model.quantities import split_resource
from penstock.core.order.extension import Policies

Entries = list[tuple[Reader, Raw]]
ABOUT_ENTRIES = {
    "pools": "pools of nodes: how their devices are given out",
    "tenants": "teams: what all their jobs together may use, and who pays",
    "users": "people and programs, their roles and accounts",
    "queues": "the tree of queues: order, shares and limits of waiting jobs",
    "reservations": "nodes reserved for a tenant, for some time",
    "nodes": "virtual nodes on the server's machine, each with a part of it; their devices may be simulated",
}


class ClusterFile(msgspec.Struct, frozen=True):
    config: c.ClusterConfig
    nodes: tuple[VirtualNode, ...]


def entry_sections(policies: Policies, digits: int) -> dict[str, Section[Any]]:
    """Return the sections that are lists of named entries.

    Args:
        policies: third-party policies by name, which queues may name as `ext:NAME`.
        digits: of the currency's smallest unit.
    """
    return {
        "pools": POOL,
        "tenants": tenant_section(digits),
        "users": USER,
        "queues": queue_section(policies),
        "reservations": RESERVATION,
        "nodes": NODE,
    }


def _read_candidates(reader: Reader, field: str, value: Any) -> tuple[c.PlacementPolicy, ...]:
    if not isinstance(value, list) or len(value) == 1 or len(set(map(str, value))) != len(value):
        reader.wrong(field, value, "a list of two or more different placement strategies")
        return ()
    found = [reader.word(f"{field}[{i}]", word, PLACEMENTS, PLACEMENTS[0]) for i, word in enumerate(value)]
    return tuple(cast("c.PlacementPolicy", word) for word in PLACEMENTS if word in found)


def single_fields(policies: Policies) -> Section[c.ClusterConfig]:
    """Return the single fields of a cluster file, with `billing`, `notifications`, `oidc` and `settings`."""
    candidates = {"type": "array", "uniqueItems": True, "items": {"enum": list(PLACEMENTS)}}
    fields = {
        "root_policy": policy("order of the top-level queues", policies, "priority"),
        "candidates": Field(
            _read_candidates,
            candidates,
            "placement policies with which each cycle is planned and compared (none: the pools' own)",
            write=list,
        ),
        "billing": section("prices and bills", BILLING),
        "notifications": section("channels by which users hear of what happens", NOTIFICATIONS),
        "oidc": section("the identity provider by which people sign in to the pages (OpenID Connect)", OIDC),
        "settings": section("settings of the scheduler and of the protocol with the nodes", SETTINGS),
    }
    return Section(c.ClusterConfig, fields)


SECTIONS = (*entry_sections({}, 2), *single_fields({}).fields)


def parse_cluster(raw: object, policies: Policies | None = None) -> tuple[ClusterFile, list[Problem]]:
    """Return the declared cluster (usable only without problems), and everything wrong with the file.

    Args:
        policies: third-party policies by name, which queues may name as `ext:NAME`; by default none.
    """
    problems = Problems()
    try:
        return _parse({} if raw is None else raw, policies or {}, problems), problems
    except TooManyProblems:
        return ClusterFile(c.ClusterConfig(), ()), problems.and_more()


def _parse(raw: object, policies: Policies, problems: Problems) -> ClusterFile:
    top = Reader("", problems)
    if not isinstance(raw, Mapping):
        top.wrong("", raw, "a mapping with " + ", ".join(SECTIONS))
        return ClusterFile(c.ClusterConfig(), ())
    top.unknown(raw, SECTIONS)
    single = single_fields(policies)
    values = single.values(top, {name: raw[name] for name in single.fields if raw.get(name)})
    digits = values.get("billing", Billing()).digits
    readers: dict[str, list[Reader]] = {}
    for name, of in entry_sections(policies, digits).items():
        entries = _entries(top, raw, name)
        readers[name] = [reader for reader, _ in entries]
        values[name] = tuple(of.read(reader, entry) for reader, entry in entries)
    nodes = values.pop("nodes")
    config = c.ClusterConfig(**{name: value for name, value in values.items() if value})
    problems += _reference_problems(config, nodes, readers)
    return ClusterFile(config, nodes)


def declaration(config: c.ClusterConfig) -> Plain:
    """Return plain data that `parse_cluster` reads as `config`.

    Values equal to the default are omitted, except the names of pools, tenants and queues.
    """
    entries = {
        name: [of.write(entry) for entry in getattr(config, name)]
        for name, of in entry_sections({}, config.billing.digits).items()
        if name != "nodes"
    }
    return {name: found for name, found in {**entries, **single_fields({}).write(config)}.items() if found}


def cluster_schema() -> Json:
    """Return the JSON Schema of a cluster file."""
    found = single_fields({}).schema["properties"]
    for name, of in entry_sections({}, 2).items():
        items = {"anyOf": [described(STRING, "its name; all else as by default"), of.schema]}
        found[name] = described({"type": "array", "maxItems": ENTRIES_MAX, "items": items}, ABOUT_ENTRIES[name])
    title = "Penstock cluster file"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **struct(**found)}


def _entries(top: Reader, raw: Raw, field: str) -> Entries:
    """Return the named entries of a list, each with a reader for its place; reports duplicates and wrong shapes."""
    listed = raw.get(field) or []
    if isinstance(listed, list):
        listed = [{"name": entry} if isinstance(entry, str) else entry for entry in listed]
    names: set[str] = set()
    found: Entries = []
    for reader, entry in mappings(top, field, listed, ENTRIES_MAX):
        name = entry.get("name")
        if not is_plain(name):
            reader.wrong("name", name, "1 to 63 letters, digits, '.', '_' or '-'")
        elif field == "nodes" and not is_node_name(str(name)):
            reader.wrong("name", name, "a name that does not begin with '.': a node has a folder of that name")
        elif name in names:
            reader.wrong("name", name, "a name that no other entry has", code="duplicate_name")
        else:
            names.add(str(name))
            found.append((reader, entry))
    return found


def _reference_problems(
    config: c.ClusterConfig, nodes: tuple[VirtualNode, ...], readers: Mapping[str, list[Reader]]
) -> Iterator[Problem]:
    """Report references to missing entries, trees with broken guarantees, and windows that overlap.

    One by one: each may look for the nearest right word, and the caller stops at `PROBLEMS_MAX`.
    """
    places = {name: [reader.where for reader in found] for name, found in readers.items()}
    tenants, pools = [tenant.name for tenant in config.tenants], [pool.name for pool in config.pools]
    yield from tree_problems(config.queues, places["queues"])
    yield from _reservation_problems(config, places["reservations"])
    for user, reader in zip(config.users, readers["users"], strict=True):
        for name, _role in user.tenants:
            yield from _unknown("tenant", reader.path(f"tenants.{name}"), name, tenants)
        yield from _default_problems(user, reader, config)
    yield from _unknown_defaults(config.settings, "settings.", config)
    yield from _quota_problems(config, places["queues"], places["tenants"], pools)
    for node, reader in zip(nodes, readers["nodes"], strict=True):
        yield from _unknown("pool", reader.path("pool"), node.pool, pools)


def _default_problems(user: User, reader: Reader, config: c.ClusterConfig) -> Iterator[Problem]:
    """Report defaults of a user that are not declared, and a tenant for which they may not submit jobs."""
    yield from _unknown_defaults(user, f"{reader.where}.", config)
    name = user.default_tenant
    if name in config.tenant_by_name and not submits_as(user.role, dict(user.tenants).get(name)):
        field = reader.path("default_tenant")
        text = f"{field} is '{name}': {user.name} may not submit jobs for it"
        yield Problem("bad_value", field, text, name, f"make {user.name} a member: tenants.{name}=member")


def _unknown_defaults(of: User | c.Settings, prefix: str, config: c.ClusterConfig) -> Iterator[Problem]:
    if of.default_tenant:
        yield from _unknown("tenant", f"{prefix}default_tenant", of.default_tenant, config.tenant_by_name)
    if of.default_queue:
        yield from _unknown("queue", f"{prefix}default_queue", of.default_queue, config.queue_by_name)


def _unknown(kind: str, field: str, name: str, known: Collection[str]) -> Iterator[Problem]:
    if name not in known:
        text = f"{field}: there is no {kind} '{name}'"
        yield Problem(f"unknown_{kind}", field, text, name, nearest(name, known))


def _reservation_problems(config: c.ClusterConfig, places: list[str]) -> Iterator[Problem]:
    """Report reservations for tenants that do not exist, and a node that is kept for two at one time."""
    tenants = [t.name for t in config.tenants]
    held: dict[NodeName, list[tuple[int, int, str, str]]] = {}
    for found, place in zip(config.reservations, places, strict=True):
        if found.tenant:  # a missing tenant was reported before
            yield from _unknown("tenant", f"{place}.tenant", found.tenant, tenants)
        for node in found.nodes:
            held.setdefault(node, []).append((found.start_ms, found.end_ms, found.name, f"{place}.nodes"))
    for node, windows in held.items():
        last_end, last_name = 0, ""
        for start, end, name, field in sorted(windows):
            if start < last_end:
                text = f"node '{node}' is kept for '{last_name}' and for '{name}' at one time"
                hint = "move one of them, or take the node out of it"
                yield Problem("reservation_overlap", field, text, node, hint)
            if end > last_end:
                last_end, last_name = end, name


def _quota_problems(
    config: c.ClusterConfig, queues: list[str], tenants: list[str], pools: list[PoolName]
) -> Iterator[Problem]:
    """Report quotas of pools that do not exist."""
    found: list[tuple[str, c.Quota]] = []
    for queue, place in zip(config.queues, queues, strict=bool(queues)):  # a default queue has none
        own = (("guaranteed", queue.guaranteed), ("max", queue.max), ("lend", queue.lend or ()))
        found += [(f"{place}.{field}", quota) for field, quota in own]
    found += [(f"{place}.max", one.max) for one, place in zip(config.tenants, tenants, strict=bool(tenants))]
    for place, quota in found:
        for name, _ in quota:
            pool, _resource = split_resource(name)
            if pool:
                yield from _unknown("pool", f"{place}.{name}", pool, pools)
