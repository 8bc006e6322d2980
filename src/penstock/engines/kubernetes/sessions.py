"""Nodes towards the server: each says hello with what it offers, and reports what stands on it when that changes."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from penstock.core.messages.orders import Order
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Epoch, Incarnation, NodeName, PoolName
from penstock.core.model.weaker import KUBERNETES
from penstock.engines.kubernetes.amounts import BadAmount, Sums
from penstock.engines.kubernetes.nodes import NAME_FIELD, no_pool, node_spec, nothing_more
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.onnode import OnNode
from penstock.engines.kubernetes.pace import Pace
from penstock.engines.kubernetes.server import NodeServer

log = logging.getLogger(__name__)

FLUSH_S = 0.02
"""Changes of so long a time go into one report of each node."""
ALIVE_S = 5.0
"""The server hears of all nodes this often: well within the shortest useful lease."""
AGAIN_S = 1.0
"""A node whose session was closed says hello again after this long."""
REPORTS_MAX = 500
"""Nodes that report in one turn of the loop; others follow in the next."""


class _Session:
    """The engine's side of one node's session."""

    def __init__(self, nodes: "Nodes", name: NodeName, incarnation: Incarnation) -> None:
        self._nodes, self.name, self.incarnation = nodes, name, incarnation
        self.welcomed = False

    def welcome(self, epoch: Epoch, lease_ms: int, heartbeat_ms: int) -> None:
        self.welcomed = True
        self._nodes.touch(self.name)

    def taken(self, report_seq: int, orders: Sequence[Order], *, accepted: bool) -> None:
        if not accepted:
            self.welcomed = False
            self._nodes.hello(self.name)
        for order in orders:
            self._nodes.obey(self.name, order)

    def refuse(self, reason: str) -> None:
        log.warning("the server refuses a node", extra={"node": self.name, "reason": reason})

    def close(self) -> None:
        self.welcomed = False
        self._nodes.later(AGAIN_S, lambda: self._nodes.hello(self.name))


class Nodes:
    """The nodes of the cluster, what stands on each, and their sessions.

    Args:
        objects: the copy of the nodes, by namespace (empty) and name.
        obey: carries out an order that comes with an answer to a report.
        pool_of: gives the pool of a node by its labels.
        offered: gives what a node has for claims.
        engine: which way Penstock has to the nodes.
    """

    def __init__(
        self,
        server: NodeServer,
        objects: Mapping[tuple[str, str], Node],
        obey: Callable[[NodeName, Order], None],
        pool_of: Callable[[Mapping[str, str]], PoolName] = no_pool,
        offered: Callable[[Node], Sums] = nothing_more,
        engine: str = KUBERNETES,
    ) -> None:
        self._engine = engine
        self._server, self._objects, self.obey, self._pool_of, self._offered = server, objects, obey, pool_of, offered
        self._on: dict[NodeName, OnNode] = {}
        self.specs: dict[NodeName, NodeSpec] = {}
        self._sessions: dict[NodeName, _Session] = {}
        self._touched: dict[NodeName, None] = {}
        self._pace = Pace()
        self._keys: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.begun = False
        """Both lists are whole: before, what runs on the nodes is not known."""
        self.changed = False
        """What the server refused because no node could ever hold it may fit by now."""

    def begin(self) -> None:
        """Introduce all nodes."""
        self._loop, self.begun = asyncio.get_running_loop(), True
        for _, name in tuple(self._objects):
            self.hello(NodeName(name))

    def at(self, name: NodeName) -> OnNode:
        found = self._on.get(name)
        if found is None:
            found = self._on[name] = OnNode(name)
        return found

    def exists(self, name: NodeName) -> bool:
        """Return whether the cluster has the node."""
        return ("", name) in self._objects

    def all(self) -> Iterable[OnNode]:
        return self._on.values()

    def touch(self, name: NodeName) -> None:
        """Note that a node has something to report."""
        self._touched[name] = None
        self._pace.wake()

    def hello(self, name: NodeName) -> None:
        """Introduce a node, unless the server knows it as it is."""
        node = self._objects.get(("", name))
        if node is None or not self.begun:
            return
        try:
            spec = node_spec(node, self._keys, self._pool_of, self._offered, self._engine)
        except BadAmount as error:
            log.warning("a node's amounts cannot be read", extra={"node": name, "problem": str(error)})
            return
        incarnation, session = Incarnation(node.metadata.uid), self._sessions.get(name)
        known = session is not None and session.welcomed and session.incarnation == incarnation
        if known and self.specs.get(name) == spec:
            return
        self.changed = True
        self.specs[name] = spec
        self._sessions[name] = _Session(self, name, incarnation)
        self._server.on_hello(spec, incarnation, self._sessions[name])

    def hello_all(self) -> None:
        """Introduce the nodes that are described differently by now."""
        for _, name in tuple(self._objects):
            self.hello(NodeName(name))

    def ask_about(self, keys: Collection[str]) -> None:
        """Describe nodes with these labels from now on; only those that have one say hello."""
        new = set(keys) - self._keys
        if not new:
            return
        self._keys |= new
        for (_, name), node in tuple(self._objects.items()):
            if NAME_FIELD in new or not new.isdisjoint(node.metadata.labels):
                self.hello(NodeName(name))

    def gone(self, name: NodeName) -> None:
        """Let a node leave, with all its pods."""
        session, spec = self._sessions.pop(name, None), self.specs.pop(name, None)
        if session is not None and spec is not None:
            report = self.at(name).report(spec, session.incarnation)
            ended = tuple(seen for seen in report.replicas if seen.state == "exited")
            self._server.on_report(msgspec.structs.replace(report, replicas=ended, leaving=True), session)

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return {name for name, session in tuple(self._sessions.items()) if session.welcomed}

    def later(self, wait_s: float, action: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_later(wait_s, action)

    async def report(self) -> None:
        """Report nodes that have changed, until cancelled."""
        while True:
            await self._pace.wait(FLUSH_S)
            self._report(list(self._touched)[:REPORTS_MAX])
            if self._touched:
                self._pace.wake()

    def flush(self) -> None:
        """Report all nodes that have changed at once."""
        self._report(list(self._touched))

    def _report(self, names: Iterable[NodeName]) -> None:
        for name in names:
            session, spec = self._sessions.get(name), self.specs.get(name)
            del self._touched[name]
            if session is not None and spec is not None and session.welcomed:  # else its welcome touches it
                self._server.on_report(self.at(name).report(spec, session.incarnation), session)

    async def stand(self) -> None:
        """Keep the leases of nodes, until cancelled."""
        while True:
            await asyncio.sleep(ALIVE_S)
            self._server.on_alive([(s.name, s.incarnation) for s in self._sessions.values() if s.welcomed])
