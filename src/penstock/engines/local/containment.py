"""Boxes: what holds all processes of one replica together, so that none of them can be left behind.

Control groups where they can be written (version 2, or the freezer, cpu and memory hierarchies of version 1); else
sessions and an environment mark, which a process that clears both can escape: the agent says which it uses.
"""

import contextlib
import errno
import os
import signal
from pathlib import Path
from typing import Protocol

from penstock.core.model.resources import Resources
from penstock.core.units import format_size
from penstock.engines.local import procfs

CPU_PERIOD_US = 100_000
CPU_QUOTA_MIN_US = 1_000
SHARES_PER_CPU = 1024


class Box(Protocol):
    """Holds the processes of one replica."""

    @property
    def gates(self) -> tuple[str, ...]:
        """Files into which the first process writes its own number before it becomes the program."""
        ...

    def pids(self) -> list[int]:
        """Return the processes inside, zombies excluded."""
        ...

    def note(self) -> str:
        """Return what the box saw that explains a death, or ''."""
        ...

    def remove(self) -> None:
        """Drop the empty box."""
        ...


class Containment(Protocol):
    kind: str

    def box(self, name: str, limits: Resources, leader: int | None = None) -> Box:
        """Return a new box with limits, or the present one of that name after a restart of the agent."""
        ...

    def close(self) -> None:
        """Drop what holds the boxes, if they are all gone."""
        ...


def kill_inside(box: Box) -> bool:
    """Kill everything in the box once; return whether it is empty. To be repeated until it is."""
    pids = box.pids()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def choose(parent: str) -> Containment:
    """Return the strongest containment that this process can use; boxes go below `parent` (a path component)."""
    for attempt in (_version_2, _version_1):
        found = attempt(parent)
        if found is not None:
            return found
    return SessionContainment()


# Version 2: one tree.


class _BoxV2:
    def __init__(self, folder: Path, limits: Resources) -> None:
        self._folder, self._limits = folder, limits
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

    def pids(self) -> list[int]:
        return _pids(self._folder)

    def note(self) -> str:
        events = _read(self._folder / "memory.events")
        kills = next((int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill ")), 0)
        return _out_of_memory(self._limits) if kills else ""

    def remove(self) -> None:
        _remove(self._folder)


class CgroupV2:
    kind = "cgroup v2"

    def __init__(self, base: Path) -> None:
        self._base = base

    def box(self, name: str, limits: Resources, leader: int | None = None) -> Box:
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


# Version 1: one tree a controller; the freezer's is the one that counts members.


class _BoxV1:
    def __init__(self, trees: dict[str, Path], name: str, limits: Resources) -> None:
        self._limits = limits
        used = ["freezer"]
        used += ["cpu"] if limits.cpu_milli else []
        used += ["memory"] if limits.memory_bytes else []
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

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(str(folder / "cgroup.procs") for folder in self._folders.values())

    def pids(self) -> list[int]:
        return _pids(self._folders["freezer"])

    def note(self) -> str:
        memory = self._folders.get("memory")
        if memory is None:
            return ""
        control = _read(memory / "memory.oom_control")
        kills = next((int(line.split()[1]) for line in control.splitlines() if line.startswith("oom_kill ")), 0)
        return _out_of_memory(self._limits) if kills else ""

    def remove(self) -> None:
        for folder in self._folders.values():
            _remove(folder)


class CgroupV1:
    kind = "cgroup v1"

    def __init__(self, trees: dict[str, Path]) -> None:
        self._trees = trees

    def box(self, name: str, limits: Resources, leader: int | None = None) -> Box:
        return _BoxV1(self._trees, name, limits)

    def close(self) -> None:
        for folder in self._trees.values():
            _remove(folder)


def _version_1(parent: str) -> CgroupV1 | None:
    trees: dict[str, Path] = {}
    for controller in ("freezer", "cpu", "memory"):
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


# Sessions: what every user may do.


class _SessionBox:
    def __init__(self, name: str, leader: int | None) -> None:
        self._name, self._leader = name, leader

    @property
    def gates(self) -> tuple[str, ...]:
        return ()

    def pids(self) -> list[int]:
        found = set(procfs.marked(self._name))
        if self._leader is not None:
            found |= {pid for pid in procfs.all_pids() if procfs.session_of(pid) == self._leader}
        return sorted(p for p in found if (ticks := procfs.start_ticks(p)) is not None and procfs.alive(p, ticks))

    def note(self) -> str:
        return ""

    def remove(self) -> None:
        """Nothing was made."""


class SessionContainment:
    kind = "sessions (no writable control groups: limits are not enforced)"

    def box(self, name: str, limits: Resources, leader: int | None = None) -> Box:
        return _SessionBox(name, leader)

    def close(self) -> None:
        """Nothing was made."""


def _pids(folder: Path) -> list[int]:
    return [int(line) for line in _read(folder / "cgroup.procs").split()]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Write a control file; one that this kernel lacks is passed over, the limit is then not enforced."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        path.write_text(text, encoding="ascii")


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
            raise


def _out_of_memory(limits: Resources) -> str:
    return f"out of host memory: the limit is {format_size(limits.memory_bytes)}"
