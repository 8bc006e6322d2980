"""The devices of a node as its agent sees them: a watch over them, and what of it is reported.

The watch runs where the node has real devices, or where its folder has a `devices` folder of simulated ones
(`penstock.devices.simulated_files`). Its modules are loaded only then.
"""

import contextlib
import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.core.messages.reports import HostFigures, NodeFigures, ReplicaKey, ReplicaUse
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.measured import Measured
from penstock.core.model.nodes import NodeSpec, OthersLoad
from penstock.engines.agent.memory import MemoryWatch
from penstock.engines.agent.replicas import Replicas
from penstock.engines.agent.state_machine import DeviceNews
from penstock.engines.processes import procfs
from penstock.privatefiles import write_whole

if TYPE_CHECKING:
    from penstock.devices.meter import Held, Meter
    from penstock.devices.power_keeper import PowerKeeper
    from penstock.devices.samples import DeviceSample
    from penstock.devices.watch import DeviceWatch
    from penstock.engines.agent.watchdog import Watchdog

FOLDER_CHECK_MS = 1_000
FIGURES_EVERY_MS = 5_000
HOST_EVERY_MS = 20_000
READ_BEFORE_EXIT = 2
"""Readings that show a fault for sure."""
EXIT_HELD_MS = 3_000
USES_MAX = 256
"""Replicas whose use is reported at once."""
MEASURED_EVERY_MS = 30_000
"""A worker that goes on knows what was measured up to then; the rest counts as not measured."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[ReplicaKey, Measured]]).decode


class NodeDevices:
    """Watches the devices of a node, where there is something to watch.

    Args:
        folder: of the node.
        selector: of the agent's loop: it waits for the watch, too.
    """

    def __init__(self, spec: NodeSpec, folder: Path, replicas: Replicas, selector: selectors.BaseSelector) -> None:
        self._spec, self._replicas, self._selector = spec, replicas, selector
        self._simulated = folder / "devices"
        self._folder = folder
        self._watch: DeviceWatch | None = None
        self._power: PowerKeeper | None = None
        self._check_at_ms = self._figures_at_ms = 0
        self._exits: dict[ReplicaKey, tuple[ExitInfo, int, int]] = {}
        """Kept back: until that many samples have been taken, or that time (ms)."""
        self._notes: tuple[str, ...] = ()
        self._pids: dict[int, ReplicaKey] | None = None
        self._memory = MemoryWatch(replicas)
        self._measured_file = folder / "measured"
        self._known = self._former()
        self._meter: Meter | None = None
        self._watchdog: Watchdog | None = None
        self._measured_at_ms = 0
        self._cpu_us: dict[ReplicaKey, int] = {}
        """Processor time of each replica as of the last figures."""
        self._cpu_at_ms = 0
        self._host: tuple[int, procfs.MachineCounters] | None = None
        """When the counters of the machine were read last (ms), and what they were."""

    def turn(self, now_ms: int, *, connected: bool) -> DeviceNews | None:
        """Take new readings, without waiting; return what follows from them, None before the first.

        Args:
            connected: whether a server hears what is reported.
        """
        self._memory.turn(now_ms)
        if self._watch is None and (now_ms < self._check_at_ms or not self._begin(now_ms)):
            return None
        assert self._watch is not None
        self._pids = None
        if self._watch.turn(now_ms, self._opened, self._closed, self._measure) and now_ms >= self._measured_at_ms:
            self._measured_at_ms = now_ms + MEASURED_EVERY_MS
            self._keep_measured()
        if self._watchdog is not None:
            self._watchdog.turn(now_ms)
        if self._power is not None:
            self._power.turn(now_ms)
        failed = self._replicas.device_faults()
        if not self._watch.samples:
            return DeviceNews(failed, OthersLoad()) if failed else None
        condition = self._watch.condition
        if not connected:
            condition.keep_events(now_ms)
        users = condition.users()
        taken = tuple(sorted({user.index for user in users}))
        known = (*condition.faults(now_ms), *failed)
        faults = tuple(sorted(known, key=lambda fault: (fault.index, fault.code)))
        return DeviceNews(faults, OthersLoad(devices=taken, users=users))

    def hold(self, key: ReplicaKey, info: ExitInfo, now_ms: int) -> None:
        """Keep the exit of a program that failed on its devices until they have been read: they may be the cause."""
        samples = self._watch.samples + READ_BEFORE_EXIT if self._watch is not None and self._watch.samples else 0
        self._exits[key] = (info, samples, now_ms + EXIT_HELD_MS)

    def released(self, now_ms: int, *, ending: bool) -> list[tuple[ReplicaKey, ExitInfo]]:
        """Return the kept exits that wait for no reading any more; all of them when the agent ends."""
        samples = self._watch.samples if self._watch is not None else 0
        due = [
            key
            for key, (_, wanted, until_ms) in self._exits.items()
            if ending or samples >= wanted or now_ms >= until_ms
        ]
        return [(key, self._exits.pop(key)[0]) for key in due]

    def figures(self, now_ms: int) -> NodeFigures | None:
        """Return figures when they are due: now and then, and when a provider falls silent or answers again."""
        condition = self._watch.condition if self._watch is not None else None
        notes = condition.notes() if condition is not None else ()
        notes += self._power.notes if self._power is not None else ()
        if notes == self._notes and now_ms < self._figures_at_ms:
            return None
        changed, self._notes = notes != self._notes, notes
        self._figures_at_ms = now_ms + FIGURES_EVERY_MS
        uses = tuple(self._uses(now_ms))
        devices = condition.figures() if condition is not None else ()
        host = self._host_figures(now_ms)
        new = condition.new() if condition is not None else 0
        return NodeFigures(devices, uses, notes, host, new) if devices or uses or changed or host else None

    def _host_figures(self, now_ms: int) -> HostFigures | None:
        """Return how busy the machine has been; of a node that has no machine of its own nothing."""
        if self._spec.virtual or (self._host is not None and now_ms - self._host[0] < HOST_EVERY_MS):
            return None
        before, now = self._host, procfs.machine_counters(os.sched_getaffinity(0))
        self._host = (now_ms, now)
        if before is None or now_ms <= before[0]:
            return None
        then, passed_ms = before[1], now_ms - before[0]
        ticks, moved = now.all_ticks - then.all_ticks, None
        if now.network_bytes is not None and then.network_bytes is not None:
            moved = max(0, now.network_bytes - then.network_bytes) * 8 * 1000 // passed_ms
        busy = min(1000, max(0, 1000 * (now.busy_ticks - then.busy_ticks) // ticks)) if ticks > 0 else None
        return HostFigures(busy, now.memory_milli, moved)

    def _uses(self, now_ms: int) -> Iterator[ReplicaUse]:
        """Yield what replicas use of their node and their devices."""
        memory: dict[ReplicaKey, int] = {}
        touched: dict[ReplicaKey, set[int]] = {}
        watched = self._watch is not None and self._watch.samples > 0
        if self._watch is not None and watched:
            owners = self._owners()
            for index, process in self._watch.condition.processes():
                if (key := owners.get(process.pid)) is not None:
                    touched.setdefault(key, set()).add(index)
                    memory[key] = memory.get(key, 0) + (process.memory_bytes or 0)
        cpu_us: dict[ReplicaKey, int] = {}
        for key in sorted(self._replicas.running)[:USES_MAX]:
            used = self._replicas.running[key].box.usage()
            if used.cpu_us is not None:
                cpu_us[key] = used.cpu_us
            yield ReplicaUse(
                key,
                cpu_milli=self._cpu_milli(key, used.cpu_us, now_ms),
                memory_bytes=used.memory_bytes,
                device_memory_bytes=memory.get(key, 0) if watched else None,
                devices_touched=len(touched.get(key, ())) if watched else None,
                measured=self._with_cpu(key, used.cpu_us),
            )
        self._cpu_us, self._cpu_at_ms = cpu_us, now_ms

    def _cpu_milli(self, key: ReplicaKey, cpu_us: int | None, now_ms: int) -> int | None:
        """Return the CPUs in use on average since the last figures."""
        before, passed_ms = self._cpu_us.get(key), now_ms - self._cpu_at_ms
        return max(0, cpu_us - before) // passed_ms if cpu_us is not None and before is not None and passed_ms else None

    def _with_cpu(self, key: ReplicaKey, cpu_us: int | None) -> Measured | None:
        found = self.measured_so_far(key)
        return found if cpu_us is None else msgspec.structs.replace(found or Measured(), cpu_ms=cpu_us // 1000)

    def measured(self, key: ReplicaKey) -> Measured | None:
        """Return what was measured of a replica that has ended, and drop it."""
        found = self.measured_so_far(key)
        self._known.pop(key, None)
        if self._meter is not None:
            self._meter.forget(key)
        return found

    def measured_so_far(self, key: ReplicaKey) -> Measured | None:
        """Return what was measured of a replica; None where nothing was."""
        found = self._meter.measured(key) if self._meter is not None else self._known.get(key)
        return found if found != Measured() else None

    def _measure(self, sample: "DeviceSample") -> None:
        """Add a sample to what replicas used."""
        assert self._watch is not None
        assert self._meter is not None
        if sample.kind != "sample":
            return
        condition, owners = self._watch.condition, self._owners()
        memory: dict[tuple[ReplicaKey, int], int] = {}
        unknown: set[tuple[ReplicaKey, int]] = set()
        for index, process in condition.processes():
            if (key := owners.get(process.pid)) is not None:
                memory[key, index] = memory.get((key, index), 0) + (process.memory_bytes or 0)
                if process.memory_bytes is None:
                    unknown.add((key, index))
        if self._watchdog is not None:
            fresh = {one.index for one in self._spec.devices if one.vendor == sample.vendor}
            measured = {held: used for held, used in memory.items() if held not in unknown and held[1] in fresh}
            self._watchdog.take(sample.at_ms, measured)
        self._meter.take(sample.at_ms, condition.figures_in(sample), self._held(), memory)

    def _held(self) -> "list[Held]":
        from penstock.devices.meter import Held

        return [
            Held(key, index, running.share_milli, running.ticks * 1000 // _TICKS_PER_S)
            for key, running in self._replicas.running.items()
            for index in running.devices
        ]

    def _former(self) -> dict[ReplicaKey, Measured]:
        """Return what a former worker measured of replicas that go on; nothing where that cannot be read."""
        try:
            found = dict(_decode(self._measured_file.read_bytes()))
        except (OSError, msgspec.DecodeError):
            return {}
        return {key: measured for key, measured in found.items() if key in self._replicas.running}

    def _keep_measured(self) -> None:
        assert self._meter is not None
        kept = sorted((key, one) for key, one in self._meter.image().items() if key in self._replicas.running)
        with contextlib.suppress(OSError):  # a full disk costs what the next worker would know, no more
            write_whole(self._measured_file, _encode(kept), synced=False)

    def end(self) -> None:
        """End the watch, and MPS where no replica needs it."""
        self._replicas.end()
        if self._watch is not None:
            self._keep_measured()
            self._watch.end(self._closed)
        if self._power is not None:
            self._power.end()

    @property
    def power_limit_mw(self) -> int | None:
        """To what the power of the devices is kept, as it was ordered; 0: to nothing; None: there are none to keep."""
        return self._power.limit_mw if self._power is not None else None

    def limit_power(self, limit_mw: int) -> None:
        """Keep the power of the devices to this from now on; 0: to nothing."""
        if self._power is not None:
            self._power.limit(limit_mw)

    def _begin(self, now_ms: int) -> bool:
        self._check_at_ms = now_ms + FOLDER_CHECK_MS
        real = any(not device.simulated for device in self._spec.devices)
        simulated = bool(self._spec.devices) and not real and self._simulated.is_dir()
        if not real and not simulated:
            return False
        from penstock.devices.condition import Host
        from penstock.devices.meter import Meter
        from penstock.devices.power_keeper import PowerKeeper
        from penstock.devices.watch import DeviceWatch
        from penstock.engines.agent.watchdog import Watchdog

        arguments = ["--folder", str(self._simulated)] if simulated else []
        host = Host(is_ours=lambda pid: pid in self._owners(), started=procfs.start_ticks, user_of=_user_of)
        self._watch, self._meter = DeviceWatch(self._spec.devices, arguments, host), Meter(self._known)
        self._watchdog = Watchdog(self._replicas)
        self._power = PowerKeeper(self._spec.devices, self._folder, arguments)
        return True

    def _owners(self) -> dict[int, ReplicaKey]:
        """Return our replicas by the number of each of their processes; listed at most once a turn."""
        if self._pids is None:
            self._pids = {pid: key for key in self._replicas.running for pid in self._replicas.processes(key)}
        return self._pids

    def _opened(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, self)

    def _closed(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)


def _user_of(pid: int) -> str:
    """Return the number of the user that a process runs as; names are looked up by the providers' processes."""
    try:
        return str(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return ""
