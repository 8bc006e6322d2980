"""A simulated server process: the real controller with an inbox, sessions and a planner that takes its time."""

import random
from collections.abc import Callable

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.messages.orders import Order
from penstock.core.model.errors import StaleEpoch
from penstock.engines.agent import protocol
from penstock.sim.world.clockwork import ServerClock
from penstock.sim.world.disk import PowerCut
from penstock.sim.world.ground import Ground, Machine
from penstock.sim.world.hostile import BOUNDS, Hostile

TICK_MS = 500
OnReply = Callable[[msg.Reply], None]


class SimServer:
    """One life of a server. It ends by a crash, a power cut, or when another has taken over."""

    def __init__(self, world: Ground, number: int, rng: random.Random, hostile: Hostile | None) -> None:
        self._world, self.number, self._rng = world, number, rng
        self._agenda, self._hostile = world.agenda, hostile
        self.alive, self.paused = True, False
        self._inbox: list[tuple[msg.Request, OnReply | None]] = []
        self._turn_planned = False
        self._planning = False
        self._sessions: dict[str, tuple[int, int]] = {}
        """Node to (session, last order number)."""
        self._last_session = 0
        self.controller = Controller(world.disk, ServerClock(self._agenda), name=f"server-{number}")
        if hostile is not None:
            self.controller.bounds = BOUNDS
        self.controller.open(world.config)
        self._planner = PlanChooser()
        self._tick()

    def kill(self) -> None:
        self.alive = False
        self._inbox.clear()

    def ask(self, request: msg.Request, on_reply: OnReply | None = None) -> None:
        if not self.alive:
            return
        self._inbox.append((request, on_reply))
        self._plan_turn()

    def resume(self) -> None:
        self.paused = False
        self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._turn_planned and not self.paused:
            self._turn_planned = True
            slow = self._rng.random() < self._world.disk_slowness
            self._agenda.after(self._rng.randint(200, 4_000) if slow else self._rng.randint(0, 4), self._turn)

    def _tick(self) -> None:
        if self.alive:
            if not self.paused:
                self.ask(msg.TimePassed())
            self._agenda.after(TICK_MS, self._tick)

    def _turn(self) -> None:
        """Decide and commit the pending requests, then answer: the live service's loop in one step."""
        self._turn_planned = False
        if not self.alive or self.paused:
            return
        group, self._inbox = self._inbox[:16], self._inbox[16:]
        if group:
            indexes = self.controller.state.indexes
            tried = indexes.shapes_tried
            try:
                handled = self.controller.handle([request for request, _ in group])
            except StaleEpoch:
                self._world.probe("stale_server_stopped")
                self.kill()
                return
            except PowerCut:
                self._world.probe("power_cut_in_commit")
                self._world.server_died(self)
                return
            if self._hostile is not None and indexes is self.controller.state.indexes:
                requests = [request for request, _ in group]
                self._hostile.worked(requests, handled.replies, indexes.shapes_tried - tried)
            self._world.after_commit(self)
            for node, order in handled.orders:
                self._order(node, [order])
            for (request, on_reply), reply in zip(group, handled.replies, strict=True):
                if isinstance(request, msg.CommitPlan):
                    self._planning = False
                if on_reply is not None:
                    on_reply(reply)
        if not self._planning and self.controller.plan_clock.due(ServerClock(self._agenda).monotonic_ms()):
            self._cycle()
        if self._inbox:
            self._plan_turn()

    def _cycle(self) -> None:
        self._planning = True
        snapshot = self.controller.snapshot()
        decided = self._planner.plan(snapshot, ServerClock(self._agenda).unix_ms())
        self._world.planned(self, snapshot, decided)
        took_ms = self._rng.randint(1, 10) if self._rng.random() < 0.8 else self._rng.randint(10, 1_500)
        self._agenda.after(took_ms, lambda: self.ask(msg.CommitPlan(decided)))

    # Nodes.

    def from_node(self, node: Machine, message: protocol.ToServer) -> None:
        if not self.alive:
            return
        if isinstance(message, protocol.AgentHello):
            self._last_session += 1
            session = self._last_session

            def welcome(reply: msg.Reply) -> None:
                if isinstance(reply, msg.Welcome):
                    self._sessions[node.name] = (session, 0)
                    terms = protocol.ServerWelcome(reply.epoch, session, reply.lease_ms, reply.heartbeat_ms)
                    self._world.to_node(node.name, terms)

            self.ask(msg.Hello(message.spec, message.incarnation), welcome)
        elif isinstance(message, protocol.AgentFetch | protocol.AgentRenew | protocol.AgentOutput):
            raise AssertionError("jobs of simulated worlds start in no snapshots, and their nodes have no certificates")
        elif self._sessions.get(node.name, (0, 0))[0] == message.session and message.epoch == self.controller.epoch:
            self.ask(message.report, lambda reply: self._taken(node.name, reply))
        else:
            self._world.to_node(node.name, protocol.ServerRefused("say hello first"))

    def _taken(self, node: str, reply: msg.Reply) -> None:
        if isinstance(reply, msg.ReportTaken) and node in self._sessions:
            session, _ = self._sessions[node]
            taken = protocol.ServerTaken(self.controller.epoch, session, reply.seq, reply.accepted)
            self._world.to_node(node, taken)
            self._order(node, reply.orders)

    def _order(self, node: str, orders: "tuple[Order, ...] | list[Order]") -> None:
        if orders and node in self._sessions:
            session, seq = self._sessions[node]
            self._sessions[node] = (session, seq + 1)
            message = protocol.ServerOrders(self.controller.epoch, session, seq + 1, tuple(orders))
            self._world.to_node(node, message)
