"""Nodes towards the server: each says hello with what Slurm says of it, and reports which replicas stand on it.

A node keeps its lease for as long as Slurm lists it and does not call it down: what ends on it, Slurm says.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from penstock.core.messages.orders import Acknowledge, Order
from penstock.core.messages.reports import NodeCheck, NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen, SeenState
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Epoch, Incarnation, NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.nodes import OthersLoad
from penstock.core.model.weaker import PASSED, SHADOW
from penstock.engines.slurm.nodes import SlurmNode, node_spec
from penstock.engines.slurm.server import NodesServer

log = logging.getLogger(__name__)

INCARNATION = Incarnation("slurm")
"""The same for ever: which processes are gone, Slurm says by the states of jobs."""
NO_NODE = NodeName("")
ALIVE_S = 5.0
AGAIN_S = 1.0
"""A node whose session was closed says hello again after this long."""


class _Session:
    """The engine's side of one node's session."""

    def __init__(self, nodes: "StandingNodes", name: NodeName) -> None:
        self._nodes, self.name = nodes, name
        self.welcomed = False

    def welcome(self, epoch: Epoch, lease_ms: int, heartbeat_ms: int) -> None:
        self.welcomed = True
        self._nodes.touch(self.name)

    def taken(self, report_seq: int, orders: Sequence[Order], *, accepted: bool) -> None:
        if not accepted:
            self.welcomed = False
            self._nodes.hello(self.name)
        for order in orders:
            self._nodes.obey(order, self.name)

    def refuse(self, reason: str) -> None:
        log.warning("the server refuses a node", extra={"node": self.name, "reason": reason})

    def close(self) -> None:
        self.welcomed = False
        asyncio.get_running_loop().call_later(AGAIN_S, partial(self._nodes.hello, self.name))


class StandingNodes:
    """The nodes. Everything runs on the engine's loop.

    Args:
        carry_out: does what an order asks for; None: nothing ever is.
    """

    def __init__(self, server: NodesServer, carry_out: Callable[[NodeName, Order], None] | None = None) -> None:
        self._server, self._carry_out = server, carry_out
        self._engine = SHADOW if carry_out is None else PASSED
        self._specs: dict[NodeName, NodeSpec] = {}
        self._sessions: dict[NodeName, _Session] = {}
        self._standing: dict[NodeName, dict[ReplicaKey, SeenState]] = {}
        self._exits: dict[NodeName, dict[ReplicaKey, ExitInfo]] = {}
        self._of: dict[ReplicaKey, NodeName] = {}
        self._touched: dict[NodeName, None] = {}
        self._others: dict[NodeName, OthersLoad] = {}
        self._progress: dict[NodeName, list[ProgressSeen]] = {}
        self._refused: dict[ReplicaKey, str] = {}
        self._checks: dict[NodeName, NodeCheck] = {}
        self._seq = 0
        self.ended: list[ReplicaKey] = []
        """Replicas whose ends are in the log since this was last looked at."""

    # What Slurm says.

    def see(self, nodes: Iterable[SlurmNode]) -> None:
        """Take what Slurm says of all nodes: new ones say hello, those that are down leave once nothing is on them."""
        pools = self._server.config().pool_by_name
        closed, listed = self._server.closed(), set()
        for node in nodes:
            name, spec = NodeName(node.name), node_spec(node, pools, self._engine)
            if node.gone and not self._standing.get(name):
                continue
            listed.add(name)
            if self._specs.get(name) != spec:
                self._specs[name] = spec
                self.hello(name)
            if closed.get(name, "") != node.closed:
                self._server.close(name, node.closed)
        for name in [name for name in self._specs if name not in listed]:
            self._leave(name)

    def _leave(self, name: NodeName) -> None:
        session = self._sessions.pop(name, None)
        if session is not None and session.welcomed:
            self._server.on_report(replace(self._report(name), leaving=True), session)
        del self._specs[name]
        self._touched.pop(name, None)

    def knows(self, name: NodeName) -> bool:
        return name in self._specs

    def hello(self, name: NodeName) -> None:
        """Introduce a node as it is now."""
        spec = self._specs.get(name)
        if spec is not None:
            self._sessions[name] = _Session(self, name)
            self._server.on_hello(spec, INCARNATION, self._sessions[name])

    # What stands on them.

    def stand(self, key: ReplicaKey, node: NodeName, state: SeenState) -> None:
        """Note that a replica stands on a node, or how it does now."""
        self._of[key] = node
        here = self._standing.setdefault(node, {})
        if here.get(key) != state:
            here[key] = state
            self.touch(node)

    def end(self, key: ReplicaKey, info: ExitInfo) -> None:
        """Note how a replica ended; it is reported until the server has acknowledged it."""
        node = self._of[key]
        self._standing.get(node, {}).pop(key, None)
        self._refused.pop(key, None)
        self._exits.setdefault(node, {})[key] = info
        self.touch(node)

    def node_of(self, key: ReplicaKey) -> NodeName:
        return self._of[key]

    def others(self, loads: Mapping[NodeName, OthersLoad]) -> None:
        """Note what jobs of others hold of each node."""
        for name in [name for name in self._specs if self._others.get(name) != loads.get(name, OthersLoad())]:
            self._others[name] = loads.get(name, OthersLoad())
            self.touch(name)

    def advance(self, seen: Sequence[ProgressSeen]) -> None:
        """Note what programs have reported; it is passed on once."""
        for one in seen:
            node = self._of.get(one.key)
            if node is not None:
                self._progress.setdefault(node, []).append(one)
                self.touch(node)

    def refuse(self, key: ReplicaKey, why: str) -> None:
        """Note why a replica cannot be frozen."""
        self._refused[key] = why
        self.touch(self._of[key])

    def checked(self, name: NodeName, check: NodeCheck) -> None:
        """Note what a check of a node gave; it is passed on once."""
        self._checks[name] = check
        self.touch(name)

    def state_of(self, key: ReplicaKey) -> SeenState | None:
        """Return how a replica stands, None where it is not known or its end is in the log."""
        node = self._of.get(key)
        if node is None:
            return None
        return self._standing.get(node, {}).get(key, "exited")

    def obey(self, order: Order, node: NodeName = NO_NODE) -> None:
        """Take an order. That an end is in the log is all that concerns a shadow; others carry out the rest."""
        if self._carry_out is not None and not isinstance(order, Acknowledge):
            self._carry_out(node, order)
        if isinstance(order, Acknowledge) and (place := self._of.pop(order.key, None)) is not None:
            self._exits.get(place, {}).pop(order.key, None)
            self.ended.append(order.key)

    def touch(self, name: NodeName) -> None:
        self._touched[name] = None

    def flush(self) -> None:
        """Report the nodes of which something is new."""
        for name in tuple(self._touched):
            session = self._sessions.get(name)
            if session is not None and session.welcomed:
                del self._touched[name]
                self._server.on_report(self._report(name), session)
            elif name not in self._specs:  # the server counts what stood there as lost
                del self._touched[name]
                for key in tuple(self._exits.get(name, ())):
                    self.obey(Acknowledge(key))

    def _report(self, name: NodeName) -> NodeReport:
        self._seq += 1
        here = self._standing.get(name, {}).items()
        seen = [ReplicaSeen(key, state, refused=self._refused.get(key, "")) for key, state in here]
        seen += [ReplicaSeen(key, "exited", exit=info) for key, info in self._exits.get(name, {}).items()]
        replicas = tuple(sorted(seen, key=lambda one: one.key))
        return NodeReport(
            name,
            INCARNATION,
            self._seq,
            inventory=True,
            replicas=replicas,
            progress=tuple(self._progress.pop(name, ())),
            others=self._others.get(name),
            check=self._checks.pop(name, None),
        )

    @property
    def idle(self) -> bool:
        """Whether all is reported, and all ends are in the log."""
        return not self._touched and not any(self._exits.values()) and not self.ended

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return {name for name, session in tuple(self._sessions.items()) if session.welcomed}

    async def keep(self) -> None:
        """Keep the leases of nodes, until cancelled."""
        while True:
            self._server.on_alive([(name, INCARNATION) for name in self.connected()])
            await asyncio.sleep(ALIVE_S)
