"""The cluster, its nodes and alerts as the API shows them to a caller."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock import __version__
from penstock.api import types as api
from penstock.api.nodes import NotPromisedView
from penstock.control.host_loads import by_host_load
from penstock.control.metrics import Series
from penstock.core.lifecycle.defaults import default_queue, default_tenant
from penstock.core.model.access import Scope
from penstock.core.model.answers import Alert
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.resources import LINK_KINDS
from penstock.core.model.weaker import not_promised
from penstock.core.place.capacity import NodeShape
from penstock.core.place.host_load import points_text
from penstock.core.state.state import State
from penstock.server.http.auth import made_by_another
from penstock.server.views.devices import device_views
from penstock.server.views.reads import public_reason

TOKEN_ALERTS_MAX = 20


def node_view(state: State, name: NodeName, *, connected: bool, scope: Scope) -> api.NodeView:
    """Return the view of a node; devices of jobs that the caller does not see are shown as held."""
    node = state.nodes[name]
    load = state.indexes.loads.get(name)
    lists = {index: tuple(holders) for index, holders in list(load.devices.items())} if load else {}
    held = {index: holders[0] for index, holders in lists.items() if holders}
    free = state.indexes.free[name]
    capacity = node.spec.capacity

    def shown(job_id: JobId | None) -> JobId | None:
        job = state.jobs.get(job_id) if job_id is not None else None
        return job_id if scope.sees_all or (job is not None and scope.sees(job.spec.tenant)) else None

    return api.NodeView(
        name=name,
        state=node.state,
        draining=node.draining,
        drain_reason=node.drain_reason if scope.sees_all else public_reason(node.closed_by, node.drain_reason),
        virtual=node.spec.virtual,
        pool=node.spec.pool,
        cpu_milli=capacity.cpu_milli,
        cpu_held_milli=capacity.cpu_milli - free.cpu_milli,
        memory_bytes=capacity.memory_bytes,
        memory_held_bytes=capacity.memory_bytes - free.memory_bytes,
        devices=device_views(state, node, {index: shown(job_id) for index, job_id in held.items()}, scope),
        jobs=sorted({job_id for job_id, _ in (list(load.replicas) if load else []) if shown(job_id) is not None}),
        connected=connected,
        shut_to=[str(tenant) for tenant in node.shut_to if scope.sees(tenant)],
        labels=dict(node.spec.labels),
        zone=node.spec.zone,
        rack=node.spec.rack,
        switch=node.spec.switch,
        at=node.spec.at if scope.sees_all else "",
        address=node.spec.address if scope.sees_all and node.spec.at else "",
        leaves_ms=node.leaves_ms,
        engine=node.spec.engine,
        not_promised=[NotPromisedView(one.name, one.text) for one in not_promised(node.spec)],
        links=_links(free.shape) if any(device.links for device in node.spec.devices) else {},
    )


def node_views(state: State, names: Iterable[NodeName], connected: set[NodeName], scope: Scope) -> list[api.NodeView]:
    """Return the views of those nodes that are still there: the control loop may remove some meanwhile."""
    found = []
    for name in names:
        try:
            found.append(node_view(state, name, connected=name in connected, scope=scope))
        except KeyError:
            if name in state.nodes:
                raise
    return found


def whole_node_view(state: State, name: NodeName, *, connected: bool, scope: Scope) -> api.NodeView:
    """Return the view of one node with what lists of nodes leave out."""
    view = node_view(state, name, connected=connected, scope=scope)
    if not by_host_load(state.config, state.nodes[name].spec.pool):
        return view
    return replace(view, host_points=points_text(state.indexes.free[name]))


def _links(shape: NodeShape) -> dict[str, list[list[int]]]:
    """Return the groups of devices by kind of link, closest first; none twice."""
    found: dict[str, list[list[int]]] = {}
    for kind in LINK_KINDS[:-1]:
        groups = [sorted(group) for group in shape.groups(kind) if len(group) > 1]
        if groups and groups not in found.values():
            found[kind] = groups
    return found


def cluster_view(state: State, server: str, series: Sequence[Series] = ()) -> api.ClusterView:
    nodes = list(state.nodes.values())
    loads = list(state.indexes.loads.values())
    active = len(state.indexes.active)
    return api.ClusterView(
        version=__version__,
        server=server,
        epoch=state.epoch,
        seq=state.seq,
        nodes_ready=sum(n.state == "ready" and not n.draining for n in nodes),
        nodes=len(nodes),
        devices=sum(len(n.spec.devices) for n in nodes if n.state != "lost"),
        devices_held=sum(len(load.devices) for load in loads),
        jobs_waiting=len(state.jobs) - active,
        jobs_active=active,
        jobs_succeeded=state.finished_ok,
        jobs_not_succeeded=state.finished_bad,
        figures=[api.Figure(s.name, s.labels, s.count, s.sum, s.most, s.last) for s in series],
    )


def me_view(config: ClusterConfig, scope: Scope) -> api.Me:
    """Return who a caller is, and what they may do."""
    names = [tenant.name for tenant in config.tenants]
    roles = {str(name): str(role) for name, role in sorted(scope.tenants.items()) if scope.sees(name)}
    submits = [str(name) for name in names if scope.submits(name)]
    defaults = default_tenant(config, scope), default_queue(config, scope.user)
    return api.Me(scope.user, scope.role, roles, scope.level, submits, *defaults)


def version_alerts(others: Mapping[NodeName, str], elsewhere: Callable[[NodeName], bool]) -> list[Alert]:
    """Return alerts of nodes whose agents are refused for their version; `elsewhere`: of other machines."""
    here = "another installation starts it: end it and its jobs (penstock down), then start this one's (penstock up)"
    there = f"install Penstock {__version__} on its machine, then there: penstock node join"
    return [
        Alert(
            "agent_version",
            (),
            0,
            f"node {node} is not used: its agent runs {runs}, and the server Penstock {__version__}",
            there if elsewhere(node) else here,
        )
        for node, runs in others.items()
    ]


def log_alerts(problem: str, scope: Scope) -> list[Alert]:
    """Return the alert that the log cannot be written, where there is that problem, for those who see all."""
    resolve = "free room where the server has its data folder, or its database: the server continues when it can write"
    return [Alert("log_disk", (), 0, problem, resolve)] if problem and scope.sees_all else []


def token_alerts(state: State, scope: Scope, now_ms: int) -> list[Alert]:
    """Return alerts of tokens that other users made for the caller, newest first."""
    if scope.delegated:
        return []  # for the user, not for holders of such tokens
    tokens = [one for one in state.tokens.of_user(scope.user) if one.by != one.user and made_by_another(one, state)]
    live = (one for one in tokens if not 0 < one.expires_ms <= now_ms)
    return [
        Alert(
            "token_made_for_you",
            (),
            0,
            f"{one.by} made a token that speaks for you ({one.level}): it reaches neither your own secrets nor your "
            "account of the machines",
            f"penstock token revoke {one.id}",
        )
        for one in sorted(live, key=lambda one: -one.created_ms)[:TOKEN_ALERTS_MAX]
    ]


def alert_for(alert: Alert, scope: Scope) -> Alert:
    """Return an alert, without names of reservations unless the caller sees all tenants."""
    named = alert.code == "nodes_reserved" and not scope.sees_all
    return replace(alert, resolve="ask for less") if named else alert
