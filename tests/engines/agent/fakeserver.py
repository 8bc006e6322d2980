"""A server that only talks: the real end of the agents' socket, and answers that a test chooses."""

import asyncio
import datetime as dt
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from penstock.core.messages.orders import Acknowledge, Order, StartReplica
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.agent import tls
from penstock.engines.agent.server_side import AgentLinks, AllPeers, Peers, Store
from penstock.engines.local.launch import agent_pid, start_agent, stop_agent
from penstock.engines.processes.paths import DataFolder
from penstock.ports import EngineEvents
from penstock.security.keeper import CertificateKeeper
from penstock.security.live import Live
from penstock.testing.builders import node
from tests.engines.agent.builders import start
from tests.server.harness import MARK, sweep, until


class FakeServer:
    """Runs the link on a loop of its own; keeps what agents said. `answering` off: it reads and says nothing.

    Args:
        events: hears the agents instead of it.
        peers: who is heard, of those with a certificate; made from the data folder.
        store: keeps outputs of nodes of other machines.
    """

    def __init__(
        self,
        root: Path,
        *,
        lease_ms: int = 20_000,
        heartbeat_ms: int = 100,
        events: EngineEvents | None = None,
        peers: Callable[[DataFolder], Peers] = lambda data: AllPeers(),
        store: Store | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.data = DataFolder(root.resolve())
        self.reports: list[NodeReport] = []
        self.hellos: list[Any] = []
        self.answering = True
        self.lease_ms, self._heartbeat_ms = lease_ms, heartbeat_ms
        self._jobs = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.keeper = CertificateKeeper(self.data.certificates)
        self.certify()
        self.security = Live(lambda: tls.server_context(self.data.trusted, self.keeper.server_file))
        self.peers = peers(self.data)
        self.engine = AgentLinks(self.security.context, peers=self.peers, store=store)
        self.port = self._call(self.engine.start("127.0.0.1", events or self))
        self.data.server_info.write_text(json.dumps({"agent_host": "127.0.0.1", "agent_port": self.port}))

    def certify(self, *names: str) -> None:
        """Make or renew the certificates of these nodes, or of n1."""
        paths = {name: self.data.node_certificate(name) for name in names or ("n1",)}
        self.keeper.ensure(("localhost",), paths, dt.datetime.now(dt.UTC))

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def move(self, port: int) -> None:
        """Listen at another port from now on, and end every connection."""

        async def move() -> None:
            assert self.engine._server is not None
            self.engine._server.close()
            await self.engine.start("127.0.0.1", self.engine._events or self, port)
            self.engine._hang_up_here()

        self._call(move())
        self.port = port

    def on_hello(self, spec: Any, incarnation: Any, session: Any) -> None:
        self.hellos.append((spec, incarnation))
        session.welcome(1, self.lease_ms, self._heartbeat_ms)

    def on_report(self, report: NodeReport, session: Any) -> None:
        self.reports.append(report)
        if self.answering:
            session.taken(report.seq, (), accepted=True)

    # The agent.

    def agent(self, name: str = "n1", **fields: Any) -> None:
        """Start the node's agent and wait until it holds its lock."""
        with patch.dict(os.environ, {MARK: str(self.data.root)}):  # of its programs, too: `close` finds them by it
            start_agent(self.data, node(name, **fields))
        until(lambda: agent_pid(self.data, name), f"the agent of {name} lives")

    def ready(self) -> None:
        until(lambda: self.reports, "the agent has reported")

    def stop_agent(self, name: str = "n1") -> None:
        stop_agent(self.data, name)
        until(lambda: agent_pid(self.data, name) is None, "the agent has left")

    # Orders and what came of them.

    def order(self, *orders: Order) -> None:
        self.engine.send([("n1", order) for order in orders])

    def start(self, *command: str, **fields: Any) -> ReplicaKey:
        self._jobs += 1
        key = fields.pop("key", None) or ReplicaKey(JobId(self._jobs), AttemptNumber(1), Rank(0))
        fields.setdefault("incarnation", self.hellos[-1][1])
        order: StartReplica = start(key, command, **fields)
        self.order(order)
        return key

    def seen(self, key: ReplicaKey, state: str) -> ReplicaSeen:
        """Return how a replica was seen in a state, once it was."""

        def found() -> ReplicaSeen | None:
            return next((s for r in self.reports for s in r.replicas if s.key == key and s.state == state), None)

        result = until(found, f"replica {key} is {state}")
        assert result is not None
        return result

    def ended(self, key: ReplicaKey) -> Any:
        """Return how a replica ended; `used` has what it used."""
        return msgspec.structs.replace(self.seen(key, "exited").exit, measured=None)

    def used(self, key: ReplicaKey) -> Any:
        return self.seen(key, "exited").exit.measured

    def progress(self, key: ReplicaKey) -> list[ProgressSeen]:
        return list(dict.fromkeys(p for r in self.reports for p in r.progress if p.key == key))

    def said(self, key: ReplicaKey, text: str) -> None:
        path = self.data.output(key)
        until(lambda: path.exists() and text in path.read_text(), f"replica {key} says {text!r}")

    def next_inventory(self, wanted: Callable[[NodeReport], bool]) -> NodeReport:
        """Return a full report that comes from now on and is as wanted."""
        since = len(self.reports)
        found = lambda: next((r for r in self.reports[since:] if r.inventory and wanted(r)), None)
        return until(found, "a full report as wanted")

    def acknowledge(self, key: ReplicaKey) -> None:
        self.order(Acknowledge(key))
        self.next_inventory(lambda r: all(s.key != key for s in r.replicas))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self.engine.stop)
        sweep(self.data.root)
        until(lambda: not self.engine._connections, "every connection has ended")
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
