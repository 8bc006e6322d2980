"""Orders, messages and a brain in its session, for the tests of the agent."""

import itertools
import os
from typing import Any

from penstock.core.messages.orders import Order, StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import Incarnation, NodeName
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.agent.protocol import AgentReport, ServerOrders, ServerTaken, ServerWelcome
from penstock.engines.agent.state_machine import Action, AgentState
from penstock.engines.processes.sessions import SessionContainment

KEY = ReplicaKey(1, 1, 0)
_numbers = itertools.count()
LEASE_MS, HEARTBEAT_MS = 10_000, 1_000


def sessions() -> SessionContainment:
    """Return boxes that no other test shares, in this process or another one: their marks are new."""
    return SessionContainment(f"test-{os.getpid()}-{next(_numbers)}")


def start(key: ReplicaKey = KEY, command: tuple[str, ...] = ("true",), **fields: Any) -> StartReplica:
    given: dict[str, Any] = {
        "incarnation": "i1",
        "ask": ReplicaAsk(Resources(1_000)),
        "devices": (),
        "env": (),
        "world_size": 1,
        "local_rank": 0,
        "local_world_size": 1,
        "node_rank": 0,
        "node_names": ("n1",),
        "master_address": "127.0.0.1",
        "master_port": 0,
        "grace_ms": 5_000,
    }
    return StartReplica(key, command=command, **(given | fields))


class Agent:
    """A brain in session 1 of term 1 with a lease that began at 0."""

    def __init__(self, *, leased: bool = True, **fields: Any) -> None:
        self.agent_state = AgentState(NodeName("n1"), Incarnation("i1"), **fields)
        self._seq = 0
        self.welcome()
        if leased:
            self.taken(self.report(0))

    def welcome(self, epoch: int = 1, session: int = 1, now_ms: int = 0) -> None:
        self.agent_state.on_welcome(ServerWelcome(epoch, session, LEASE_MS, HEARTBEAT_MS), now_ms)

    def order(self, *orders: Order, epoch: int = 1, session: int = 1, seq: int = 0, now_ms: int = 1) -> list[Action]:
        self._seq = seq or self._seq + 1
        return self.agent_state.on_orders(ServerOrders(epoch, session, self._seq, orders), now_ms)

    def report(self, now_ms: int = 1) -> AgentReport:
        """Return the report that is due; there must be one."""
        found = self.agent_state.next_report(now_ms)
        assert found is not None
        return found

    def taken(self, sent: AgentReport, now_ms: int = 1, *, accepted: bool = True, **fields: int) -> None:
        given = {"epoch": sent.epoch, "session": sent.session, "report_seq": sent.report.seq} | fields
        self.agent_state.on_taken(ServerTaken(accepted=accepted, **given), now_ms)

    def run(self, key: ReplicaKey = KEY) -> None:
        """Let a replica run, and the server know it."""
        self.order(start(key))
        self.agent_state.on_started(key, 100)
        self.taken(self.report())

    def states(self) -> dict[ReplicaKey, str]:
        return {key: entry.state for key, entry in self.agent_state.entries.items()}
