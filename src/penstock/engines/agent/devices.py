"""The devices of a node as its agent sees them: a watch over them, and what of it is reported.

The watch runs where the node has real devices, or where its folder has a `devices` folder of simulated ones
(`penstock.devices.simulated_files`). Its modules are loaded only then.
"""

import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.messages.reports import NodeFigures, ReplicaKey, ReplicaUse
from penstock.core.model.nodes import NodeSpec, OthersLoad
from penstock.engines.agent.replicas import Replicas
from penstock.engines.agent.state_machine import DeviceNews
from penstock.engines.processes import procfs

if TYPE_CHECKING:
    from penstock.devices.watch import DeviceWatch

FOLDER_CHECK_MS = 1_000
FIGURES_EVERY_MS = 5_000
USES_MAX = 256
"""Replicas whose use is reported at once."""


class NodeDevices:
    """Watches the devices of a node, where there is something to watch.

    Args:
        folder: of the node.
        selector: of the agent's loop: it waits for the watch, too.
    """

    def __init__(self, spec: NodeSpec, folder: Path, replicas: Replicas, selector: selectors.BaseSelector) -> None:
        self._spec, self._replicas, self._selector = spec, replicas, selector
        self._simulated = folder / "devices"
        self._watch: DeviceWatch | None = None
        self._check_at_ms = self._figures_at_ms = 0
        self._notes: tuple[str, ...] = ()
        self._pids: dict[int, ReplicaKey] | None = None

    def turn(self, now_ms: int) -> DeviceNews | None:
        """Take new readings, without waiting; return what follows from them, None before the first."""
        if self._watch is None and (now_ms < self._check_at_ms or not self._begin(now_ms)):
            return None
        assert self._watch is not None
        self._pids = None
        self._watch.turn(now_ms, self._opened, self._closed)
        if not self._watch.samples:
            return None
        condition = self._watch.condition
        users = condition.users()
        taken = tuple(sorted({user.index for user in users}))
        return DeviceNews(condition.faults(now_ms), OthersLoad(devices=taken, users=users))

    def figures(self, now_ms: int) -> NodeFigures | None:
        """Return figures when they are due: now and then, and when a provider falls silent or answers again."""
        if self._watch is None:
            return None
        condition = self._watch.condition
        notes = condition.notes()
        if notes == self._notes and (not self._watch.samples or now_ms < self._figures_at_ms):
            return None
        self._figures_at_ms, self._notes = now_ms + FIGURES_EVERY_MS, notes
        return NodeFigures(condition.figures(), tuple(self._uses()), notes)

    def _uses(self) -> Iterator[ReplicaUse]:
        """Yield what replicas use of their devices."""
        assert self._watch is not None
        owners = self._owners()
        memory: dict[ReplicaKey, int] = {}
        touched: dict[ReplicaKey, set[int]] = {}
        for index, process in self._watch.condition.processes():
            key = owners.get(process.pid)
            if key is not None:
                touched.setdefault(key, set()).add(index)
                memory[key] = memory.get(key, 0) + (process.memory_bytes or 0)
        for key in sorted(self._replicas.running)[:USES_MAX]:
            yield ReplicaUse(key, device_memory_bytes=memory.get(key, 0), devices_touched=len(touched.get(key, ())))

    def end(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.end(self._closed)

    def _begin(self, now_ms: int) -> bool:
        self._check_at_ms = now_ms + FOLDER_CHECK_MS
        real = any(not device.simulated for device in self._spec.devices)
        simulated = bool(self._spec.devices) and not real and self._simulated.is_dir()
        if not real and not simulated:
            return False
        from penstock.devices.condition import Host
        from penstock.devices.watch import DeviceWatch

        arguments = ["--folder", str(self._simulated)] if simulated else []
        host = Host(is_ours=lambda pid: pid in self._owners(), started=procfs.start_ticks, user_of=_user_of)
        self._watch = DeviceWatch(self._spec.devices, arguments, host)
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
    """Return the name of the user that a process runs as, or the number where there is no name."""
    try:
        number = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
