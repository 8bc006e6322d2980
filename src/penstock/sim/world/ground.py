"""The ground of a simulated world: time, disk, network, the truth on the machines, and violations.

The parts of a world (server, nodes, users, faults) stand on it, and meet only here; `world.py` puts them together.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobSpec
from penstock.core.model.plan import Plan
from penstock.core.state.image import Image
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.state import State, fold
from penstock.engines.agent import protocol
from penstock.engines.agent.state_machine import AgentState
from penstock.sim.world.clockwork import Agenda
from penstock.sim.world.disk import SimDisk
from penstock.sim.world.network import Network
from penstock.sim.world.programs import SharedWork, SimulatedProcess

VIOLATIONS_MAX = 5
LEASE_TTL_MS = 6_000
"""Of the nodes of every world."""


class Server(Protocol):
    """A simulated server, as users and faults see it."""

    controller: Controller
    alive: bool
    paused: bool

    def kill(self) -> None: ...
    def ask(self, request: msg.Request, on_reply: Callable[[msg.Reply], Any] | None = None) -> None: ...


class Machine(Protocol):
    """A simulated node, as programs and faults see it."""

    agenda: Agenda
    spec: NodeSpec
    processes: dict[ReplicaKey, SimulatedProcess]
    agent_state: AgentState | None
    spawn_fail_rate: float
    late_exit_rate: float
    disk_full: bool

    @property
    def name(self) -> str: ...
    def crash_agent(self, down_ms: int) -> None: ...
    def crash(self, down_ms: int) -> None: ...
    def pause_agent(self, for_ms: int, *, whole_machine: bool) -> None: ...
    def device_failed(self, index: int, *, ends: bool) -> None: ...
    def go_at(self, process: SimulatedProcess, speed: int) -> None: ...


class Ground(ABC):
    """Shared by all parts of one world. Draws from `rng`, the world's own, are part of a seed's meaning."""

    config: ClusterConfig
    server: Server | None = None
    nodes: Mapping[str, Machine]

    def __init__(self, seed: int, rng: random.Random) -> None:
        self.seed = seed
        self.agenda = Agenda()
        self.disk = SimDisk(random.Random(rng.random()))
        self.network = Network(self.agenda, random.Random(rng.random()))
        self.work = SharedWork()
        self.disk_slowness = 0.0
        self.violations: list[str] = []
        self.probes: Counter[str] = Counter()
        self.tenants = ["t1", "t2", "t3", "t4"][: rng.randint(2, 4)]
        self.truth = Truth(self)
        self.past: Image | None = None
        """What the first server finds; None: nothing."""

    def violation(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self.agenda.now_ms} ms: {text}")

    def probe(self, name: str) -> None:
        """Mark that a rare situation was reached."""
        self.probes[name] += 1

    @property
    def specs(self) -> dict[JobId, JobSpec]:
        """Submitted specs by job, as the log has them."""
        return {r.event.job_id: r.event.spec for r in self.disk.records if isinstance(r.event, JobSubmitted)}

    def folded(self) -> State:
        """Return the state that the log alone gives."""
        return fold(self.disk.records, State.from_image(self.past) if self.past is not None else None)

    @abstractmethod
    def server_died(self, server: Server) -> None:
        """Start another server after a while: the process of this one is gone."""

    @abstractmethod
    def replace_server(self, for_ms: int) -> None:
        """Let another server take over while this one stands still for a time."""

    @abstractmethod
    def after_commit(self, server: Server) -> None:
        """Check every promise on the state after a commit."""

    @abstractmethod
    def planned(self, server: Server, snapshot: Snapshot, plan: Plan) -> None:
        """Check what a cycle decided on the present state."""

    @abstractmethod
    def to_server(self, node: Machine, message: protocol.ToServer) -> None: ...

    @abstractmethod
    def to_node(self, name: str, message: protocol.ToAgent) -> None: ...


class Truth:
    """The processes that really run on the machines, independent of the server's view."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._running: dict[tuple[JobId, int], set[int]] = {}
        """(job, rank) to attempts with a live process."""
        self._devices: dict[tuple[str, int], dict[ReplicaKey, int]] = {}
        """Use of each device by replica (thousandths)."""
        self._cpus: dict[str, dict[ReplicaKey, int]] = {}
        """CPUs in use on each node by replica (thousandths)."""

    def process_began(self, node: Machine, process: SimulatedProcess) -> None:
        """Two attempts of one job at once, or a device used beyond its capacity, must never happen."""
        key = process.key
        for (job_id, rank), attempts in self._running.items():
            if job_id == key.job_id and any(a != key.attempt for a in attempts):
                self._ground.violation(
                    f"job {job_id}: attempts {sorted(attempts)} (rank {rank}) and {key.attempt} run at once"
                )
        attempts = self._running.setdefault((key.job_id, key.rank), set())
        if key.attempt in attempts:
            self._ground.violation(f"replica {key} runs twice")
        attempts.add(key.attempt)
        for index in process.devices:
            users = self._devices.setdefault((node.name, index), {})
            users[key] = process.share_milli
            if sum(users.values()) > 1000:
                self._ground.violation(
                    f"device {index} of {node.name} is used beyond its capacity by {sorted(users.items())}"
                )
        if not process.suspended_ms and not process.stop_sent:
            self.runs_on_cpus(node, process)

    def runs_on_cpus(self, node: Machine, process: SimulatedProcess) -> None:
        """Running processes that were not asked to stop never use more CPUs than their node has."""
        users = self._cpus.setdefault(node.name, {})
        users[process.key] = process.cpu_milli
        if sum(users.values()) > node.spec.capacity.cpu_milli:
            self._ground.violation(f"the CPUs of {node.name} are used beyond their number by {sorted(users.items())}")

    def stands_still(self, node: Machine, process: SimulatedProcess) -> None:
        self._cpus.get(node.name, {}).pop(process.key, None)

    def process_ended(self, node: Machine, process: SimulatedProcess) -> None:
        key = process.key
        attempts = self._running[key.job_id, key.rank]
        attempts.discard(key.attempt)
        if not attempts:
            del self._running[key.job_id, key.rank]
        for index in process.devices:
            self._devices.get((node.name, index), {}).pop(key, None)
        self.stands_still(node, process)

    def saved_before_leaving(self, process: SimulatedProcess, step: int) -> None:
        """A program that heeded a stop request has lost no work."""
        key = process.key
        if self._ground.work.step(key.job_id) < step and key.attempt >= self._newest(key.job_id):
            self._ground.violation(f"replica {key} left at step {step} without its work")

    def _newest(self, job_id: JobId) -> int:
        server = self._ground.server
        job = server.controller.state.jobs.get(job_id) if server is not None else None
        return job.last_attempt if job else 1 << 30
