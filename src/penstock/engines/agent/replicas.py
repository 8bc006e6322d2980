"""The processes of one node: starting, watching, stopping, and proving that nothing is left."""

import contextlib
import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.measured import Measured
from penstock.core.model.nodes import DeviceFault
from penstock.core.model.resources import Device, Resources
from penstock.devices.installed import closed_files
from penstock.engines.agent.freezer import Freezer
from penstock.engines.agent.journal import ExitBook, Journal, JournalLine, JournalReplica, announce_start
from penstock.engines.agent.parts import NodeParts
from penstock.engines.agent.state_machine import LEASE_OVER
from penstock.engines.processes import procfs
from penstock.engines.processes.accounts import cannot_be
from penstock.engines.processes.boxes import Containment, Running, Usage, kill_inside
from penstock.engines.processes.cpu_sets import CpuSets
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.reportfiles import thin_report
from penstock.engines.processes.spawn import NEVER_RAN_CODE, memory_limit_bytes, port_is_free, spawn, why_unknown

if TYPE_CHECKING:  # loaded where a node runs MPS
    from penstock.engines.processes.mps import MpsDaemons

log = logging.getLogger(__name__)

OnGone = Callable[[ReplicaKey, ExitInfo], None]
SLICE_S = 0.1
"""Of each turn of the agent's loop that goes to starts, to ends, and to exits: what is left comes with the next turn.
How many replicas start or end at once is for users to choose, and the lease of all is renewed between two turns."""
ORPHAN_WAIT_MS = 2_000
"""How long a new worker waits for the guardian's note about a process that ended between two workers."""


class Replicas:
    """Starts and ends processes; calls `on_gone` once, when no process of a replica is left."""

    def __init__(
        self,
        node: str,
        data: DataFolder,
        containment: Containment,
        devices: Mapping[int, Device],
        journal: Journal,
        exits: ExitBook,
        on_gone: OnGone,
        cpu_sets: CpuSets | None = None,
        parts: NodeParts | None = None,
    ) -> None:
        self._node, self.data, self._containment, self._devices = node, data, containment, devices
        self._journal, self._exits, self._on_gone, self._parts = journal, exits, on_gone, parts
        self.running: dict[ReplicaKey, Running] = {}
        self.held_last: tuple[int, ...] = ()
        """The devices of the replica that `on_gone` is called for."""
        self.measured: Callable[[ReplicaKey], Measured | None] = lambda _: None
        """Returns what was measured of a replica that ends."""
        self.lease_is_over: Callable[[], bool] = lambda: False
        self.sent_later: Callable[[ReplicaKey], bool] = lambda _: False  # then its report stays as it is
        self._by_pid: dict[int, ReplicaKey] = {}
        self._due: dict[ReplicaKey, Callable[[], object]] = {}
        """Replicas that are started with the next turns, and how."""
        self._killing: dict[ReplicaKey, None] = {}
        """In the order in which they are looked at."""
        self._leaving: set[ReplicaKey] = set()
        """Their leader died of the stop signal; its descendants may still save, until killed."""
        self.freezer = Freezer(self.running, self._killing, containment.kind)
        self._cpu_sets = self._kept(cpu_sets) if cpu_sets is not None else None
        log.info("processes of %s are held by %s", node, containment.kind)
        self._mps: MpsDaemons | None = self._daemons() if data.mps(node).is_dir() else None
        self._waiting: dict[ReplicaKey, StartReplica] = {}  # until the MPS daemon of their device runs
        self._begun: list[tuple[ReplicaKey, int]] = []

    def _daemons(self) -> "MpsDaemons":
        from penstock.engines.processes.mps import MpsDaemons

        return MpsDaemons(self.data.mps(self._node), self._devices, now_ms=0)

    def _kept(self, cpu_sets: CpuSets) -> CpuSets | None:
        """Return the same, with what replicas of a former worker have; None where boxes cannot be kept to CPUs."""
        for known in self._journal.known.values():
            if known.exit is None:
                cpu_sets.keep(self._box_name(known.key), known.cpus)
        return cpu_sets if self._containment.share_cpus(cpu_sets.shared, cpu_sets.names) else None

    def queue(self, order: StartReplica) -> None:
        """Start a replica with one of the next calls of `poll`, in the order of the calls."""
        self._due[order.key] = lambda: self.start(order)

    def _start_due(self) -> None:
        """Start queued replicas for as long as a slice lasts, one at least."""
        until_s = time.monotonic() + SLICE_S
        while self._due:
            key = next(iter(self._due))
            self._due.pop(key)()
            if time.monotonic() > until_s:
                return

    def start(self, order: StartReplica) -> int | None:
        """Start a replica and return its process number, or report it gone, or let it wait for the MPS daemon of its
        device, or for the part of it (`newly_started`), and return None."""
        key = order.key
        refused = order.refused or (cannot_be(order.account) if order.account else "")
        if refused:  # a fault of the job's, that no other node would mend
            self._finish(key, ExitInfo(code=NEVER_RAN_CODE, note=refused))
            return None
        if self._parts is not None and self._parts.prepares(order):
            return None
        if key.rank == 0 and order.world_size > 1 and not port_is_free(order.master_address, order.master_port):
            self._never(key, f"rendezvous port {order.master_port} of {self._node} is in use")
            return None
        if order.mps and order.devices:
            self._mps = self._mps or self._daemons()
            if self._mps.hold(key, order.devices[0]):
                self._waiting[key] = order
                return None
        if self._parts is not None and self._parts.takes(order):
            return None
        return self._begin(order)

    def newly_started(self) -> list[tuple[ReplicaKey, int]]:
        """Return the replicas that were started since the last call, with their process numbers."""
        begun, self._begun = self._begun, []
        return begun

    def device_faults(self) -> tuple[DeviceFault, ...]:
        """Return the devices whose MPS daemon failed."""
        return self._mps.faults() if self._mps is not None else ()

    def end(self) -> None:
        """End what no replica needs any more."""
        if self._mps is not None:
            self._mps.end()

    def _turn_mps(self, mps: "MpsDaemons", now_ms: int) -> None:
        mps.turn(now_ms)
        for key, order in list(self._waiting.items()):
            index, ask = order.devices[0], order.ask.devices
            if problem := mps.problem(index):
                del self._waiting[key]
                self._never(key, problem)
            elif mps.ready(index) and ask is not None:
                del self._waiting[key]
                self._begin(order, mps.variables(index, ask), mps=index)

    def _begin(
        self,
        order: StartReplica,
        variables: Mapping[str, str] | None = None,
        *,
        mps: int | None = None,
        shown: tuple[Device, ...] = (),
    ) -> int | None:
        key, limits, box = order.key, order.ask.host, None
        account, devices = order.account, tuple(self._devices[i] for i in order.devices)
        cpus = self._own_cpus(key, limits, devices)
        share_milli = order.ask.device_milli // len(order.devices) if order.devices else 0
        limit_bytes = memory_limit_bytes(order.ask.devices, devices)
        line = JournalLine(key, "spawning", checkpoint=order.checkpoint, limits=limits, account=account, cpus=cpus)
        line = replace(line, devices=order.devices, share_milli=share_milli, memory_limit_bytes=limit_bytes, mps=mps)
        try:
            self._journal.announce(line)
            closed = closed_files(devices, self._devices.values())
            workload = order.workload_class
            box = self._containment.box(self._box_name(key), limits, closed=closed, workload_class=workload, cpus=cpus)
            gate = spawn(order, shown or devices, self.data, box.gates, box.mark, variables)
            ticks = announce_start(self._journal, key, box, gate)
        except (OSError, MemoryError) as error:
            if box is not None:
                box.remove()
            self._never(key, f"could not be started on {self._node}: {error}")
            return None
        running = Running(key, box, gate.pid, ticks, order.checkpoint, ours=True)
        running.devices, running.share_milli, running.memory_limit_bytes = order.devices, share_milli, limit_bytes
        self._add(running)
        gate.open()
        self._begun.append((key, gate.pid))
        return gate.pid

    def _own_cpus(self, key: ReplicaKey, limits: Resources, devices: Sequence[Device]) -> tuple[int, ...]:
        """Take processors next to its devices from those that all share; () where a replica shares them too."""
        if self._cpu_sets is None or not devices:
            return ()
        cpus = self._cpu_sets.take(self._box_name(key), limits.cpu_milli, [one.numa_node for one in devices])
        if cpus:
            self._containment.share_cpus(self._cpu_sets.shared, self._cpu_sets.names)
        return cpus

    def _box_name(self, key: ReplicaKey) -> str:
        return f"{self._node}.{key}"

    def _never(self, key: ReplicaKey, problem: str) -> None:
        log.warning("replica not started", extra={"key": str(key), "problem": problem})
        self._finish(key, ExitInfo(problem=problem))

    def _add(self, running: Running) -> None:
        self.running[running.key] = running
        self._by_pid[running.pid] = running.key

    def adopt(self, known: JournalReplica) -> int | None:
        """Take over a replica of a former worker; return its process number if it may still run."""
        leader = Process(known.pid, known.ticks) if known.pid else None
        box = self._containment.box(self._box_name(known.key), known.limits, leader, cpus=known.cpus)
        if known.mps is not None and self._mps is not None and known.mps in self._devices:
            self._mps.hold(known.key, known.mps)
        if not known.pid:
            running = Running(known.key, box, 0, 0, known.checkpoint, ours=False)
            running.exit = ExitInfo(problem="its agent died before it had started")
            self.running[known.key] = running
            self._killing[known.key] = None
            return None
        running = Running(known.key, box, known.pid, known.ticks, known.checkpoint, ours=False)
        running.stopping = known.stopping
        running.devices, running.share_milli = known.devices, known.share_milli
        running.memory_limit_bytes = known.memory_limit_bytes
        self._add(running)
        return known.pid

    def ask_to_stop(self, key: ReplicaKey, kill_at_ms: int, problem: str = "") -> None:
        """Send the stop signal to the program's process group; `problem` says why where the server has not asked."""
        running = self.running.get(key)
        if self._stopped_before(key) or running is None or not running.pid:
            return
        self._journal.write(JournalLine(key, "stopping", kill_at_ms=kill_at_ms, problem=problem))
        running.stopping = True
        if running.exit is None and procfs.alive(running.pid, running.ticks):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.Signals[running.checkpoint.stop_signal])
        self.freezer.thaw(key)  # after the signal: it is the first thing that the program sees

    def ask_to_save(self, key: ReplicaKey) -> None:
        """Send the program's save-and-carry-on signal, if one was declared or said, to the program alone.

        Often that is not the leader but a child of a shell; the signal kills processes that do not catch it.
        """
        running = self.running.get(key)
        name = (running.checkpoint.request_signal or running.save_signal) if running is not None else ""
        if running is None or not name or running.exit is not None:
            return
        number = signal.Signals[name]
        for pid in procfs.catchers(running.pid, running.box.pids(), number):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def on_listens(self, key: ReplicaKey, name: str) -> None:
        """Take note of the signal that makes the program save and carry on; '' for none."""
        running = self.running.get(key)
        if running is not None:
            running.save_signal = name

    def processes(self, key: ReplicaKey) -> list[int]:
        """Return the living processes of a replica, none when it is not known."""
        running = self.running.get(key)
        return running.box.pids() if running is not None else []

    def note(self, key: ReplicaKey) -> str:
        """Return what the kernel has done to a replica's processes, such as to kill some out of memory; or ''."""
        running = self.running.get(key)
        return running.box.note() if running is not None else ""

    def usage(self) -> dict[ReplicaKey, Usage]:
        """Return what each replica has used of the node so far."""
        return {key: running.box.usage() for key, running in self.running.items()}

    def kill(self, key: ReplicaKey) -> None:
        """Kill everything of a replica; goes on in `poll` until nothing is left."""
        running = self.running.get(key)
        if not self._stopped_before(key) and running is not None:
            self._killing[key] = None
            kill_inside(running.box)

    def stop_for(self, key: ReplicaKey, why: str) -> None:
        """Send the stop signal to a program for what it did: the note of its exit."""
        running = self.running.get(key)
        if running is not None and running.exit is None:
            running.why_stopped = why
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.Signals[running.checkpoint.stop_signal])

    def _stopped_before(self, key: ReplicaKey) -> bool:
        """Report a replica gone that still waits, or let `poll` do it; return whether it waited."""
        parts = self._parts
        if parts is not None and parts.cancel_needs(key):
            return True
        if (
            self._due.pop(key, None) is None
            and self._waiting.pop(key, None) is None
            and (parts is None or not parts.cancel(key))
        ):
            return False
        self._finish(key, ExitInfo(problem="stopped before it started"))
        return True

    def reap(self) -> bool:
        """Take the exits of our own programs: noted first, reaped after, so that a crash between loses none.

        Only of these: the inspector's tools are our children too, and their exits are not ours to take.
        Returns: whether some may be left, which a slice was too short for.
        """
        until_s = time.monotonic() + SLICE_S
        for pid, key in list(self._by_pid.items()):
            if time.monotonic() > until_s:
                return True
            running = self.running[key]
            if not running.ours or running.exit is not None:
                continue
            try:
                info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                continue
            if info is None:
                continue
            code, number = (info.si_status, None) if info.si_code == os.CLD_EXITED else (None, info.si_status)
            self._leader_ended(running, code, number)
            os.waitpid(pid, 0)
        return False

    def poll(self, now_ms: int) -> None:
        """Start what is due; check adopted processes, boxes being emptied and MPS daemons: they send no signal."""
        if self._mps is not None:
            self._turn_mps(self._mps, now_ms)
        for done in self._parts.prepared() if self._parts is not None else ():
            if done.exit_code is not None:  # a fault of the job's
                self._finish(done.order.key, ExitInfo(code=done.exit_code, note=done.problem))
            elif done.problem:
                what = "" if done.needs else f"no part of a device on {self._node}: "
                self._never(done.order.key, what + done.problem)
            elif done.needs:
                self.queue(done.order)
            else:
                self._due[done.order.key] = functools.partial(self._begin, done.order, shown=done.shown)
        adopted = [r for r in self.running.values() if not r.ours and r.pid and r.exit is None]
        if adopted:
            self._exits.refresh()
        for running in adopted:
            self._poll_adopted(running, now_ms)
        self._start_due()
        until_s = time.monotonic() + SLICE_S
        for key in list(self._killing):
            running = self.running[key]
            if kill_inside(running.box) and running.exit is not None:
                self._finish(key, running.exit)
            else:
                self._killing[key] = self._killing.pop(key)  # the others first
            if time.monotonic() > until_s:
                break
        for key in list(self._leaving - self._killing.keys()):
            running = self.running[key]
            if not running.box.pids() and running.box.empty() and running.exit is not None:
                self._finish(key, running.exit)

    @property
    def needs_polling(self) -> bool:
        return bool(self._due or self._killing or self._leaving or self.freezer.busy) or any(
            not r.ours for r in self.running.values()
        )

    def _poll_adopted(self, running: Running, now_ms: int) -> None:
        noted = self._exits.exits.pop((running.pid, running.ticks), None)
        if noted is not None:
            self._leader_ended(running, *noted)
        elif procfs.start_ticks(running.pid) != running.ticks:
            if running.missing_since_ms is None:
                running.missing_since_ms = now_ms
            elif now_ms - running.missing_since_ms > ORPHAN_WAIT_MS:
                running.exit = ExitInfo(problem="ended while no agent watched: its exit status is not known")
                self.kill(running.key)

    def _leader_ended(self, running: Running, code: int | None, number: int | None) -> None:
        """Note the program's exit; its descendants are killed before the replica counts as gone."""
        key, info = running.key, ExitInfo(code=code, signal=number)
        if code == NEVER_RAN_CODE and (why := why_unknown(self.data, key)):
            info = ExitInfo(problem=why)
        elif number == signal.SIGKILL and self._ended_by_lease(running):
            info = ExitInfo(signal=number, problem=LEASE_OVER)
        elif note := running.why_stopped or running.box.note():
            # Of any process inside: a shell outlives the program that was killed.
            info = ExitInfo(code=code, signal=number, note=note, observed=True)
        elif number == signal.SIGKILL and key not in self._killing and (why := why_unknown(self.data, key, self._node)):
            info = ExitInfo(problem=why)
        running.exit = info
        if running.stopping and number == signal.Signals[running.checkpoint.stop_signal] and running.box.pids():
            # A shell around the program: it does not catch the signal, the program does, and is saving now.
            if running.ours:
                self._exits.add(running.pid, running.ticks, code, number)
            self._leaving.add(running.key)
            self._ask_others(running)
        else:
            self._killing[running.key] = None  # first: `poll` retries it, whatever fails here
            if kill_inside(running.box):
                self._finish(running.key, info)
            elif running.ours:  # it is reaped before the box is empty: keep its exit for the next worker
                self._exits.add(running.pid, running.ticks, code, number)

    def _ask_others(self, running: Running) -> None:
        """Send the stop signal to processes of a replica outside the group that got it."""
        for pid in running.box.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != running.pid:
                    os.kill(pid, signal.Signals[running.checkpoint.stop_signal])

    def _ended_by_lease(self, running: Running) -> bool:
        self._exits.refresh()  # the guardian notes a kill after it: the lease itself says so before
        return self.lease_is_over() or (running.pid, running.ticks) in self._exits.ended_by_lease

    def _finish(self, key: ReplicaKey, info: ExitInfo) -> None:
        """Report the replica gone. Its box goes first: no later worker looks once the journal has the exit."""
        running = self.running.pop(key, None)
        self.held_last = running.devices if running is not None else ()
        self._killing.pop(key, None)
        self._leaving.discard(key)
        if running is not None:
            self._by_pid.pop(running.pid, None)
            with contextlib.suppress(OSError, MemoryError):  # whatever is refused: its exit is reported
                info = msgspec.structs.replace(info, measured=self._used(running))
                running.box.remove()
        failed = self._mps.release(key) if self._mps is not None else ""
        if failed and not info.problem and (info.code or info.signal is not None):
            info = replace(info, problem=failed)
        if self._cpu_sets is not None and self._cpu_sets.release(self._box_name(key)):
            self._containment.share_cpus(self._cpu_sets.shared, self._cpu_sets.names)
        if self._parts is not None:
            self._parts.left(key)
        self._journal.write(JournalLine(key, "exited", exit=info))
        self._on_gone(key, info)

    def _used(self, running: Running) -> Measured | None:
        """Return what a replica used in all, before its box goes; None where nothing was measured."""
        found, cpu_us = self.measured(running.key), running.box.usage().cpu_us
        return msgspec.structs.replace(found or Measured(), cpu_ms=cpu_us // 1000) if cpu_us else found

    def forget(self, key: ReplicaKey) -> None:
        """Drop what is needed no longer of a replica whose exit is in the server's log; its output and report stay."""
        self._journal.write(JournalLine(key, "forgotten"))
        self.data.never_ran(key).unlink(missing_ok=True)
        if not self.sent_later(key):
            with contextlib.suppress(OSError):  # a long report stays as it is
                thin_report(self.data.report(key))
