"""Boxes: containers of all processes of one replica, so that none of them can be left behind.

Control groups where they can be written (version 2, or freezer, cpu, memory and devices of version 1); else
sessions and an environment mark, which a process that clears both can escape: the agent says which it uses.
"""

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.quantities import format_size
from penstock.core.model.resources import Resources
from penstock.core.model.words import counted
from penstock.engines.processes.boxes import Box, Containment
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.sessions import SessionContainment

CPU_PERIOD_US = 100_000
CPU_QUOTA_MIN_US = 1_000
SHARES_PER_CPU = 1024


def choose(parent: str) -> Containment:
    """Return the strongest containment that this process can use; boxes go below `parent` (a path component)."""
    for attempt in (_version_2, _version_1):
        found = attempt(parent)
        if found is not None:
            return found
    return SessionContainment(parent)


# Version 2: one tree.


class _BoxV2:
    def __init__(self, folder: Path, limits: Resources) -> None:
        self._folder, self._limits = folder, limits
        self.mark = folder.name
        folder.mkdir(parents=True, exist_ok=True)
        if limits.cpu_milli:
            quota = max(CPU_QUOTA_MIN_US, CPU_PERIOD_US * limits.cpu_milli // 1000)
            _write(folder / "cpu.max", f"{quota} {CPU_PERIOD_US}")
        if limits.memory_bytes:
            _write(folder / "memory.max", str(limits.memory_bytes))
            _write(folder / "memory.oom.group", "1")

    @property
    def gates(self) -> tuple[str, ...]:
        return (str(self._folder / "cgroup.procs"),)

    def lead(self, leader: Process) -> None:
        """The group knows its members."""

    def pids(self) -> list[int]:
        return _pids(self._folder)

    def empty(self) -> bool:
        """A process whose threads are all on their way out is no member any more, but still has files and memory."""
        return "populated 1" not in _read(self._folder / "cgroup.events")

    def freeze(self) -> bool:
        return _written(self._folder / "cgroup.freeze", "1")

    def frozen(self) -> bool:
        return "frozen 1" in _read(self._folder / "cgroup.events")

    def thaw(self) -> None:
        _write(self._folder / "cgroup.freeze", "0")

    def note(self) -> str:
        events = _counters(self._folder / "memory.events")
        return _out_of_memory(self._limits, events.get("oom_kill", 0), reached=events.get("oom", 0) > 0)

    def remove(self) -> None:
        _remove_all(self._folder)


class CgroupV2:
    kind = "cgroup v2"

    def __init__(self, base: Path) -> None:
        self._base = base

    def box(self, name: str, limits: Resources, leader: Process | None = None, closed: Sequence[str] = ()) -> Box:
        return _BoxV2(self._base / name, limits)

    def close(self) -> None:
        _remove(self._base)


def _version_2(parent: str) -> CgroupV2 | None:
    root = Path("/sys/fs/cgroup")
    controllers = _read(root / "cgroup.controllers").split()
    if not {"cpu", "memory"} <= set(controllers):
        return None
    own = next((line[3:] for line in _read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), "/")
    for top in (root, root / own.lstrip("/")):
        base = top / parent
        try:
            base.mkdir(parents=True, exist_ok=True)
            for folder in (top, base.parent, base):
                _write(folder / "cgroup.subtree_control", "+cpu +memory")
            if "memory" in _read(base / "cgroup.subtree_control").split():
                return CgroupV2(base)
        except OSError:
            continue
    return None


# Version 1: one tree a controller; the freezer's counts members.


class _BoxV1:
    def __init__(self, trees: dict[str, Path], name: str, limits: Resources, closed: Sequence[str]) -> None:
        self._limits = limits
        self.mark = name
        used = ["freezer"]
        used += ["cpu"] if limits.cpu_milli else []
        used += ["memory"] if limits.memory_bytes else []
        used += ["devices"] if closed or os.path.isdir(f"{trees.get('devices')}/{name}") else []
        self._folders = {tree: trees[tree] / name for tree in used if tree in trees}
        for folder in self._folders.values():
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
        cpu, memory = self._folders.get("cpu"), self._folders.get("memory")
        if cpu is not None:
            _write(cpu / "cpu.shares", str(max(2, SHARES_PER_CPU * limits.cpu_milli // 1000)))
            quota = max(CPU_QUOTA_MIN_US, CPU_PERIOD_US * limits.cpu_milli // 1000)
            _write(cpu / "cpu.cfs_quota_us", str(quota))
        if memory is not None:
            _write(memory / "memory.limit_in_bytes", str(limits.memory_bytes))
        for file in closed if "devices" in self._folders else ():
            _write(self._folders["devices"] / "devices.deny", f"{file} rwm")

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(str(folder / "cgroup.procs") for folder in self._folders.values())

    def lead(self, leader: Process) -> None:
        """The group knows its members."""

    def pids(self) -> list[int]:
        return _pids(self._folders["freezer"])

    def empty(self) -> bool:
        """Every thread counts as a member until it has given everything back."""
        return True

    def freeze(self) -> bool:
        return _written(self._folders["freezer"] / "freezer.state", "FROZEN")

    def frozen(self) -> bool:
        """A process that was born meanwhile may keep the group FREEZING: writing the state again reaches it too."""
        state = self._folders["freezer"] / "freezer.state"
        reached = _read(state).strip()
        if reached == "FREEZING":
            _write(state, "FROZEN")
        return reached == "FROZEN"

    def thaw(self) -> None:
        _write(self._folders["freezer"] / "freezer.state", "THAWED")

    def note(self) -> str:
        memory = self._folders.get("memory")
        if memory is None:
            return ""
        killed = _counters(memory / "memory.oom_control").get("oom_kill", 0)
        reached = _read(memory / "memory.failcnt").strip() not in ("", "0")
        return _out_of_memory(self._limits, killed, reached=reached)

    def remove(self) -> None:
        for folder in self._folders.values():
            _remove_all(folder)


class CgroupV1:
    kind = "cgroup v1"

    def __init__(self, trees: dict[str, Path]) -> None:
        self._trees = trees

    def box(self, name: str, limits: Resources, leader: Process | None = None, closed: Sequence[str] = ()) -> Box:
        return _BoxV1(self._trees, name, limits, closed)

    def close(self) -> None:
        for folder in self._trees.values():
            _remove(folder)


def _version_1(parent: str) -> CgroupV1 | None:
    trees: dict[str, Path] = {}
    for controller in ("freezer", "cpu", "memory", "devices"):
        for mount in (controller, "cpu,cpuacct") if controller == "cpu" else (controller,):
            folder = Path("/sys/fs/cgroup") / mount / parent
            try:
                if not folder.parent.exists() and not Path("/sys/fs/cgroup", mount, "tasks").exists():
                    continue
                folder.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(folder / "cgroup.procs", os.W_OK):
                trees[controller] = folder
                break
    return CgroupV1(trees) if "freezer" in trees else None


def _pids(folder: Path) -> list[int]:
    """Return the processes in a group, and in groups that they made below it.

    Raises: OSError when a group that is there cannot be read: it must not be taken for an empty one.
    """
    found: list[int] = []
    for group, _, _ in os.walk(folder):
        try:
            found += map(int, Path(group, "cgroup.procs").read_text(encoding="ascii").split())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):  # gone, or a group of mere threads
                raise
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Write a control file; if this kernel lacks it, the limit is not enforced."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        path.write_text(text, encoding="ascii")


def _written(path: Path, text: str) -> bool:
    """Write a control file; return whether it is there and took it."""
    try:
        path.write_text(text, encoding="ascii")
    except OSError:
        return False
    return True


def _remove_all(folder: Path) -> None:
    """Remove a group and those below it."""
    for group, _, _ in os.walk(folder, topdown=False):
        _remove(Path(group))


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
            raise


def _counters(path: Path) -> dict[str, int]:
    """Return the counters of a control file with one of them a line; none where the kernel lacks the file."""
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _out_of_memory(limits: Resources, killed: int, *, reached: bool) -> str:
    """Return how many processes of a group the kernel killed for want of memory, and of whose; '' for none.

    Args:
        killed: counted by the kernel, whichever limit it was: the group's, one above it, or the machine's memory.
        reached: the group has been at its own limit.
    """
    if not killed:
        return ""
    if limits.memory_bytes and reached:
        where = f"limit {format_size(limits.memory_bytes)}"
    else:
        where = "none left for jobs on the node"
    return f"out of memory: {where}, killed by the kernel ({counted(killed, 'process', 'processes')})"
