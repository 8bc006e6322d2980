"""A server that only talks and lets machines join, and the machines: folders that share nothing with it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from penstock.bootstrap import RealClock
from penstock.control.joining import Joining
from penstock.core.messages.orders import Order
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId, NodeName
from penstock.engines.agent.joined import DeclaredNode, JoinBundle, LinkState, ServerAddress
from penstock.engines.agent.protocol import AgentOutput, ServerStored
from penstock.engines.joined.outputs import ArrivingOutputs, JobPlaces
from penstock.engines.joined.records import JoinedNodes
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.paths import DataFolder
from penstock.joining.node import Joined, JoinWish, join, wait_joined
from tests.engines.agent.fakeserver import FakeServer
from tests.server.harness import MARK, sweep, until

MARK_OF_JOB = "0123456789abcdef-1700000000000"


class JoinServer(FakeServer):
    """Lets machines join; `joining` declares them."""

    joining: Joining

    def __init__(self, root: Path, **fields: Any) -> None:
        self.arriving: ArrivingOutputs | None = None
        self.placed: dict[JobId, JobPlaces] = {}
        super().__init__(root, peers=self._peers, store=self._store, **fields)
        self.joining.addresses = (ServerAddress("127.0.0.1", self.port),)

    def _peers(self, data: DataFolder) -> Joining:
        clock = RealClock()
        records = JoinedNodes(data.joined, clock.unix_ms)
        self.joining = Joining(data, clock, records, lambda name: name == "n1", lambda: None, lambda: self.engine)
        self.arriving = ArrivingOutputs(data, self.placed.get, records.declares)
        return self.joining

    def _store(self, node: NodeName, piece: AgentOutput) -> ServerStored:
        assert self.arriving is not None
        return self.arriving.store(node, piece)

    def order(self, *orders: Order) -> None:
        self.engine.send([(NodeName("away"), order) for order in orders])

    def place(self, *keys: ReplicaKey, node: str = "away") -> None:
        """Let the log say that replicas were placed on a node."""
        for key in keys:
            known = self.placed.get(key.job_id, JobPlaces({}, ""))
            self.placed[key.job_id] = JobPlaces({**known.nodes, (key.attempt, key.rank): NodeName(node)}, MARK_OF_JOB)

    def bundle(self, name: str = "away", **fields: Any) -> JoinBundle:
        return self.joining.declare(DeclaredNode(NodeName(name), **fields))


class Machine:
    """A folder of a machine that joins, and its agent."""

    def __init__(self, root: Path, wish: JoinWish) -> None:
        self.root, self.wish = root, wish

    @property
    def data(self) -> DataFolder:
        return DataFolder(self.root)

    def join(self, bundle: JoinBundle | None, **wish: Any) -> Joined:
        with patch.dict(os.environ, {MARK: str(self.root)}):
            return join(bundle, self.root, msgspec.structs.replace(self.wish, **wish))

    def joined(self, name: str = "away") -> str:
        return wait_joined(self.data, name, 30)

    def state(self, name: str = "away") -> LinkState | None:
        path = self.data.node(name) / "link-state.json"
        return msgspec.json.decode(path.read_bytes(), type=LinkState) if path.exists() else None

    def refused(self, name: str = "away") -> str:
        """Return why the server does not let the node in, once it says so."""

        def problem() -> str:
            state = self.state(name)
            return state.problem if state is not None and "reached" not in state.problem else ""

        return until(problem, f"node {name} is refused")

    def kill_agent(self, name: str = "away") -> None:
        pid = agent_pid(self.data, name)
        assert pid
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[JoinServer]:
    made = JoinServer(tmp_path / "server")
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine", JoinWish(cpus=2, memory="1GiB", devices=()))
    yield made
    sweep(made.root)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "other", JoinWish(cpus=2, memory="1GiB", devices=()))
    yield made
    sweep(made.root)
