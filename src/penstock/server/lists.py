"""What can be asked of the shorter lists of the API: those that the state or a fold of the log holds as a whole.

Their rows are the views that are answered. Jobs: `listing.py`; nodes: `routes/nodes.py`.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any
from zlib import crc32

import msgspec
from fastapi import Query

from penstock.api import types as api
from penstock.api.joined import JoinedNodeView
from penstock.api.snapshots import SnapshotView
from penstock.core.ledger.consumption import DIMENSIONS
from penstock.core.model.answers import Alert, JournalEntry, PoolStats, QuotaRow, UsageRow, WasteRow
from penstock.server.selecting import checked_pattern, name_matcher
from penstock.server.tables import SEARCH_MAX, Filter, ListTable, Value, yes_or_no

LEDGER_MAX = 10_000
_TEXT = Annotated[str, Query(max_length=200)]
_NAME = Annotated[str, Query(max_length=200, description="a name, or a pattern such as gpu-*")]
_SEARCH = Annotated[str, Query(max_length=SEARCH_MAX, description="a text in the row, whatever its case")]


def _orders(*names: str, **fields: str) -> dict[str, Callable[[Any], Value]]:
    """Return orders by fields of the rows: by their names, or under another name. A time of 0 is none."""
    found: dict[str, Callable[[Any], Value]] = {}
    for name, field in {**{name: name for name in names}, **fields}.items():
        read = attrgetter(field)
        is_time = field.endswith("_ms") and not field.endswith(("milli_ms", "byte_ms"))
        found[name] = _or_none(read) if is_time else read
    return found


def _or_none(read: Callable[[Any], Value]) -> Callable[[Any], Value]:
    return lambda row: read(row) or None


def _equal(field: str) -> Filter[Any]:
    return Filter(_TEXT, "", lambda text: lambda row: bool(getattr(row, field) == text))


def _named(field: str = "name") -> Filter[Any]:
    def test(pattern: str) -> Callable[[Any], bool]:
        named = name_matcher(checked_pattern(pattern, field))
        return lambda row: named(getattr(row, field))

    return Filter(_NAME, "", test)


def _searched(*fields: str) -> Filter[Any]:
    def test(text: str) -> Callable[[Any], bool]:
        wanted = text.casefold()
        return lambda row: any(wanted in str(getattr(row, field)).casefold() for field in fields)

    return Filter(_SEARCH, "", test)


def _groups(*fields: str) -> dict[str, Callable[[Any], str]]:
    return {field: _text_of(field) for field in fields}


def _text_of(field: str) -> Callable[[Any], str]:
    return lambda row: str(getattr(row, field))


QUEUES: ListTable[api.QueueView] = ListTable(
    key="queues",
    view=api.QueueView,
    id=lambda row: row.name,
    sorts=_orders("name", "parent", "waiting", "blocked", "active"),
    filters={
        "name": _named(),
        "parent": _equal("parent"),
        "policy": _equal("policy"),
        "has_waiting": yes_or_no(lambda row: row.waiting > 0, "queues in which jobs wait for capacity"),
    },
    groups=_groups("parent", "policy"),
)
POOLS: ListTable[PoolStats] = ListTable(
    key="pools",
    view=PoolStats,
    id=lambda row: row.name,
    sorts=_orders("name", "nodes", total="total_milli", available="available_milli", utilisation="utilisation_milli"),
    filters={
        "name": _named(),
        "kind": _equal("kind"),
        "has_available": yes_or_no(lambda row: row.available_milli > 0, "pools with available devices"),
    },
    groups=_groups("kind", "virtualization"),
)
QUOTAS: ListTable[QuotaRow] = ListTable(
    key="quotas",
    view=QuotaRow,
    id=lambda row: f"{row.kind} {row.name} {row.resource}",
    sorts=_orders("name", "kind", "resource", "used", "borrowed", "lent", "percent"),
    filters={
        "name": _named(),
        "kind": _equal("kind"),
        "parent": _equal("parent"),
        "resource": _equal("resource"),
        "alerting": yes_or_no(lambda row: row.level > 0, "those that have reached a percentage that raises an alert"),
        "borrowing": yes_or_no(lambda row: row.borrowed > 0, "queues that use more than they are guaranteed"),
    },
    groups=_groups("kind", "resource"),
)
ALERTS: ListTable[Alert] = ListTable(
    key="alerts",
    view=Alert,
    id=lambda row: f"{row.code} {row.job_ids[:1]} {crc32(row.text.encode())}",
    sorts=_orders("code", "count"),
    filters={"code": _equal("code"), "search": _searched("code", "text")},
    groups=_groups("code"),
)
ETAS: ListTable[api.EtaView] = ListTable(
    key="jobs",
    view=api.EtaView,
    id=lambda row: row.id,
    sorts=_orders("id", "name", submitted="submitted_ms", early="early_ms", likely="likely_ms", late="late_ms"),
    filters={
        "name": _named(),
        "tenant": _equal("tenant"),
        "queue": _equal("queue"),
        "user": _equal("user"),
        "search": _searched("name", "user", "id"),
    },
    groups=_groups("tenant", "queue", "user"),
)
TOKENS: ListTable[api.TokenView] = ListTable(
    key="tokens",
    view=api.TokenView,
    id=lambda row: row.id,
    sorts=_orders("id", "user", "level", "by", created="created_ms", expires="expires_ms"),
    filters={
        "user": _named("user"),
        "level": _equal("level"),
        "by": _equal("by"),
        "delegated": yes_or_no(lambda row: row.delegated, "tokens that another user issued"),
        "expires": yes_or_no(lambda row: row.expires_ms > 0, "tokens that expire"),
        "search": _searched("id", "user", "note", "by"),
    },
    groups=_groups("user", "level", "by"),
)
SECRETS: ListTable[api.SecretView] = ListTable(
    key="secrets",
    view=api.SecretView,
    id=lambda row: f"{row.tenant} {row.owner} {row.name}",
    sorts=_orders("name", "tenant", "owner", set="set_ms"),
    filters={"name": _named(), "tenant": _equal("tenant"), "owner": _equal("owner")},
    groups=_groups("tenant", "owner"),
)
JOINED: ListTable[JoinedNodeView] = ListTable(
    key="nodes",
    view=JoinedNodeView,
    id=lambda row: row.name,
    sorts=_orders("name", "pool", declared="declared_ms", joined="joined_ms"),
    filters={
        "name": _named(),
        "search": _searched("name", "at"),
        "pool": _equal("pool"),
        "engine": _equal("engine"),
        "connected": yes_or_no(lambda row: row.connected, "nodes that have a connection now"),
    },
    groups=_groups("pool", "engine"),
)
SNAPSHOTS: ListTable[SnapshotView] = ListTable(
    key="snapshots",
    view=SnapshotView,
    id=lambda row: row.name,
    sorts=_orders("name", "files", "bytes", "jobs", used="used_ms"),
    filters={
        "search": _searched("name"),
        "needed": yes_or_no(lambda row: row.jobs > 0, "snapshots that live jobs or schedules start in"),
    },
)
ACCOUNTS: ListTable[api.AccountView] = ListTable(
    key="accounts",
    view=api.AccountView,
    id=lambda row: row.tenant,
    sorts=_orders("tenant", "balance", "credit", "owed", "unbilled", "month_spent", "day_cost", "left"),
    filters={
        "held": yes_or_no(lambda row: bool(row.held), "tenants of which nothing starts, for lack of money"),
        "owing": yes_or_no(lambda row: row.owed > 0, "tenants with an invoice that is not paid"),
    },
)
LEDGER: ListTable[JournalEntry] = ListTable(
    key="entries",
    view=JournalEntry,
    id=lambda row: row.seq,
    sorts=_orders("seq"),
    filters={
        "account": Filter(_TEXT, "", lambda name: lambda row: any(one.account == name for one in row.postings)),
        "search": _searched("text", "tenant"),
    },
    groups=_groups("tenant"),
    limit=1_000,
    limit_max=LEDGER_MAX,
)


def _sum_filters() -> dict[str, Filter[Any]]:
    texts: dict[str, Filter[Any]] = {name: _equal(name) for name in DIMENSIONS if name != "job"}
    numbers = Annotated[int, Query(ge=0, le=2**53)]
    return {**texts, "job": Filter(numbers, 0, lambda number: lambda row: row.job == number)}


def _sums(view: type[msgspec.Struct], **fields: str) -> ListTable[Any]:
    return ListTable(
        key="rows",
        view=view,
        id=lambda row: msgspec.json.encode([getattr(row, name) for name in DIMENSIONS]).decode(),
        sorts=_orders(*DIMENSIONS, **fields),
        filters=_sum_filters(),
    )


USAGE: ListTable[UsageRow] = _sums(
    UsageRow,
    devices="device_milli_ms",
    used="used_milli_ms",
    cpus="cpu_milli_ms",
    memory="memory_byte_ms",
    jobs="jobs",
    energy="energy_mj",
)
WASTE: ListTable[WasteRow] = _sums(
    WasteRow, devices="device_milli_ms", used="used_milli_ms", idle="idle_milli_ms", cost="cost", idle_cost="idle_cost"
)
