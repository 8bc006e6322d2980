"""Routes about nodes: list them, close and open them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api import types as api
from penstock.control import messages as msg
from penstock.core.lifecycle.versions import node_version
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.model.cluster import Node
from penstock.core.model.errors import nearest
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Device
from penstock.core.place.capacity import NodeCapacity
from penstock.core.state.state import State
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.versions import IfMatch, changed, versions_of, with_version
from penstock.server.routes.joined import NodePath, joined_routes
from penstock.server.routes.openapi import returns
from penstock.server.selecting import checked_pattern, name_matcher
from penstock.server.tables import (
    SEARCH_MAX,
    Filter,
    ListQuery,
    ListTable,
    answer_with,
    list_query,
    page_of,
    yes_or_no,
)
from penstock.server.views.cluster import node_view, node_views, whole_node_view

OF_SIGHT = frozenset({"drain_reason", "devices", "jobs", "shut_to", "at", "address"})
"""Fields that depend on who asks."""
ModelUse = tuple[str, str, str]
"""Vendor, model, and `free`, `used`, `unhealthy` or `closed`."""


class NodeEntry:
    """A node and what of it is held, as it is filtered and counted. A value: what is derived is worked out once."""

    def __init__(self, node: Node, held: frozenset[int], free_cpu_milli: int) -> None:
        self.name, self.node = node.spec.name, node
        self.held = held
        """Indexes of devices that are held, as a whole or in parts."""
        self.free_cpu_milli = free_cpu_milli

    @property
    def state(self) -> str:
        return "draining" if self.node.draining and self.node.state == "ready" else self.node.state

    @property
    def open(self) -> bool:
        return self.node.state == "ready" and not self.node.draining

    def is_free(self, device: Device) -> bool:
        """Return whether new work can have a device."""
        return self.open and device.healthy and not self.is_used(device)

    def is_used(self, device: Device) -> bool:
        """Return whether a job holds a device or a part of it, or others use it."""
        return device.index in self.held or device.index in self.node.others.devices

    @cached_property
    def free(self) -> int:
        """Number of devices that new work can have."""
        return sum(map(self.is_free, self.node.spec.devices))

    @cached_property
    def unhealthy(self) -> int:
        return sum(not device.healthy for device in self.node.spec.devices)

    @cached_property
    def uses(self) -> tuple[tuple[ModelUse, int], ...]:
        """Number of devices by vendor, model and use."""
        counts: Counter[ModelUse] = Counter()
        for device in self.node.spec.devices:
            used = "used" if self.is_used(device) else "unhealthy" if not device.healthy else ""
            counts[device.vendor, device.model, used or ("free" if self.open else "closed")] += 1
        return tuple(counts.items())


class NodeEntries:
    """Keeps the entry of each node for as long as nothing of it changes. Any thread."""

    def __init__(self) -> None:
        self._kept: dict[NodeName, tuple[Node, NodeCapacity, NodeEntry]] = {}

    def of(self, state: State) -> list[NodeEntry]:
        """Return all nodes by name."""
        found, kept = [], {}
        for name, node in sorted(state.nodes.copy().items()):
            free = state.indexes.free.get(name)  # before the load, which changes first
            if free is None:
                continue  # it was removed meanwhile
            known = self._kept.get(name)
            if known is None or known[0] is not node or known[1] is not free:
                load = state.indexes.loads.get(name)
                devices = list(load.devices.items()) if load else []
                held = frozenset(index for index, holders in devices if holders)
                known = node, free, NodeEntry(node, held, free.cpu_milli)
            kept[name] = known
            found.append(known[2])
        self._kept = kept
        return found


def _models(entry: NodeEntry) -> set[str]:
    return {device.model for device in entry.node.spec.devices}


def _named(pattern: str) -> Callable[[NodeEntry], bool]:
    named = name_matcher(checked_pattern(pattern, "name"))
    return lambda entry: named(entry.name)


def _searched(text: str) -> Callable[[NodeEntry], bool]:
    wanted = text.casefold()

    def matches(entry: NodeEntry) -> bool:
        spec = entry.node.spec
        places = (entry.name, spec.pool, spec.rack, spec.switch, spec.zone, *_models(entry))
        texts = (*places, *(f"{name}={value}" for name, value in spec.labels))
        return any(wanted in text.casefold() for text in texts)

    return matches


_TEXT = Annotated[str, Query(max_length=200)]
_NAME = Annotated[str, Query(max_length=200, description="a name, or a pattern such as gpu-*")]
_STATES = Annotated[
    list[str] | None, Query(max_length=16, description="one or several of ready, draining, joining, lost")
]
_SEARCH = Annotated[str, Query(max_length=SEARCH_MAX, description="text in the name, place, model or a label")]
NODES: ListTable[NodeEntry] = ListTable(
    key="nodes",
    view=api.NodeView,
    id=lambda entry: entry.name,
    sorts={
        "name": lambda entry: entry.name,
        "state": lambda entry: entry.state,
        "pool": lambda entry: entry.node.spec.pool,
        "rack": lambda entry: entry.node.spec.rack or None,
        "devices": lambda entry: len(entry.node.spec.devices),
        "free": lambda entry: entry.free,
        "used": lambda entry: len(entry.held),
        "unhealthy": lambda entry: entry.unhealthy,
        "free_cpus": lambda entry: entry.free_cpu_milli,
    },
    filters={
        "name": Filter(_NAME, "", _named),
        "search": Filter(_SEARCH, "", _searched),
        "pool": Filter(_TEXT, "", lambda text: lambda entry: entry.node.spec.pool == text),
        "state": Filter(_STATES, None, lambda states: lambda entry: entry.state in states),
        "model": Filter(_TEXT, "", lambda text: lambda entry: text in _models(entry)),
        "rack": Filter(_TEXT, "", lambda text: lambda entry: entry.node.spec.rack == text),
        "zone": Filter(_TEXT, "", lambda text: lambda entry: entry.node.spec.zone == text),
        "draining": yes_or_no(lambda entry: entry.node.draining, "nodes that take no new work"),
        "has_free": yes_or_no(lambda entry: entry.free > 0, "nodes with a device that new work can have"),
        "unhealthy": yes_or_no(lambda entry: entry.unhealthy > 0, "nodes with an unhealthy device"),
    },
    groups={
        "state": lambda entry: entry.state,
        "pool": lambda entry: entry.node.spec.pool,
        "rack": lambda entry: entry.node.spec.rack,
        "zone": lambda entry: entry.node.spec.zone,
        "model": lambda entry: ", ".join(sorted(_models(entry))),
    },
    devices=lambda entry: len(entry.node.spec.devices),
)


def node_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    entries = NodeEntries()

    @app.get("/api/v1/nodes", **returns(api.NodeList))
    async def list_nodes(who: caller, query: Annotated[ListQuery, list_query(NODES)]) -> Response:
        """List nodes with their devices and who holds them; of jobs of others only that they do."""

        def work() -> Awaitable[Response]:
            return backend.pools.reads.run(_listed, backend.state, entries, backend.connected(), who, query)

        for_all = query.fields and OF_SIGHT.isdisjoint(query.fields)
        return await backend.shared(("nodes", "all" if for_all else who.sight, query.question), work)

    @app.get("/api/v1/nodes/{node}", **returns(api.NodeView))
    async def show_node(who: caller, node: NodePath) -> Response:
        """Show one node with its devices and who holds them."""
        known = backend.state.nodes.get(NodeName(node))
        if known is None:
            raise ApiError("not_found", f"there is no node '{node}'", hint=nearest(node, backend.state.nodes.copy()))
        view = whole_node_view(backend.state, known.spec.name, connected=node in backend.connected(), scope=who)
        return with_version(answer(view), node_version(known))

    @app.post("/api/v1/nodes/{node}/drain", **returns(api.DoneAnswer))
    async def drain_node(
        who: caller,
        node: NodePath,
        on: Annotated[bool, Query(description="false opens the node again")] = True,
        evict: Annotated[bool, Query(description="ask running work to move")] = False,
        evict_after: Annotated[int, Query(ge=0, le=10**10, description="ask it after this long (ms); 0: never")] = 0,
        reason: Annotated[str, Query(max_length=1000)] = "",
        if_match: IfMatch = "",
    ) -> Response:
        """Close a node for new work, or open it again."""
        allow(who.operates, "close or open nodes")
        at_ms = backend.clock.unix_ms() + evict_after if evict_after else 0
        wanted = msg.Drain(NodeName(node), on, who.user, reason, evict, at_ms, versions_of(if_match))
        reply = await backend.ask(wanted)
        known = backend.state.nodes.get(wanted.node)
        if known is None or (isinstance(reply, msg.Done) and not reply.found):
            raise ApiError("not_found", f"there is no node '{node}'")
        if isinstance(reply, Refusal):
            view = node_view(backend.state, wanted.node, connected=node in backend.connected(), scope=who)
            raise changed(node_version(known), f"node {node}", view)
        return answer(api.DoneAnswer(True))

    joined_routes(app, backend, caller)


def _listed(state: State, entries: NodeEntries, connected: set[NodeName], who: Scope, query: ListQuery) -> Response:
    page = page_of(NODES, query, entries.of(state))
    views = node_views(state, (one.node.spec.name for one in page.rows), connected, who)
    totals = dict(Counter(one.state for one in page.matching))
    return answer_with(NODES, query, api.NodeList(views, totals, model_totals(page.matching)), page)


def model_totals(entries: Iterable[NodeEntry]) -> list[api.ModelTotal]:
    """Return the devices of nodes by vendor and model."""
    counts: dict[ModelUse, int] = {}
    for entry in entries:
        for use, devices in entry.uses:
            counts[use] = counts.get(use, 0) + devices
    found = []
    for vendor, model in sorted({(vendor, model) for vendor, model, _ in counts}):
        each = [counts.get((vendor, model, kind), 0) for kind in ("free", "used", "unhealthy", "closed")]
        found.append(api.ModelTotal(vendor, model, sum(each), *each))
    return found
