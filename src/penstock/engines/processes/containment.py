"""Boxes: what holds all processes of one replica together, so that none of them can be left behind.

Control groups where they can be written (version 2, or freezer, cpu, memory and devices of version 1); else
sessions and an environment mark, which a process that clears both can escape: the agent says which it uses.
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.core.model.quantities import format_size
from penstock.core.model.resources import Resources
from penstock.engines.processes import procfs
from penstock.engines.processes.procfs import Living, Process

CPU_PERIOD_US = 100_000
CPU_QUOTA_MIN_US = 1_000
SHARES_PER_CPU = 1024
LOOK_KEPT_S = 0.005
"""One look at all processes serves every session box for this long."""
QUIET_LOOKS = 2
"""Scans in a row that must find no process: one can miss a process born in it to a parent that ends in it."""
DOUBT_MAX_S = 0.5
"""Time for which scans do not count because they find processes of unknown origin."""


class Box(Protocol):
    """Holds the processes of one replica."""

    @property
    def gates(self) -> tuple[str, ...]:
        """Files into which the first process writes its own number before it becomes the program."""
        ...

    def lead(self, leader: Process) -> None:
        """Know the first process, once it is there."""
        ...

    def pids(self) -> list[int]:
        """Return the processes inside, zombies excluded."""
        ...

    def empty(self) -> bool:
        """Return whether it is certain that nobody is left, now that `pids` found nobody."""
        ...

    def freeze(self) -> bool:
        """Begin to take all processor time from what is inside; return False where that cannot be done."""
        ...

    def frozen(self) -> bool:
        """Return whether nothing inside runs any more."""
        ...

    def thaw(self) -> None:
        """Let what is inside go on; nothing happens where it was not frozen."""
        ...

    def note(self) -> str:
        """Return what the box saw that explains a death, or ''."""
        ...

    def remove(self) -> None:
        """Drop the empty box."""
        ...


class Containment(Protocol):
    kind: str

    def box(self, name: str, limits: Resources, leader: Process | None = None, closed: Sequence[str] = ()) -> Box:
        """Return a new box with limits, or the present one of that name after a restart of the agent.

        Args:
            closed: device files that stay closed to what is inside, as `c MAJOR:MINOR`; only by version 1.
        """
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
    if pids:
        box.thaw()  # what is frozen does not die (control groups of version 1)
    return not pids and box.empty()


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
        events = _read(self._folder / "memory.events")
        kills = next((int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill ")), 0)
        return _out_of_memory(self._limits) if kills else ""

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


# Version 1: one tree a controller; the freezer's is the one that counts members.


class _BoxV1:
    def __init__(self, trees: dict[str, Path], name: str, limits: Resources, closed: Sequence[str]) -> None:
        self._limits = limits
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
        """What forked meanwhile may keep it FREEZING: asking again is what completes it."""
        return _read(self._folders["freezer"] / "freezer.state").strip() == "FROZEN"

    def thaw(self) -> None:
        _write(self._folders["freezer"] / "freezer.state", "THAWED")

    def note(self) -> str:
        memory = self._folders.get("memory")
        if memory is None:
            return ""
        control = _read(memory / "memory.oom_control")
        kills = next((int(line.split()[1]) for line in control.splitlines() if line.startswith("oom_kill ")), 0)
        return _out_of_memory(self._limits) if kills else ""

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


# Sessions: what every user may do.


class _Look(msgspec.Struct, frozen=True):
    """Which processes ran, between two moments (monotonic seconds)."""

    begun_s: float
    ended_s: float
    processes: tuple[Living, ...]


class _SessionBox:
    def __init__(self, containment: "SessionContainment", name: str, leader: Process | None) -> None:
        self._containment, self._name, self._leader = containment, name, leader
        self._since_s = time.monotonic()
        self._last: _Look | None = None
        self._quiet = 0
        self._doubted_s: float | None = None

    @property
    def gates(self) -> tuple[str, ...]:
        return ()

    def lead(self, leader: Process) -> None:
        self._leader, self._since_s = leader, time.monotonic()

    def pids(self) -> list[int]:
        """Return who carries the mark, or is in the leader's session.

        Called again and again, until it is certain that they are gone: see `empty`.
        """
        look = self._containment.look(self._since_s)
        session = self._session()
        inside = [p.pid for p in look.processes if p.mark == self._name or p.session == session]
        if look is not self._last:
            self._last = look
            if inside:
                self._quiet, self._doubted_s = 0, None
            else:
                self._quiet = 0 if self._doubtful(look) else self._quiet + 1
        return inside

    def _doubtful(self, look: _Look) -> bool:
        """Return whether one of the processes may be ours.

        A program has no environment for a moment while it becomes another one. An orphan that has left its session
        cannot be distinguished from a foreign process then.
        """
        adopters = (1, os.getpid(), os.getppid())
        if not any(p.unclear and p.parent in adopters for p in look.processes):
            return False
        if self._doubted_s is None:
            self._doubted_s = look.begun_s
        return look.begun_s - self._doubted_s < DOUBT_MAX_S

    def empty(self) -> bool:
        return self._quiet >= QUIET_LOOKS

    def _session(self) -> int | None:
        """Return the leader's session, unless its number is another process's by now: then nobody was left in it."""
        if self._leader is None or procfs.start_ticks(self._leader.pid) not in (None, self._leader.ticks):
            return None
        return self._leader.pid

    def freeze(self) -> bool:
        """Processes that are stopped by a signal know it, and so do their parents: that is not suspending."""
        return False

    def frozen(self) -> bool:
        return False

    def thaw(self) -> None:
        """Nothing was frozen."""

    def note(self) -> str:
        return ""

    def remove(self) -> None:
        """Nothing was made."""


class SessionContainment:
    kind = "sessions (no writable control groups: limits are not enforced)"

    def __init__(self) -> None:
        self._look = _Look(float("-inf"), float("-inf"), ())
        self._marks: dict[tuple[int, int], str] = {}

    def box(self, name: str, limits: Resources, leader: Process | None = None, closed: Sequence[str] = ()) -> Box:
        return _SessionBox(self, name, leader)

    def look(self, since_s: float) -> _Look:
        """Return a look that began after `since_s` and ended a moment ago at most: all boxes share it."""
        begun_s = time.monotonic()
        if self._look.begun_s <= since_s or self._look.ended_s < begun_s - LOOK_KEPT_S:
            processes = tuple(map(self._as_known, procfs.living()))
            self._look = _Look(begun_s, time.monotonic(), processes)
            self._marks = {(p.pid, p.ticks): p.mark for p in processes if p.mark}
        return self._look

    def _as_known(self, process: Living) -> Living:
        """Return a process that has no environment now as the last look knew it: most are merely about to end."""
        mark = self._marks.get((process.pid, process.ticks), "") if process.unclear else ""
        return msgspec.structs.replace(process, mark=mark, unclear=False) if mark else process

    def close(self) -> None:
        """Nothing was made."""


def _pids(folder: Path) -> list[int]:
    """Return who is in a group, or in groups that its own processes made below it.

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
    """Write a control file; one that this kernel lacks is passed over, the limit is then not enforced."""
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


def _out_of_memory(limits: Resources) -> str:
    return f"out of host memory: the limit is {format_size(limits.memory_bytes)}"
