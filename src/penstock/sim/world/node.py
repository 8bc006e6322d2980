"""A simulated node: the real agent logic over simulated processes, with a guardian, crashes and pauses."""

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from penstock.core.messages.orders import ChangeBatch, CheckNode, DivideDevice, LimitPower
from penstock.core.messages.reports import NodeCheck, ProgressSeen, ReplicaKey
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Incarnation
from penstock.core.model.jobs import ExitInfo
from penstock.engines.agent import protocol
from penstock.engines.agent import state_machine as br
from penstock.sim.world.claims import Claims
from penstock.sim.world.clockwork import Agenda, NodeClock
from penstock.sim.world.ground import Ground
from penstock.sim.world.hardware import DIED_CODE, Hardware
from penstock.sim.world.mixed import Mixed
from penstock.sim.world.programs import Behaviour, SharedWork, SimulatedProcess, steps_done, time_of
from penstock.sim.world.telling import Telling
from penstock.sim.world.training import Trainers

TURN_MS = 400
GUARDIAN_SLACK_MS = 300


class Parts(NamedTuple):
    """What makes programs and machines of a world special; None: nothing of the kind is there."""

    claims: Claims | None
    telling: Telling | None
    hardware: Hardware | None
    trainers: Trainers | None
    mixed: Mixed | None


class SimNode:
    """One machine. `up`: the machine runs; `agent_state`: its agent runs; `paused`: the agent stands still."""

    def __init__(self, world: Ground, spec: NodeSpec, rng: random.Random, parts: Parts) -> None:
        self._world, self.spec, self._rng, self._parts = world, spec, rng, parts
        self.agenda: Agenda = world.agenda
        self._work: SharedWork = world.work
        self._clock = NodeClock(self.agenda, rng.randint(-10_000, 10_000))
        self.up = True
        self.paused = False
        self._frozen = False
        """The whole machine stands still."""
        self.processes: dict[ReplicaKey, SimulatedProcess] = {}
        self._ended_unseen: dict[ReplicaKey, ExitInfo] = {}
        self._life = 0
        self._agent_life = 0
        self._kept: list[br.ReplicaEntry] = []
        self._lease_until_ms: int | None = None
        self._queued: list[Callable[[], None]] = []
        self.agent_state: br.AgentState | None = None
        self.connected = False
        self.spawn_fail_rate = 0.0
        self.late_exit_rate = 0.0
        self.disk_full = False
        self._freezes = not spec.name.endswith(("1", "3"))
        """Some nodes have no control groups."""
        self._boot()

    @property
    def name(self) -> str:
        return self.spec.name

    # Life and death.

    def _boot(self) -> None:
        self._life += 1
        self.up = True
        self._kept, self._lease_until_ms = [], None
        self._start_agent()
        self._guard(self._life)

    def _start_agent(self) -> None:
        if not self.up or self.agent_state is not None:
            return
        if self._frozen:
            self.agenda.after(TURN_MS, self._start_agent)
            return
        self._agent_life += 1
        entries = [msgspec.structs.replace(e) for e in self._kept]
        self.agent_state = br.AgentState(
            self.spec.name,
            Incarnation(f"{self.name}-{self._life}"),
            entries,
            lease_until_ms=self._lease_until_ms,
            first_report=self._clock.now_ms() * 1000,
        )
        self._read_devices()
        for key, info in list(self._ended_unseen.items()):
            del self._ended_unseen[key]
            self.agent_state.on_gone(key, info)
        for entry in list(self.agent_state.living()):
            if entry.key not in self.processes:
                self.agent_state.on_gone(entry.key, ExitInfo(problem="its agent died before it had started"))
        self.connected = False
        self._turn(self._agent_life)

    def crash_agent(self, back_after_ms: int) -> None:
        """The worker dies at once; processes go on; the journal has its last entries."""
        if self.agent_state is None or self._frozen:
            return
        self._world.probe("agent_crashed_with_processes" if self.processes else "agent_crashed_idle")
        self._journal()
        self.agent_state = None
        self.paused = False
        self._queued.clear()
        self.agenda.after(back_after_ms, self._start_agent)

    def _can_note(self) -> bool:
        """Return whether a start can be noted before it is made."""
        return not self.disk_full

    def _journal(self) -> None:
        """The real agent writes each step before it takes effect: the entries are always on file. What a full disk does
        not take waits in the worker's memory; the lease's end has its place.
        """
        assert self.agent_state is not None
        if self.disk_full:
            self._lease_until_ms = self.agent_state.lease_until_ms
            return
        self._kept = [msgspec.structs.replace(e) for e in self.agent_state.entries.values()]
        self._lease_until_ms = self.agent_state.lease_until_ms

    def crash(self, back_after_ms: int) -> None:
        """The machine dies with everything on it, and comes back empty."""
        if not self.up:
            return
        self._world.probe("node_crashed_with_processes" if self.processes else "node_crashed_idle")
        for process in self.processes.values():
            if process.frozen_ms is None:
                self._world.truth.process_ended(self, process)
        self.processes.clear()
        self.up, self.agent_state, self.paused, self._frozen = False, None, False, False
        self._ended_unseen.clear()
        self._queued.clear()
        self.agenda.after(back_after_ms, self._boot)

    def pause_agent(self, for_ms: int, *, whole_machine: bool) -> None:
        """The worker stands still (stopped, swapped out); the guardian does not, unless the machine does."""
        if self.agent_state is None or self.paused:
            return
        self.paused = True
        machine_life, life = self._life, self._agent_life
        if whole_machine:
            self._frozen = True
            self._world.probe("machine_paused")
            for process in self.processes.values():
                process.frozen_ms = self.agenda.now_ms
                self._world.truth.process_ended(self, process)
        self.agenda.after(for_ms, lambda: self._resume(machine_life, life))

    def _resume(self, machine_life: int, life: int) -> None:
        """Go on. Processes without a valid lease are killed before they do anything (really: within a moment)."""
        if machine_life != self._life or not self.up:
            return
        self._frozen = False
        for key, process in list(self.processes.items()):
            if process.frozen_ms is None:
                continue
            if not process.suspended_ms:
                process.begun_ms += self.agenda.now_ms - process.frozen_ms
            process.frozen_ms = None
            if self._lease_is_over():
                self._world.probe("guardian_ended_a_process")
                del self.processes[key]
                self._ended_unseen[key] = ExitInfo(signal=9, problem=br.LEASE_OVER)
                self._notice(self._life, key)
            else:
                self._world.truth.process_began(self, process)
        if life != self._agent_life or self.agent_state is None:
            return
        self.paused = False
        self._guard_now()
        queued, self._queued = self._queued, []
        for deliver in queued:
            deliver()

    def _guard(self, life: int) -> None:
        """The guardian's watch: it kills processes without a valid lease when the worker cannot."""
        if life != self._life or not self.up:
            return
        self._guard_now()
        self.agenda.after(TURN_MS, lambda: self._guard(life))

    def _guard_now(self) -> None:
        if not self._lease_is_over():
            return
        for key, process in list(self.processes.items()):
            if process.frozen_ms is None:
                self._world.probe("guardian_ended_a_process")
                self._end(key, ExitInfo(signal=9, problem=br.LEASE_OVER))

    def _lease_is_over(self) -> bool:
        until_ms = self.agent_state.lease_until_ms if self.agent_state is not None else self._lease_until_ms
        return until_ms is not None and self._clock.now_ms() >= until_ms + GUARDIAN_SLACK_MS

    # The agent's loop.

    def _turn(self, life: int) -> None:
        if life != self._agent_life or self.agent_state is None:
            return
        if not self.paused:
            self._read_devices()
            self.agent_state.disk_problem = "its disk is full" if self.disk_full else ""
            self._act(self.agent_state.on_time(self._clock.now_ms()))
            self._tell()
        self.agenda.after(TURN_MS, lambda: self._turn(life))

    def _read_devices(self) -> None:
        hardware = self._parts.hardware
        if hardware is None or self.agent_state is None or self.paused:
            return
        self.agent_state.on_devices(hardware.news(self.name))
        if (figures := hardware.figures(self.name)) is not None:
            self.agent_state.on_figures(figures)

    def device_failed(self, index: int, *, ends: bool) -> None:
        """A device fails, and may end the programs that use it."""
        self._read_devices()
        for key, process in list(self.processes.items()) if ends else ():
            if index in process.devices and process.frozen_ms is None:
                self._world.probe("device_ended_a_program")
                self._end(key, ExitInfo(code=DIED_CODE))

    def _tell(self) -> None:
        agent_state = self.agent_state
        assert agent_state is not None
        self._journal()
        if agent_state.must_say_hello or not self.connected:
            agent_state.must_say_hello = False
            self._world.to_server(self, protocol.AgentHello(1, self.spec, agent_state.incarnation))
            return
        report = agent_state.next_report(self._clock.now_ms())
        if report is not None:
            self._world.to_server(self, report)

    def disconnect(self) -> None:
        """The connection broke, as agents notice sooner or later."""
        self.connected = False

    def receive(self, message: protocol.ToAgent) -> None:
        """Take a message from a server, now or when no longer paused."""
        if self.agent_state is None:
            return
        life = self._agent_life
        if self.paused:
            self._queued.append(lambda: self._receive(life, message))
        else:
            self._receive(life, message)

    def _receive(self, life: int, message: protocol.ToAgent) -> None:
        agent_state = self.agent_state
        if agent_state is None or life != self._agent_life:
            return
        now_ms = self._clock.now_ms()
        match message:
            case protocol.ServerWelcome():
                self.connected = True
                agent_state.on_welcome(message, now_ms)
            case protocol.ServerOrders():
                self._act(agent_state.on_orders(message, now_ms))
            case protocol.ServerTaken():
                agent_state.on_taken(message, now_ms)
            case protocol.ServerRefused():
                self.connected = False
        self._tell()

    def _act(self, actions: list[br.Action]) -> None:
        agent_state = self.agent_state
        assert agent_state is not None
        for action in actions:
            match action:
                case br.Spawn():
                    self._spawn(action)
                case br.AskToStop():
                    self._stop(action.key)
                case br.Freeze():
                    self._freeze(action.key)
                case br.Thaw():
                    self._thaw(action.key)
                case br.KillAll():
                    if action.key in self.processes:
                        self._end(action.key, ExitInfo(signal=9))
                    elif action.key in agent_state.entries:
                        agent_state.on_gone(action.key, ExitInfo(problem="it was never there"))
                case CheckNode():
                    agent_state.on_checked(
                        NodeCheck(True) if self._parts.claims is None else self._parts.claims.check()
                    )
                case ChangeBatch():
                    if self._parts.trainers is not None and action.key in self.processes:
                        self._parts.trainers.takes(action.key, action.batch)
                case br.Forget() | br.AskToSave() | br.Inspect() | LimitPower() | DivideDevice():
                    pass
        self._journal()

    # Processes.

    def _spawn(self, action: br.Spawn) -> None:
        assert self.agent_state is not None
        order = action.order
        if not self._can_note():
            self._world.probe("start_not_noted")
            self.agent_state.on_gone(order.key, ExitInfo(problem="could not be started: its disk is full"))
            return
        if self._rng.random() < self.spawn_fail_rate:
            self._world.probe("spawn_failed")
            self.agent_state.on_gone(order.key, ExitInfo(problem="the simulated node could not start it"))
            return
        first = self._work.step(order.key.job_id)
        wanted = order.ask.devices
        share = 1000 if wanted is None or wanted.whole else wanted.milli
        process = SimulatedProcess(
            order.key, Behaviour.of(order.command), order.devices, share, self.agenda.now_ms, first
        )
        process.cpu_milli = order.ask.host.cpu_milli
        self.processes[order.key] = process
        self._world.truth.process_began(self, process)
        self.agent_state.on_started(order.key, 1)
        if first:
            self.agent_state.on_progress(ProgressSeen(order.key, "resumed", first))
        self._live(process)
        special = (self._parts.trainers, self._parts.mixed)
        if any(part is not None and part.begins(self, process, order) for part in special):
            return
        if self._parts.telling is not None:
            self._parts.telling.begins(self, process)

    def _live(self, process: SimulatedProcess) -> None:
        """Plan the process's next moment: a checkpoint or its end."""
        behaviour = process.behaviour
        done = steps_done(process, self.agenda)
        following = behaviour.steps
        if behaviour.saves_every:
            following = min(following, (done // behaviour.saves_every + 1) * behaviour.saves_every)
        process.looks = look = process.looks + 1
        self.agenda.after(max(1, time_of(process, following - done)), lambda: self._moment(process, look))

    def go_at(self, process: SimulatedProcess, speed: int) -> None:
        """Let a process go on at another speed, in millionths of a step in `STEP_MS`."""
        if speed != process.speed:
            process.first_step = steps_done(process, self.agenda)
            process.begun_ms = process.frozen_ms or process.suspended_ms or self.agenda.now_ms
            process.speed = speed
            self._live(process)

    def _moment(self, process: SimulatedProcess, look: int) -> None:
        if self.processes.get(process.key) is not process or look != process.looks:
            return
        if process.suspended_ms:
            return  # it is looked at again when it is thawed
        if process.frozen_ms is not None:
            self.agenda.after(TURN_MS, lambda: self._moment(process, look))
            return
        done = steps_done(process, self.agenda)
        if done >= process.behaviour.steps:
            code = process.behaviour.exit_code
            claims = self._parts.claims
            note = claims.note(process.key.job_id) if code and claims is not None else ""
            self._end(process.key, ExitInfo(code=code, done=code == 0, note=note))
            return
        if process.behaviour.saves_every and done % process.behaviour.saves_every == 0:
            self._save(process, "interval")
        self._live(process)

    def _save(self, process: SimulatedProcess, why: str) -> None:
        done = steps_done(process, self.agenda)
        if process.key.rank == 0 and self._work.save(process.key, done) and self.agent_state is not None:
            self.agent_state.on_progress(ProgressSeen(process.key, "checkpoint", done, why=why))

    def _freeze(self, key: ReplicaKey) -> None:
        """Freeze a process, now or soon; some nodes cannot."""
        assert self.agent_state is not None
        process = self.processes.get(key)
        if process is None:
            return
        if not self._freezes:
            self._world.probe("freeze_refused")
            self.agent_state.on_refused(key, "the simulated node cannot freeze it")
            return
        process.suspended_ms = process.suspended_ms or self.agenda.now_ms
        self.agenda.after(self._rng.randint(1, 300), lambda: self._is_frozen(process))

    def _is_frozen(self, process: SimulatedProcess) -> None:
        if self.processes.get(process.key) is not process or not process.suspended_ms:
            return
        self._world.truth.stands_still(self, process)
        if self.agent_state is not None:
            self.agent_state.on_frozen(process.key)

    def _thaw(self, key: ReplicaKey) -> None:
        process = self.processes.get(key)
        if process is None or not process.suspended_ms:
            return
        process.begun_ms += self.agenda.now_ms - process.suspended_ms
        process.suspended_ms = 0
        if not process.stop_sent and process.frozen_ms is None:
            self._world.truth.runs_on_cpus(self, process)
        self._live(process)

    def _stop(self, key: ReplicaKey) -> None:
        process = self.processes.get(key)
        if process is None:
            return
        process.stop_sent = True  # an attempt that is asked to stop is thawed to save: it gets no CPUs for that
        self._thaw(key)
        if process.behaviour.heeds_stop:
            self.agenda.after(self._rng.randint(1, 500), lambda: self._leave(process))

    def _leave(self, process: SimulatedProcess) -> None:
        if self.processes.get(process.key) is not process:
            return
        if process.frozen_ms is not None:
            self.agenda.after(TURN_MS, lambda: self._leave(process))
            return
        if process.behaviour.saves_every:
            self._save(process, "preemption")
            if process.key.rank == 0:
                self._world.truth.saved_before_leaving(process, steps_done(process, self.agenda))
        self._end(process.key, ExitInfo(code=143))

    def _end(self, key: ReplicaKey, info: ExitInfo) -> None:
        process = self.processes.pop(key)
        self._world.truth.process_ended(self, process)
        life = self._life
        if self._rng.random() < self.late_exit_rate:
            self._world.probe("exit_reported_late")
            self._ended_unseen[key] = info
            self.agenda.after(self._rng.randint(50, 3_000), lambda: self._notice(life, key))
        else:
            self._ended_unseen[key] = info
            self._notice(life, key)

    def _notice(self, life: int, key: ReplicaKey) -> None:
        """The worker sees an exit; while there is no worker, the guardian's book keeps it."""
        if life != self._life or self.agent_state is None or key not in self._ended_unseen:
            return
        if self.paused:
            self._queued.append(lambda: self._notice(life, key))
            return
        self._read_devices()  # a real agent reads them before it reports how a program ended
        self.agent_state.on_gone(key, self._ended_unseen.pop(key))
        self._tell()
