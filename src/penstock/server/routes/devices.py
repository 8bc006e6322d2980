"""Routes about devices: all of them with what they report, and one with its last hour."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Path, Query
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api import types as api
from penstock.api.devices import DeviceCurve, DeviceList, DeviceRow
from penstock.control import messages as msg
from penstock.control.figures import CURVES, FigureBook
from penstock.core.lifecycle.versions import node_version
from penstock.core.messages.reports import DeviceFigures
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.model.cluster import CHECKED_BY, Node
from penstock.core.model.errors import nearest
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.resources import Device
from penstock.core.model.words import counted
from penstock.core.state.state import State
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.versions import IfMatch, changed, versions_of, with_version
from penstock.server.routes.joined import NodePath
from penstock.server.routes.openapi import returns
from penstock.server.selecting import checked_pattern, name_matcher
from penstock.server.tables import Filter, ListQuery, ListTable, answer_with, list_query, page_of, yes_or_no
from penstock.server.views.cluster import node_view
from penstock.server.views.devices import sees_users
from penstock.server.views.reads import public_reason

PAGE_ROWS = 200
STRANGERS = "programs outside Penstock"
_SHOWN = tuple(name for name in DeviceFigures.__struct_fields__ if name not in ("index", "throttled"))
IndexPath = Annotated[int, Path(ge=0, le=10**6, description="number of the device on its node")]


class DeviceEntry(NamedTuple):
    """A device as it is filtered and sorted."""

    node: Node
    device: Device
    job_id: JobId | None
    """One of the jobs that hold it, or part of it."""
    figures: DeviceFigures | None
    measured_ms: int | None

    @property
    def id(self) -> str:
        return f"{self.node.spec.name}/{self.device.index}"

    @property
    def state(self) -> str:
        if not self.device.healthy:
            return "closed"
        if self.job_id is not None:
            return "held"
        if self.device.index in self.node.others.devices:
            return "taken"
        return "free" if self.node.state == "ready" and not self.node.draining else "unavailable"


def _figure(name: str) -> Callable[[DeviceEntry], int | None]:
    return lambda entry: getattr(entry.figures, name) if entry.figures is not None else None


def _named(pattern: str) -> Callable[[DeviceEntry], bool]:
    named = name_matcher(checked_pattern(pattern, "node"))
    return lambda entry: named(entry.node.spec.name)


_TEXT = Annotated[str, Query(max_length=200)]
_NODE = Annotated[str, Query(max_length=200, description="name of the node, or a pattern such as gpu-*")]
_STATES = Annotated[
    list[str] | None, Query(max_length=16, description="one or several of free, held, taken, closed, unavailable")
]
DEVICES: ListTable[DeviceEntry] = ListTable(
    key="devices",
    view=DeviceRow,
    id=lambda entry: entry.id,
    sorts={
        "node": lambda entry: entry.node.spec.name,
        "model": lambda entry: entry.device.model,
        "state": lambda entry: entry.state,
        "use": _figure("use_milli"),
        "memory_used": _figure("memory_used_bytes"),
        "temperature": _figure("temperature_c"),
        "power": _figure("power_mw"),
    },
    filters={
        "node": Filter(_NODE, "", _named),
        "pool": Filter(_TEXT, "", lambda text: lambda entry: entry.node.spec.pool == text),
        "model": Filter(_TEXT, "", lambda text: lambda entry: entry.device.model == text),
        "vendor": Filter(_TEXT, "", lambda text: lambda entry: entry.device.vendor == text),
        "state": Filter(_STATES, None, lambda states: lambda entry: entry.state in states),
        "measured": yes_or_no(lambda entry: entry.figures is not None, "devices that report figures"),
    },
    groups={
        "state": lambda entry: entry.state,
        "model": lambda entry: entry.device.model,
        "node": lambda entry: entry.node.spec.name,
        "pool": lambda entry: entry.node.spec.pool,
    },
    devices=lambda entry: 1,
    limit=PAGE_ROWS,
)


def device_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    figures = backend.service.figures

    @app.get("/api/v1/devices", **returns(DeviceList))
    async def list_devices(who: caller, query: Annotated[ListQuery, list_query(DEVICES)]) -> Response:
        """List devices with what they report; of devices that jobs of others hold only that they do."""
        return await backend.pools.reads.run(_listed, backend.state, figures, backend.clock.unix_ms(), who, query)

    @app.get("/api/v1/nodes/{node}/devices/{index}", **returns(DeviceCurve))
    async def show_device(who: caller, node: NodePath, index: IndexPath) -> Response:
        """Show one device with the curves of its last hour."""
        known = backend.state.nodes.get(NodeName(node))
        if known is None:
            raise ApiError("not_found", f"there is no node '{node}'", hint=nearest(node, backend.state.nodes.copy()))
        count = len(known.spec.devices)
        if index >= count:
            raise ApiError("not_found", f"node {node} has {counted(count, 'device')}, no device {index}")
        return answer(_curve(backend.state, figures, backend.clock.unix_ms(), who, known, index))

    @app.post("/api/v1/nodes/{node}/devices/{index}/close", **returns(api.DeviceAnswer))
    async def close_device(
        who: caller,
        node: NodePath,
        index: IndexPath,
        evict: Annotated[bool, Query(description="ask the work on it to move")] = False,
        reason: Annotated[str, Query(max_length=1000)] = "",
        if_match: IfMatch = "",
    ) -> Response:
        """Close a device for new work, until a user opens it."""
        allow(who.operates, "close or open devices")
        named = NodeName(node), index, False, who.user, reason, evict
        return await _changed(backend, who, msg.ChangeDevice(*named, versions_of(if_match)))

    @app.post("/api/v1/nodes/{node}/devices/{index}/open", **returns(api.DeviceAnswer))
    async def open_device(
        who: caller,
        node: NodePath,
        index: IndexPath,
        reason: Annotated[str, Query(max_length=1000)] = "",
        if_match: IfMatch = "",
    ) -> Response:
        """Open a device that was closed, at once; a fault that its node still reports closes it again."""
        allow(who.operates, "close or open devices")
        named = NodeName(node), index, True, who.user, reason, False
        return await _changed(backend, who, msg.ChangeDevice(*named, versions_of(if_match)))


async def _changed(backend: Backend, who: Scope, wanted: msg.ChangeDevice) -> Response:
    """Close or open a device, and return the answer."""
    name = str(wanted.node)
    reply = await backend.ask(wanted)
    known = backend.state.nodes.get(wanted.node)
    if known is None:
        raise ApiError("not_found", f"there is no node '{name}'", hint=nearest(name, backend.state.nodes.copy()))
    view = node_view(backend.state, wanted.node, connected=name in backend.connected(), scope=who)
    if isinstance(reply, Refusal):
        raise changed(node_version(known), f"node {name}", view)
    if not isinstance(reply, msg.DeviceChanged) or wanted.index >= len(view.devices):
        has = counted(len(view.devices), "device")
        raise ApiError("not_found", f"node {name} has no device {wanted.index}: it has {has}, numbered from 0")
    note = f"its node still reports a fault, which closes it again: {reply.fault}" if reply.fault else ""
    done = api.DeviceAnswer(name, view.devices[wanted.index], note)
    return with_version(answer(done), node_version(known))


def _listed(state: State, book: FigureBook, now_ms: int, who: Scope, query: ListQuery) -> Response:
    page = page_of(DEVICES, query, _entries(state, book, now_ms, who))
    rows = [_row(state, entry, who) for entry in page.rows]
    totals = dict(Counter(entry.state for entry in page.matching))
    notes: dict[str, list[str]] = {}
    for name in dict.fromkeys(entry.node.spec.name for entry in page.rows):
        now = book.of(name, now_ms)
        if now is not None and now.notes:
            notes[name] = list(now.notes)
    return answer_with(DEVICES, query, DeviceList(rows, totals, notes), page)


def _entries(state: State, book: FigureBook, now_ms: int, who: Scope) -> list[DeviceEntry]:
    """Return all devices by node and index; figures of those that the caller may not see are left out. Any thread."""
    return [
        entry for _, node in sorted(state.nodes.copy().items()) for entry in _of_node(state, book, now_ms, who, node)
    ]


def _of_node(state: State, book: FigureBook, now_ms: int, who: Scope, node: Node) -> Iterator[DeviceEntry]:
    load, now = state.indexes.loads.get(node.spec.name), book.of(node.spec.name, now_ms)
    held = {index: tuple(holders) for index, holders in list(load.devices.items())} if load else {}
    for device in node.spec.devices:
        holders = held.get(device.index, ())
        figures = now.devices.get(device.index) if now is not None and _sees(state, who, holders) else None
        measured_ms = now.at_ms if now is not None and figures is not None else None
        yield DeviceEntry(node, device, holders[0] if holders else None, figures, measured_ms)


def _sees(state: State, who: Scope, holders: tuple[JobId, ...]) -> bool:
    """Return whether a caller may see the figures of a device: those of jobs that they do not see are not for them."""
    if who.sees_all:
        return True
    jobs = [state.jobs.get(job_id) for job_id in holders]
    return all(job is not None and who.sees(job.spec.tenant) for job in jobs)


def _row(state: State, entry: DeviceEntry, who: Scope) -> DeviceRow:
    spec, device, job_id = entry.node.spec, entry.device, entry.job_id
    job = state.jobs.get(job_id) if job_id is not None else None
    row = DeviceRow(
        id=entry.id,
        node=spec.name,
        index=device.index,
        vendor=device.vendor,
        model=device.model,
        pool=spec.pool,
        state=entry.state,
        simulated=device.simulated,
        job=job_id if who.sees_all or (job is not None and who.sees(job.spec.tenant)) else None,
        reason=_reason(entry, who, named=sees_users(state, who)),
        memory_bytes=device.memory_bytes,
        measured_ms=entry.measured_ms,
    )
    if entry.figures is None:
        return row
    shown = {name: getattr(entry.figures, name) for name in _SHOWN}
    return replace(row, throttled=list(entry.figures.throttled), **shown)


def _reason(entry: DeviceEntry, who: Scope, *, named: bool) -> str:
    node = entry.node
    if entry.state == "taken":
        return f"held by {_strangers(entry, named=named) or STRANGERS}"
    if entry.state == "held":
        strangers = _strangers(entry, named=named)
        return f"also used by {strangers}" if strangers else ""
    if entry.state == "unavailable":
        return f"its node is {'draining' if node.state == 'ready' else node.state}" + (
            f": {node.drain_reason if who.sees_all else public_reason(node.closed_by, node.drain_reason)}"
            if node.draining and node.drain_reason
            else ""
        )
    if entry.state == "closed":
        closure = node.closure_of(entry.device.index)
        if closure is None:
            return "its node says that it has failed"
        if closure.by == CHECKED_BY:
            return closure.reason
        return f"by {closure.by}" + (f": {closure.reason}" if closure.reason else "")
    return ""


def _strangers(entry: DeviceEntry, *, named: bool) -> str:
    """Return the programs outside Penstock on a device, with whose they are where the caller may see that."""
    users = [user for user in entry.node.others.users if user.index == entry.device.index]
    if not users or not named:
        return STRANGERS if users else ""
    return ", ".join(
        f"{user.program or 'a program'} ({user.user or 'unknown user'}, process {user.pid})" for user in users
    )


def _curve(state: State, book: FigureBook, now_ms: int, who: Scope, node: Node, index: int) -> DeviceCurve:
    entry = list(_of_node(state, book, now_ms, who, node))[index]
    minutes = book.minutes(node.spec.name, index) if who.sees_all else []
    columns = {name: [minute.values[at] for minute in minutes] for at, name in enumerate(CURVES)}
    return DeviceCurve(_row(state, entry, who), [minute.from_ms for minute in minutes], **columns)
