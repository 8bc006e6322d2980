"""Routes about nodes of other machines: declared, listed, removed."""

import logging
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from penstock.api import types as api
from penstock.api.joined import JoinBundleAnswer, JoinedNodeList, JoinedNodeView, NewJoinedNode
from penstock.control.joining import HOUR_MS, Joining
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.ids import NodeName, PoolName, is_node_name
from penstock.engines.agent.joined import DeclaredNode, Offer
from penstock.engines.joined.records import JoinedNode
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body
from penstock.server.http.responses import ApiError, answer
from penstock.server.lists import JOINED
from penstock.server.routes.openapi import returns
from penstock.server.tables import ListQuery, list_query, paged

BODY_MAX_BYTES = 65_536
log = logging.getLogger(__name__)
NodePath = Annotated[str, Path(max_length=63, description="name of the node")]
EXAMPLE = {"name": "gpu-7", "pool": "default", "rack": "r2"}


def joined_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post("/api/v1/joined-nodes", **returns(JoinBundleAnswer, body=NewJoinedNode, example=EXAMPLE))
    async def declare_node(request: Request, who: caller) -> Response:
        """Declare a node of another machine, and return the bundle with which it joins.

        For a declared name it is a new bundle; the former one is void, and the machine that joined with it is out.
        """
        allow(who.administers, "declare nodes")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewJoinedNode)
        joining, node = _joining(backend), _declared(backend, wanted)

        def work() -> Response:
            try:
                bundle = joining.declare(node, valid_ms=wanted.valid_hours * HOUR_MS)
            except InvalidInput as error:
                raise invalid([Problem("bad_value", "name", error.message, hint=error.hint)]) from error
            servers = [str(server) for server in bundle.servers]
            made = JoinBundleAnswer(wanted.name, bundle.encoded().decode(), bundle.valid_until_ms, servers)
            return answer(made)

        log.info("a node is declared", extra={"node": wanted.name, "by": who.user})
        return await backend.pools.reads.run(work)

    @app.get("/api/v1/joined-nodes", **returns(JoinedNodeList))
    async def list_joined_nodes(who: caller, query: Annotated[ListQuery, list_query(JOINED)]) -> Response:
        """List the declared nodes of other machines, also those that have not joined yet."""
        allow(who.administers, "see declared nodes")
        connected = backend.connected()

        def compute() -> Response:
            records = backend.joining.declared() if backend.joining is not None else []
            return paged(JOINED, query, (_view(backend, one, connected) for one in records), JoinedNodeList)

        return await backend.pools.reads.run(compute)

    @app.delete("/api/v1/joined-nodes/{node}", **returns(api.DoneAnswer))
    async def remove_node(who: caller, node: NodePath) -> Response:
        """Let a node of another machine speak no more: its connection ends, and its programs with its lease."""
        allow(who.administers, "remove nodes")
        joining = _joining(backend)
        if not await backend.pools.reads.run(lambda: joining.remove(NodeName(node))):
            raise ApiError("not_found", f"no node '{node}' of another machine is declared")
        log.info("a node is removed", extra={"node": node, "by": who.user})
        return answer(api.DoneAnswer(True))


def _joining(backend: Backend) -> Joining:
    if backend.joining is None:
        raise ApiError("unavailable", "no machine can join this server")
    return backend.joining


def _declared(backend: Backend, wanted: NewJoinedNode) -> DeclaredNode:
    """Raises: ApiError naming all that is wrong."""
    problems = []
    if not (is_node_name(wanted.name) and wanted.name.isascii()):  # certificates name it
        expected = "ASCII alone, no '/', no '.' first, nothing that does not print"
        problems.append(Problem("bad_value", "name", f"'{wanted.name}' cannot be the name of a node: {expected}"))
    pools = [str(pool.name) for pool in backend.state.config.pools]
    if wanted.pool not in (*pools, "default"):
        text = f"pool '{wanted.pool}' does not exist, expected one of {', '.join(pools)}"
        problems.append(Problem("bad_value", "pool", text))
    if problems:
        raise invalid(problems)
    return DeclaredNode(
        name=NodeName(wanted.name),
        pool=PoolName(wanted.pool),
        labels=tuple(sorted(wanted.labels.items())),
        zone=wanted.zone,
        rack=wanted.rack,
        switch=wanted.switch,
        most=Offer(wanted.cpu_milli, wanted.memory_bytes, 0, wanted.devices),
        at=wanted.at,
    )


def _view(backend: Backend, record: JoinedNode, connected: set[NodeName]) -> JoinedNodeView:
    declared = record.node
    known = backend.state.nodes.get(declared.name)
    return JoinedNodeView(
        name=declared.name,
        pool=declared.pool,
        engine=declared.engine,
        at=declared.at or (known.spec.at if known is not None else ""),
        connected=declared.name in connected,
        declared_ms=record.declared_ms,
        joined_ms=record.joined_ms,
    )
