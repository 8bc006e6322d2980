"""An engine without machines: real agents' decisions over simulated programs, in virtual time.

Time moves in `advance` only. A program's behaviour follows from its command (`behaviour_of`), or from a
function of your own. It passes `conformance`, as real engines do.
"""

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.messages.orders import (
    Addressed,
    ChangeBatch,
    CheckNode,
    DivideDevice,
    LimitPower,
    Order,
    StartReplica,
)
from penstock.core.messages.reports import NodeCheck, ProgressSeen, ReplicaKey
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Epoch, Incarnation, NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.engines.agent import protocol
from penstock.engines.agent import state_machine as agent
from penstock.ports import EngineEvents
from penstock.sim.world.clockwork import Agenda, ServerClock
from penstock.sim.world.programs import STEP_MS, Behaviour, SharedWork, SimulatedProcess, steps_done

__all__ = ["Behaviour", "BehaviourOf", "FakeEngine", "behaviour_of"]

RECONNECT_MS = 200
LEAVE_MS = 100
"""Time between the stop signal and the end of a program that obeys it."""
RUNS_MS = 1_000
"""Run time of a command that does not say one."""

NUMBER = re.compile(r"\d+(\.\d+)?")

BehaviourOf = Callable[[StartReplica], Behaviour]


def behaviour_of(order: StartReplica) -> Behaviour:
    """Return the behaviour of a command, which is parsed, not run.

    `sleep 90` runs ninety seconds, `exit 3` and `false` fail after one, `Behaviour(...).command()` means itself, and
    every other command ends well after a second. Of a shell's text, as job files have it, the first command counts.
    """
    words = list(order.command)
    if words[0].endswith("sh") and words[1:2] == ["-c"]:
        words = re.split(r"[;&|\n]", words[2])[0].split()
    match words:
        case ["sim", *_]:
            return Behaviour.of(tuple(words))
        case ["sleep", seconds, *_] if NUMBER.fullmatch(seconds):
            return Behaviour(round(float(seconds) * 1000 / STEP_MS))
        case ["exit", code, *_] if code.isdecimal():
            return Behaviour(RUNS_MS // STEP_MS, exit_code=int(code))
        case ["false", *_]:
            return Behaviour(RUNS_MS // STEP_MS, exit_code=1)
        case _:
            return Behaviour(RUNS_MS // STEP_MS)


class FakeEngine:
    """An `Engine` of simulated nodes. Any thread may send orders; one drives it.

    Args:
        nodes: they say hello at `start`.
        behaviour: returns the behaviour of a replica's program.
    """

    def __init__(self, *nodes: NodeSpec, behaviour: BehaviourOf = behaviour_of) -> None:
        self.agenda = Agenda()
        self.clock = ServerClock(self.agenda)
        self.behaviour = behaviour
        self.work = SharedWork()
        """Checkpoints: on storage that all nodes see."""
        self.lock = threading.RLock()
        self.said = 0
        """Number of messages that nodes have sent."""
        self.settle: Callable[[], None] = lambda: None
        """Called after each moment at which nodes sent something: waits for answers that come from other threads."""
        self._nodes = {spec.name: FakeNode(self, spec) for spec in nodes}
        self.events: EngineEvents | None = None

    def start(self, events: EngineEvents) -> None:
        """Let all nodes say hello to `events`."""
        self.events = events
        with self.lock:
            for node in self._nodes.values():
                node.connect()
        self.settle()

    def stop(self) -> None:
        """Stop all messages from nodes."""
        self.events = None

    def send(self, orders: Sequence[Addressed]) -> None:
        with self.lock:
            for name, order in orders:
                if name in self._nodes:
                    self._nodes[name].order([order])

    def connected(self) -> set[NodeName]:
        """Return the nodes that were welcomed."""
        return {name for name, node in self._nodes.items() if node.welcomed}

    def running(self) -> list[ReplicaKey]:
        """Return the replicas whose programs run, or are frozen, on any node."""
        with self.lock:
            return sorted(key for node in self._nodes.values() for key in node.processes)

    def advance(self, ms: int) -> None:
        """Let virtual time pass: programs end and nodes report, one moment after the other."""
        over: list[bool] = []
        with self.lock:
            self.agenda.after(ms, lambda: over.append(True))
        while not over:
            with self.lock:
                before = self.said
                self.agenda.step()
                spoke = self.said > before
            if spoke:
                self.settle()

    def crash(self, name: str) -> None:
        """Let a machine die with all that runs on it; its lease runs out as time passes."""
        with self.lock:
            self._nodes[NodeName(name)].crash()

    def boot(self, name: str) -> None:
        """Let a machine come back, empty."""
        with self.lock:
            self._nodes[NodeName(name)].boot()
        self.settle()


class FakeSession:
    """One connection of a node; a closed one ignores every call."""

    def __init__(self, node: "FakeNode", number: int) -> None:
        self._node, self._number = node, number
        self.epoch = Epoch(0)
        self._seq = 0

    def welcome(self, epoch: Epoch, lease_ms: int, heartbeat_ms: int) -> None:
        self.epoch = epoch
        self._deliver(protocol.ServerWelcome(epoch, self._number, lease_ms, heartbeat_ms))

    def taken(self, report_seq: int, orders: Sequence[Order], *, accepted: bool) -> None:
        self._deliver(protocol.ServerTaken(self.epoch, self._number, report_seq, accepted))
        if orders:
            self.order(orders)

    def order(self, orders: Sequence[Order]) -> None:
        if self.epoch:
            self._seq += 1
            self._deliver(protocol.ServerOrders(self.epoch, self._number, self._seq, tuple(orders)))

    def refuse(self, reason: str) -> None:
        self.close()

    def close(self) -> None:
        with self._node.engine.lock:
            if self._node.session is self:
                self._node.disconnect()

    def _deliver(self, message: protocol.ToAgent) -> None:
        with self._node.engine.lock:
            if self._node.session is self:
                self._node.receive(message)


class FakeNode:
    """One machine with its agent. Everything here is called under the engine's lock."""

    def __init__(self, engine: FakeEngine, spec: NodeSpec) -> None:
        self.engine, self.spec = engine, spec
        self.processes: dict[ReplicaKey, SimulatedProcess] = {}
        self.session: FakeSession | None = None
        self._up = True
        self._life, self._sessions, self._pids = 1, 0, 0
        self._turn_ms: int | None = None
        """Time of the next turn of its agent."""
        self._state = self._new_agent()

    def _new_agent(self) -> agent.AgentState:
        return agent.AgentState(self.spec.name, Incarnation(f"{self.spec.name}-{self._life}"))

    @property
    def welcomed(self) -> bool:
        return self.session is not None and self.session.epoch > 0

    # The machine, and its connection.

    def crash(self) -> None:
        self.session, self._turn_ms, self._up = None, None, False
        self.processes.clear()
        self._life += 1

    def boot(self) -> None:
        if not self._up:
            self._up, self._state = True, self._new_agent()
            self.connect()

    def connect(self) -> None:
        """Say hello on a new connection."""
        if self.engine.events is None:
            return
        self._sessions += 1
        self.session = FakeSession(self, self._sessions)
        self._state.must_say_hello = False
        self.engine.said += 1
        self.engine.events.on_hello(self.spec, self._state.incarnation, self.session)
        self._plan_turn()

    def disconnect(self) -> None:
        """Lose the connection; another is made soon."""
        self.session = None
        life = self._life
        self.engine.agenda.after(RECONNECT_MS, lambda: self.connect() if self._is_away(life) else None)
        self._plan_turn()

    def _is_away(self, life: int) -> bool:
        return life == self._life and self.session is None

    def order(self, orders: Sequence[Order]) -> None:
        if self.session is not None:
            self.session.order(orders)

    def receive(self, message: protocol.ToAgent) -> None:
        now_ms = self.engine.agenda.now_ms
        match message:
            case protocol.ServerWelcome():
                self._state.on_welcome(message, now_ms)
            case protocol.ServerOrders():
                self._act(self._state.on_orders(message, now_ms))
            case protocol.ServerTaken():
                self._state.on_taken(message, now_ms)
            case protocol.ServerRefused():
                self.disconnect()
        self._tell()

    def _turn(self, at_ms: int) -> None:
        if at_ms == self._turn_ms:
            self._turn_ms = None
            self._act(self._state.on_time(at_ms))
            self._tell()

    def _plan_turn(self) -> None:
        """Plan the agent's next turn for when something is due."""
        due_ms, now_ms = self._state.due_ms(connected=self.session is not None), self.engine.agenda.now_ms
        if due_ms is None:
            return
        due_ms = max(due_ms, now_ms + 1)
        if self._turn_ms is None or due_ms < self._turn_ms:
            self._turn_ms = due_ms
            self.engine.agenda.after(due_ms - now_ms, partial(self._turn, due_ms))

    def _tell(self) -> None:
        """Send the reports that are due."""
        if self._state.must_say_hello and self.session is not None:
            self.disconnect()
        while self.welcomed and self.session is not None and self.engine.events is not None:
            report = self._state.next_report(self.engine.agenda.now_ms)
            if report is None:
                break
            self.engine.said += 1
            self.engine.events.on_report(report.report, self.session)
        self._plan_turn()

    # Programs.

    def _act(self, actions: Sequence[agent.Action]) -> None:
        for action in actions:
            match action:
                case agent.Spawn():
                    self._spawn(action.order)
                case agent.AskToStop():
                    self._stop(action.key)
                case agent.AskToSave():
                    self._save(action.key, "requested")
                case agent.Freeze():
                    self._freeze(action.key)
                case agent.Thaw():
                    self._thaw(action.key)
                case agent.KillAll():
                    self._end(action.key, ExitInfo(signal=9))
                case CheckNode():
                    self._state.on_checked(NodeCheck(passed=True))
                case agent.Forget() | agent.Inspect() | ChangeBatch() | LimitPower() | DivideDevice():
                    pass

    def _spawn(self, order: StartReplica) -> None:
        first = self.engine.work.step(order.key.job_id)
        behaviour, now_ms = self.engine.behaviour(order), self.engine.agenda.now_ms
        process = SimulatedProcess(order.key, behaviour, order.devices, 1000, now_ms, first)
        self.processes[order.key] = process
        self._pids += 1
        self._state.on_started(order.key, self._pids)
        if first:
            self._state.on_progress(ProgressSeen(order.key, "resumed", first))
        self._plan_moment(process)

    def _plan_moment(self, process: SimulatedProcess) -> None:
        """Plan the program's next save or its end."""
        done, behaviour = steps_done(process, self.engine.agenda), process.behaviour
        following = behaviour.steps
        if behaviour.saves_every:
            following = min(following, (done // behaviour.saves_every + 1) * behaviour.saves_every)
        self.engine.agenda.after(max(1, (following - done) * STEP_MS), partial(self._moment, process))

    def _moment(self, process: SimulatedProcess) -> None:
        if self.processes.get(process.key) is not process or process.suspended_ms:
            return  # a frozen program gets its next moment when it is thawed
        done, behaviour = steps_done(process, self.engine.agenda), process.behaviour
        if done >= behaviour.steps:
            self._end(process.key, ExitInfo(behaviour.exit_code, done=behaviour.exit_code == 0))
        else:
            if behaviour.saves_every and done % behaviour.saves_every == 0:
                self._save(process.key, "interval")
            self._plan_moment(process)
        self._tell()

    def _save(self, key: ReplicaKey, why: str) -> None:
        process = self.processes.get(key)
        if process is None or not process.behaviour.saves_every or key.rank:
            return
        done = steps_done(process, self.engine.agenda)
        if self.engine.work.save(key, done):
            self._state.on_progress(ProgressSeen(key, "checkpoint", done, why=why))

    def _stop(self, key: ReplicaKey) -> None:
        process = self.processes.get(key)
        if process is not None:
            process.stop_sent = True
            self._thaw(key)
            if process.behaviour.heeds_stop:
                self.engine.agenda.after(LEAVE_MS, partial(self._leave, process))

    def _leave(self, process: SimulatedProcess) -> None:
        if self.processes.get(process.key) is process:
            self._save(process.key, "preemption")
            self._end(process.key, ExitInfo(signal=15))
            self._tell()

    def _freeze(self, key: ReplicaKey) -> None:
        if key in self.processes:
            self.processes[key].suspended_ms = max(1, self.engine.agenda.now_ms)  # 0: it runs
            self._state.on_frozen(key)

    def _thaw(self, key: ReplicaKey) -> None:
        process = self.processes.get(key)
        if process is not None and process.suspended_ms:
            process.begun_ms += self.engine.agenda.now_ms - process.suspended_ms
            process.suspended_ms = 0
            self._plan_moment(process)

    def _end(self, key: ReplicaKey, info: ExitInfo) -> None:
        self.processes.pop(key, None)
        self._state.on_gone(key, info)
