"""Read tools about the cluster: who calls, capacity, nodes, queues, quotas, usage, alerts, events."""

from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.api import types as api
from penstock.core.model.answers import Alert, PoolStats, QuotaRow, UsageRow
from penstock.core.model.events import Record
from penstock.core.model.quantities import KWH_MJ, format_resource
from penstock.mcp.budget import Left
from penstock.mcp.callers import Caller
from penstock.mcp.tool import Arguments, Tool
from penstock.mcp.values import ROWS_MAX, Page, Untrusted, following, named, page, said, within_bytes

HOUR_MILLI_MS = 1000 * 3_600_000
NODES_MAX = 100
"""Of one answer, which has at most 1 KiB for each; one node that is named has all its devices."""
GIB_HOUR = 2**30 * 3_600_000
Offset = Annotated[int, Meta(ge=0, le=10**6, description="rows to skip: next_page of the answer before")]
Limit = Annotated[int, Meta(ge=1, le=ROWS_MAX, description="rows of the answer at most")]
Word = Annotated[str, Meta(max_length=200)]


class NoArguments(Arguments, frozen=True):
    pass


class Rows(Arguments, frozen=True):
    offset: Offset = 0
    limit: Limit = 50


class Whoami(msgspec.Struct, frozen=True):
    user: str
    role: str
    """In the whole cluster; empty: none."""
    tenants: dict[str, str]
    """Roles in tenants."""
    level: str
    """Level of the token: read, write, admin."""
    submits: list[str]
    """Tenants for which jobs may be submitted."""
    writes_allowed: bool
    """Whether this MCP server offers changes at all."""
    left: Left


def whoami(caller: Caller, _: NoArguments) -> Whoami:
    with caller.client() as client:
        me = client.me()
    return Whoami(me.user, me.role, me.tenants, me.level, me.submits[:ROWS_MAX], caller.writes, caller.budget.left)


class ClusterSummary(msgspec.Struct, frozen=True):
    """Counts of the whole cluster."""

    version: str
    nodes_ready: int
    nodes: int
    devices: int
    devices_held: int
    jobs_waiting: int
    jobs_active: int
    jobs_succeeded: int
    jobs_not_succeeded: int
    pools: list[PoolStats]
    """Capacity of each pool; devices and CPUs in thousandths."""


def cluster(caller: Caller, _: NoArguments) -> ClusterSummary:
    with caller.client() as client:
        view, pools = client.cluster(), client.pools()
    names = [name for name in ClusterSummary.__struct_fields__ if name != "pools"]
    return ClusterSummary(**{name: getattr(view, name) for name in names}, pools=within_bytes(pools[:ROWS_MAX]))


class NodesAsked(Arguments, frozen=True):
    name: Annotated[str, Meta(max_length=63, description="one node, with its devices; or a pattern such as gpu-*")] = ""
    pool: Word = ""
    state: Annotated[tuple[Word, ...], Meta(max_length=8)] = ()
    model: Annotated[str, Meta(max_length=200, description="with devices of this model")] = ""
    has_free: Annotated[bool, Meta(description="with a device that new work can have")] = False
    limit: Annotated[int, Meta(ge=1, le=NODES_MAX, description="nodes of the answer at most")] = 50
    cursor: Annotated[str, Meta(max_length=500, description="next_page of the answer before")] = ""


class NodeRow(msgspec.Struct, frozen=True):
    name: str
    state: str
    draining: bool
    drain_reason: Untrusted
    pool: str
    models: dict[str, int]
    """Devices by model."""
    devices: int
    devices_free: int
    """Healthy devices that no job holds any part of, and no other program uses."""
    devices_ill: int
    cpus_free: float
    memory_free_bytes: int
    jobs: list[int]
    """The first jobs there that you may see."""
    connected: bool
    each_device: list[api.DeviceView] = []
    """Without the words of others: why devices are closed, alerts say."""


class Nodes(msgspec.Struct, frozen=True):
    nodes: list[NodeRow]
    totals: dict[str, int]
    """Nodes that match, by state, on all pages."""
    page: Page


def nodes(caller: Caller, asked: NodesAsked) -> Nodes:
    query = {name: value for name, value in msgspec.structs.asdict(asked).items() if value}
    with caller.client() as client:
        found = client.node_list(**query)
    rows = [_node(one, full=bool(asked.name) and len(found.nodes) == 1) for one in found.nodes]
    return Nodes(rows, found.totals, following(len(rows), found.next_cursor))


def _node(node: api.NodeView, *, full: bool) -> NodeRow:
    free = [one for one in node.devices if one.healthy and not (one.held or one.taken or one.job is not None)]
    plain = [msgspec.structs.replace(one, closed=None, users=[]) for one in node.devices] if full else []
    return NodeRow(
        name=node.name,
        state=node.state,
        draining=node.draining,
        drain_reason=named(node.drain_reason),
        pool=node.pool,
        models=dict(Counter(device.model for device in node.devices)),
        devices=len(node.devices),
        devices_free=len(free),
        devices_ill=sum(not device.healthy for device in node.devices),
        cpus_free=(node.cpu_milli - node.cpu_held_milli) / 1000,
        memory_free_bytes=node.memory_bytes - node.memory_held_bytes,
        jobs=node.jobs[:10],
        connected=node.connected,
        each_device=within_bytes(plain),
    )


class QueueRow(msgspec.Struct, frozen=True):
    name: str
    parent: str
    policy: str
    preemption: str
    waiting: int
    blocked: int
    active: int
    next_jobs: list[int]
    """The first waiting jobs in the present order, of those that you may see."""


class Queues(msgspec.Struct, frozen=True):
    queues: list[QueueRow]
    page: Page


def queues(caller: Caller, asked: Rows) -> Queues:
    with caller.client() as client:
        found = client.queues()
    rows, shown = page(found, _queue, offset=asked.offset, limit=asked.limit)
    return Queues(rows, shown)


def _queue(queue: api.QueueView) -> QueueRow:
    counts = (queue.waiting, queue.blocked, queue.active)
    return QueueRow(
        queue.name, queue.parent, queue.policy, queue.preemption, *counts, [job.id for job in queue.next_jobs[:20]]
    )


class Quota(msgspec.Struct, frozen=True):
    kind: str
    """queue or tenant"""
    name: str
    parent: str
    resource: str
    used: str
    """Amounts with their units."""
    guaranteed: str
    maximum: str
    """Empty: no limit of its own."""
    borrowed: str
    lent: str
    percent: int
    """Of the maximum, or else of the guarantee."""


class Quotas(msgspec.Struct, frozen=True):
    quotas: list[Quota]
    page: Page


def quotas(caller: Caller, asked: Rows) -> Quotas:
    with caller.client() as client:
        found = client.quotas().quotas
    rows, shown = page(found, _quota, offset=asked.offset, limit=asked.limit)
    return Quotas(rows, shown)


def _quota(row: QuotaRow) -> Quota:
    def amount(value: int) -> str:
        return format_resource(row.resource, value)

    return Quota(
        kind=row.kind,
        name=row.name,
        parent=row.parent,
        resource=row.resource,
        used=amount(row.used),
        guaranteed=amount(row.guaranteed),
        maximum="" if row.maximum is None else amount(row.maximum),
        borrowed=amount(row.borrowed),
        lent=amount(row.lent),
        percent=row.percent,
    )


class UsageAsked(Rows, frozen=True):
    by: Annotated[str, Meta(max_length=60, description="tenant, user, queue, pool, job, node; several by commas")] = (
        "tenant"
    )
    since: Annotated[str, Meta(max_length=40, description="begin: 30d ago, or 2026-11-01T00:00+01:00")] = ""
    until: Annotated[str, Meta(max_length=40, description="end; by default now")] = ""


class UsageSum(msgspec.Struct, frozen=True):
    of: dict[str, str]
    """The holder, by what was asked for."""
    device_hours: float
    measured_hours: float
    """Device-hours whose use the programs reported."""
    used_hours: float
    cpu_hours: float
    memory_gib_hours: float
    energy_kwh: float
    """Of devices, of replicas that have ended, as far as it was measured."""
    jobs: int
    attempts: int


class Usage(msgspec.Struct, frozen=True):
    from_ms: int
    until_ms: int
    usage: list[UsageSum]
    page: Page


def usage(caller: Caller, asked: UsageAsked) -> Usage:
    query = {name: text for name, text in (("since", asked.since), ("until", asked.until)) if text}
    with caller.client() as client:
        found = client.usage(asked.by, **query)
    names = [name.strip() for name in asked.by.split(",")]
    rows, shown = page(found.rows, lambda row: _usage(row, names), offset=asked.offset, limit=asked.limit)
    return Usage(found.from_ms, found.until_ms, rows, shown)


def _usage(row: UsageRow, names: list[str]) -> UsageSum:
    def hours(amount: int, unit: int = HOUR_MILLI_MS) -> float:
        return round(amount / unit, 4)

    return UsageSum(
        of={name: str(getattr(row, name)) for name in names},
        device_hours=hours(row.device_milli_ms),
        measured_hours=hours(row.measured_milli_ms),
        used_hours=hours(row.used_milli_ms),
        cpu_hours=hours(row.cpu_milli_ms),
        memory_gib_hours=hours(row.memory_byte_ms, GIB_HOUR),
        energy_kwh=hours(row.energy_mj, KWH_MJ),
        jobs=row.jobs,
        attempts=row.attempts,
    )


class AlertRow(msgspec.Struct, frozen=True):
    code: str
    """Stable; docs/reasons.md explains each."""
    count: int
    jobs: list[int]
    text: Untrusted
    """What is the case; names of jobs and nodes stand in it."""
    resolve: Untrusted
    """What would resolve it."""


class Alerts(msgspec.Struct, frozen=True):
    """Alerts, most severe first."""

    alerts: list[AlertRow]
    page: Page


def alerts(caller: Caller, asked: Rows) -> Alerts:
    with caller.client() as client:
        found = client.alerts()
    rows, shown = page(found, _alert, offset=asked.offset, limit=asked.limit)
    return Alerts(rows, shown)


def _alert(alert: Alert) -> AlertRow:
    return AlertRow(alert.code, alert.count, list(alert.job_ids[:20]), said(alert.text), said(alert.resolve))


class EventsAsked(Arguments, frozen=True):
    job: Annotated[int, Meta(ge=0, le=2**53, description="only of this job; 0: of the whole log")] = 0
    after: Annotated[int, Meta(ge=0, le=2**53, description="only events with a higher number")] = 0
    limit: Limit = 50


class EventRow(msgspec.Struct, frozen=True):
    seq: int
    time_ms: int
    type: str
    data: Untrusted
    """The event as JSON, without environments, commands and secrets, cut where it is long."""


class Events(msgspec.Struct, frozen=True):
    events: list[EventRow]
    page: Page


def events(caller: Caller, asked: EventsAsked) -> Events:
    with caller.client() as client:
        if asked.job:
            found = [record for record in client.job_events(asked.job) if record.seq > asked.after]
            position = found[-1].seq if found else asked.after
        else:
            found, position = client.events_after(asked.after, asked.limit + 1)
    rows = within_bytes(map(_event, found[: asked.limit]))
    more = len(rows) < len(found)
    reached = rows[-1].seq if more else position
    return Events(rows, Page(len(rows), more, {"after": reached} if more else {}))


HIDDEN = frozenset(
    {
        "env",
        "secrets",
        "command",
        "sha256",
        "sealed",
        "value",
        "key",
        "keys",
        "config",
        "account",
        "digest",
        "idempotency_key",
    }
)
"""Fields of events that are left out: they may hold secrets, or are long."""


def _event(record: Record) -> EventRow:
    plain = msgspec.to_builtins(record.event)
    data = msgspec.json.encode(_without_hidden(plain)).decode()
    return EventRow(record.seq, record.time_ms, type(record.event).__name__, said(data))


def _without_hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_hidden(one) for name, one in value.items() if name not in HIDDEN and name != "type"}
    if isinstance(value, list | tuple):
        return [_without_hidden(one) for one in value[:20]]
    return value


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("whoami", "Your user, roles and rights, and what is left of your budget for changes.", NoArguments, Whoami,
         whoami),
    Tool("cluster", "Counts of nodes, devices and jobs, and the capacity of each pool.", NoArguments, ClusterSummary,
         cluster),
    Tool("nodes", "Nodes with free devices, CPUs and memory; with `name`, one node with each device.", NodesAsked,
         Nodes, nodes),
    Tool("queues", "The queue tree with waiting and running jobs, and which start next.", Rows, Queues, queues),
    Tool("quotas", "How much of each quota is used, borrowed and lent.", Rows, Quotas, quotas),
    Tool("usage", "Device, CPU and memory time by holder.", UsageAsked, Usage, usage),
    Tool("alerts", "Jobs that can never start, and other problems, most severe first.", Rows, Alerts, alerts),
    Tool("events", "What happened, from the log: of one job, or of everything that you may see.", EventsAsked, Events,
         events),
)  # fmt: skip
