"""What `penstock top` asks for each view, and what it shows of the answers. Knows nothing of screens."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.api import types as api
from penstock.cli.node_page import device_text, is_held, state_text
from penstock.cli.ps import WHY
from penstock.cli.remaining import left
from penstock.cli.tables import Cell, Table
from penstock.cli.top.colours import device_style, state_cell
from penstock.client import Client
from penstock.core.model.answers import Alert
from penstock.core.model.errors import InvalidInput, nearest
from penstock.core.model.quantities import format_duration, format_size, listed
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from rich.text import Text

VIEWS = ("queue", "running", "nodes", "devices", "mine", "alerts")
TITLES = {
    "queue": "Queue", "running": "Running", "nodes": "Nodes", "devices": "Devices", "mine": "My jobs",
    "alerts": "Alerts",
}  # fmt: skip
JOB_VIEWS = ("queue", "running", "mine")
PAGE_ROWS = 100
"""Jobs on a page: no more of them are asked for, however many there are."""
FILTERS = ("name", "user", "tenant", "queue", "label", "array")
"""Words before `:` in a filter of jobs; a word without one is part of a name."""
STATES = {"queue": ("waiting",), "running": ("running", "starting", "stopping", "suspended"), "mine": ()}
_OF_NODES = ("name", "-free", "-used", "state")
SORTS: dict[str, tuple[str, ...]] = {
    "queue": ("priority", "starts", "submitted", "-devices"),
    "running": ("newest", "ends", "started", "-devices"),
    "mine": ("newest", "priority", "submitted"),
    "nodes": _OF_NODES,
    "devices": _OF_NODES,
    "node": (),
    "alerts": (),
}
"""Orders of each view that the server knows; the first is the view's own."""
SORT_TEXT = {
    "priority": "by priority",
    "starts": "next to start first",
    "submitted": "longest waiting first",
    "-devices": "most devices first",
    "newest": "newest first",
    "ends": "next to end first",
    "started": "longest running first",
    "name": "by name",
    "-free": "most free first",
    "-used": "most used first",
    "state": "by state",
}
BAR_WIDTH = 8
CLOSE_DIGITS = 4


class ListWanted(NamedTuple):
    """What a list shows."""

    view: str
    filter: str = ""
    cursor: str = ""
    """Of the page, as the page before gave it; empty: the first."""
    begin: int = 0
    """Rows on the pages before."""
    sort: str = ""
    """One of the view's orders; empty: its first."""
    ended: bool = False
    """Of the caller's jobs: those that have ended, too."""

    @property
    def order(self) -> str:
        """The order that is asked for; empty: the view has none."""
        return self.sort or next(iter(SORTS[self.view]), "")


class Row(NamedTuple):
    key: str
    """The number of a job, `12[]` for an array, or the name of a node: stays the same from one answer to the next."""
    cells: tuple[Cell, ...]
    thing: Any
    """What the row shows: api.JobView, api.NodeView or Alert."""


class Listing(NamedTuple):
    """One page of a view."""

    wanted: ListWanted
    columns: tuple[str, ...]
    rows: list[Row]
    note: str
    """How many there are, and which of them these are."""
    cursor: str = ""
    """Of the next page; empty: this is the last."""
    right: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    text: tuple[str, ...] = ()

    def table(self) -> Table:
        cells = [row.cells for row in self.rows]
        return Table(self.columns, cells, right=self.right, drop=self.drop, text=self.text)


def banner(cluster: api.ClusterView, alerts: Sequence[Alert]) -> tuple[str, str]:
    """Return the totals of the cluster, and what its alerts are, in a line each."""
    devices = f"devices {cluster.devices_held}/{cluster.devices} {bar(cluster.devices_held, cluster.devices)}"
    parts = [
        f"nodes {cluster.nodes_ready}/{cluster.nodes} ready",
        devices if cluster.devices else "no devices",
        f"{cluster.jobs_active:,} running",
        f"{cluster.jobs_waiting:,} waiting",
    ]
    worst = f": {alerts[0].text}" if alerts else ""
    return "  ".join(parts), (f"! {counted(len(alerts), 'alert')}{worst}" if alerts else "no alerts")


def bar(used: int, whole: int, width: int = BAR_WIDTH) -> str:
    """Return a share as a bar: empty only if nothing is used, full only if all is."""
    if whole <= 0:
        return "░" * width
    full = min(width, used * width // whole)
    if used > 0:
        full = max(1, full)
    return "█" * full + "░" * (width - full)


def listing(client: Client, wanted: ListWanted, user: str, now_ms: int, *, limit: int = PAGE_ROWS) -> Listing:
    """Ask for one page of a view.

    Args:
        user: the caller, whose jobs `mine` shows.
    Raises: InvalidInput for a filter that cannot be read; PenstockError from the server.
    """
    found = _asked(client, wanted, user, now_ms, limit)
    named = wanted.filter and wanted.view != "node"
    return found._replace(note=f"filter {wanted.filter}: {found.note}") if named else found


def _asked(client: Client, wanted: ListWanted, user: str, now_ms: int, limit: int) -> Listing:
    if wanted.view in JOB_VIEWS:
        return _jobs(client, wanted, user, now_ms, limit)
    if wanted.view == "alerts":
        return _alerts(client.alerts(), wanted)
    if wanted.view == "node":
        return _node(client.node_list(name=wanted.filter, limit=1).nodes, wanted)
    query = {"search": wanted.filter, "cursor": wanted.cursor, "sort": wanted.order}
    found = client.node_list(**{name: text for name, text in query.items() if text}, limit=limit)
    return _nodes(found, wanted) if wanted.view == "nodes" else _devices(found, wanted)


# Jobs.


def job_query(wanted: ListWanted, user: str) -> dict[str, Any]:
    """Return the query for a list of jobs. Raises: InvalidInput for a filter that cannot be read."""
    query: dict[str, Any] = {"state": STATES[wanted.view], "sort": wanted.order, "cursor": wanted.cursor}
    if wanted.view == "mine":
        query |= {"user": user, "finished": "true" if wanted.ended else ""}
    for name, text in _parsed(wanted.filter):
        if name == "label":
            query.setdefault("label", []).append(text)
        elif query.get(name):
            raise _twice(name, wanted.view)
        else:
            query[name] = text
    if not query.get("array"):
        query["fold_arrays"] = "true"
    return {name: value for name, value in query.items() if value}


def _parsed(text: str) -> Iterator[tuple[str, str]]:
    """Yield each condition of a filter: `NAME:TEXT`; the other words together are searched for, or are a pattern."""
    searched: list[str] = []
    for word in text.split():
        name, colon, rest = word.partition(":")
        if not colon:
            searched.append(word)
        elif name not in FILTERS:
            hint = nearest(name, FILTERS)
            raise InvalidInput(f"the filter has '{name}:', expected one of {', '.join(FILTERS)}", hint=hint)
        elif not rest or (name == "array" and not rest.isdecimal()):
            raise InvalidInput(f"the filter has '{word}', expected {name}:{'NUMBER' if name == 'array' else 'TEXT'}")
        elif name == "label" and "=" not in rest:
            raise InvalidInput(f"the filter has '{word}', expected label:NAME=VALUE")
        else:
            yield name, rest
    if searched:
        yield "search", " ".join(searched)


def _twice(name: str, view: str) -> InvalidInput:
    if view == "mine" and name == "user":
        return InvalidInput("My jobs has no filter user:", hint="filter Running or Queue by user:")
    return InvalidInput(f"the filter has {name}: twice", hint=f"leave one {name}: out")


def _jobs(client: Client, wanted: ListWanted, user: str, now_ms: int, limit: int) -> Listing:
    found = client.jobs(**job_query(wanted, user), limit=limit)
    rows = [Row(job_key(job), _CELLS[wanted.view](job, now_ms), job) for job in found.jobs]
    columns, right, drop, text = _COLUMNS[wanted.view]
    total = sum(found.totals.values())
    return Listing(wanted, columns, rows, _count_note(wanted, rows, found, total), found.next_cursor, right, drop, text)


def _count_note(wanted: ListWanted, rows: Sequence[Row], found: api.JobList, total: int) -> str:
    what = {"queue": "waiting", "running": "running", "mine": "live of yours"}[wanted.view]
    if not total and not rows:
        return {"queue": "no jobs wait", "running": "no jobs run", "mine": "you have no live jobs"}[wanted.view]
    arrays = any(job.array_counts for job in found.jobs)
    if not wanted.begin and not found.next_cursor:
        whole = f"{total:,} {what}" + (f", in {counted(len(rows), 'row')}: an array is one" if arrays else "")
    else:
        whole = f"rows {wanted.begin + 1:,}-{wanted.begin + len(rows):,}; {total:,} {what}"
    ended = ", then those that have ended" if wanted.ended else ""
    return f"{whole}; {SORT_TEXT[wanted.order]}{ended}"


def job_key(job: api.JobView) -> str:
    return f"{job.array_id}[]" if job.array_counts else str(job.id)


def job_name(job: api.JobView) -> str:
    if job.array_counts:
        return f"{job.name}[]"
    return f"{job.name}[{job.array_index}]" if job.array_id is not None else job.name


def _state(job: api.JobView) -> "Cell":
    counts = sorted(job.array_counts.items())
    return state_cell(job.state) if not counts else ", ".join(f"{count:,} {state}" for state, count in counts)


def _queued(job: api.JobView, now_ms: int) -> tuple[Cell, ...]:
    count = f" ({sum(job.array_counts.values()):,})" if job.array_counts else ""
    return (
        job_key(job),
        job_name(job) + count,
        job.user,
        job.tenant,
        job.queue,
        str(job.priority),
        job.devices_text,
        format_duration(max(0, now_ms - job.submitted_ms)),
        _starts(job, now_ms),
        WHY.get(job.reason, job.reason),
    )


def _starts(job: api.JobView, now_ms: int) -> str:
    """Return when a waiting job is expected to start, '' where nobody has estimated it."""
    if not job.start_likely_ms:
        return ""
    return f"~{format_duration(job.start_likely_ms - now_ms)}" if job.start_likely_ms > now_ms else "soon"


def _run(job: api.JobView, now_ms: int) -> tuple[Cell, ...]:
    return (
        job_key(job),
        job_name(job),
        _state(job),
        job.user,
        job.tenant,
        job.devices_text,
        listed(job.nodes, 2),
        format_duration(max(0, now_ms - job.started_ms)) if job.started_ms else "",
        left(job, now_ms),
        f"{job.step:,}" if job.step else "",
        job.reason.replace("_", " "),
    )


def _own(job: api.JobView, now_ms: int) -> tuple[Cell, ...]:
    waits = job.state == "waiting"
    began_ms = job.submitted_ms if waits else job.started_ms
    lasts_ms = (job.finished_ms or now_ms) - began_ms if began_ms else None
    return (
        job_key(job),
        job_name(job),
        _state(job),
        job.tenant,
        job.queue,
        str(job.priority),
        job.devices_text,
        listed(job.nodes, 2),
        format_duration(max(0, lasts_ms)) if lasts_ms is not None else "",
        _starts(job, now_ms) if waits else left(job, now_ms),
        f"{job.step:,}" if job.step else "",
        WHY.get(job.reason, job.reason.replace("_", " ")),
    )


_CELLS: dict[str, Callable[[api.JobView, int], tuple[Cell, ...]]] = {"queue": _queued, "running": _run, "mine": _own}
_COLUMNS = {
    "queue": (
        ("job", "name", "user", "tenant", "queue", "prio", "devices", "waited", "starts", "why"),
        ("job", "prio", "waited", "starts"),
        ("tenant", "queue", "waited", "user", "prio", "devices"),
        ("why", "name"),
    ),
    "running": (
        ("job", "name", "state", "user", "tenant", "devices", "nodes", "ran", "left", "step", "why"),
        ("job", "ran", "left", "step"),
        ("step", "tenant", "why", "devices", "user", "left"),
        ("why", "nodes", "name"),
    ),
    "mine": (
        ("job", "name", "state", "tenant", "queue", "prio", "devices", "nodes", "for", "starts/left", "step", "why"),
        ("job", "prio", "for", "starts/left", "step"),
        ("step", "tenant", "queue", "prio", "devices", "nodes"),
        ("why", "nodes", "name"),
    ),
}
"""Columns, those to the right, those left out first, and those that may be cut."""


# Nodes, devices, alerts.


def _nodes(found: api.NodeList, wanted: ListWanted) -> Listing:
    columns = ("node", "state", "devices", "", "model", "CPUs", "memory", "pool", "rack", "jobs")
    rows = [Row(node.name, _node_cells(node), node) for node in found.nodes]
    drop = ("rack", "memory", "pool", "jobs", "model", "CPUs")
    note = _node_note(found, wanted)
    return Listing(wanted, columns, rows, note, found.next_cursor, ("CPUs",), drop, ("state", "model"))


def _node_note(found: api.NodeList, wanted: ListWanted) -> str:
    total = sum(found.totals.values())
    if not total:
        return "no nodes"
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(found.totals.items()))
    models = ", ".join(f"{one.model} {one.used:,} of {one.total:,} held" for one in found.devices)
    part = f"nodes {wanted.begin + 1:,}-{wanted.begin + len(found.nodes):,} of " if len(found.nodes) < total else ""
    order = f"; {SORT_TEXT[wanted.order]}" if wanted.sort else ""
    return f"{part}{counted(total, 'node')}: {states}{'; ' if models else ''}{models}{order}"


def _node_cells(node: api.NodeView) -> tuple[Cell, ...]:
    held, devices = sum(map(is_held, node.devices)), len(node.devices)
    return (
        node.name,
        state_cell(state_text(node), "ready" if _takes_work(node) else "away"),
        f"{held}/{devices}" if devices else "none",
        bar(held, devices) if devices else "",
        ", ".join(sorted({device.model for device in node.devices})),
        f"{node.cpu_held_milli / 1000:g}/{node.cpu_milli / 1000:g}",
        f"{format_size(node.memory_held_bytes)} of {format_size(node.memory_bytes)}",
        node.pool,
        node.rack,
        listed(node.jobs, 4),
    )


def _takes_work(node: api.NodeView) -> bool:
    return node.state == "ready" and node.connected and not node.draining


def _devices(found: api.NodeList, wanted: ListWanted) -> Listing:
    having = [node for node in found.nodes if node.devices]
    width = max((len(mark(device)) for node in having for device in node.devices), default=1)
    rows = [Row(node.name, (node.name, f"{_free(node)} free", device_map(node, width)), node) for node in having]
    columns = ("node", "free", "devices: who holds each")
    return Listing(wanted, columns, rows, _LEGEND if rows else _node_note(found, wanted), found.next_cursor)


def _node(nodes: Sequence[api.NodeView], wanted: ListWanted) -> Listing:
    """Return the devices of the node that is named."""
    node = next((one for one in nodes if one.name == wanted.filter), None)
    if node is None:
        raise InvalidInput(f"there is no node '{wanted.filter}' any more")
    rows = [Row(str(one.index), (str(one.index), mark(one), device_text(one)), one.job) for one in node.devices]
    jobs = f", jobs {listed(node.jobs)}" if node.jobs else ""
    note = f"{state_text(node)}, CPUs {node.cpu_held_milli / 1000:g}/{node.cpu_milli / 1000:g}, memory "
    note += f"{format_size(node.memory_held_bytes)} of {format_size(node.memory_bytes)}{jobs}"
    return Listing(wanted, ("device", "job", "what"), rows, note, "", ("device",), (), ("what",))


_LEGEND = "a number: the job that holds it   . free   x used by others   ! failed"


def _free(node: api.NodeView) -> int:
    return sum(device.healthy and not is_held(device) for device in node.devices)


def mark(device: api.DeviceView) -> str:
    """Return the sign of a device: its job, or `.`, `x`, `!`."""
    if not device.healthy:
        return f"!{device.job}" if device.job is not None else "!"
    return str(device.job) if device.job is not None else "x" if is_held(device) else "."


def device_map(node: api.NodeView, width: int) -> "Text":
    """Return a cell with a sign for each device, all of one width; longer numbers stand closer together."""
    from rich.text import Text

    around = " " if width < CLOSE_DIGITS else ""
    found = Text("│")
    for device in node.devices:
        found.append(f"{around}{mark(device):^{width}}{around}", style=device_style(device)).append("│")
    return found


def _alerts(alerts: Sequence[Alert], wanted: ListWanted) -> Listing:
    words = wanted.filter.lower().split()
    matching = [one for one in alerts if all(word in f"{one.code} {one.text}".lower() for word in words)]
    rows = [Row(f"{one.code}:{one.text}", (one.code, f"{one.count:,}", one.text), one) for one in matching]
    note = counted(len(matching), "alert") if matching else "no alerts"
    return Listing(wanted, ("alert", "jobs", "what"), rows, note, "", ("jobs",), (), ("what",))
