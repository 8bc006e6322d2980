"""Boxes by version 2 of control groups: one tree, with the controllers that this process may give to groups in it.

A group that gives controllers to groups below may have no processes of its own ("no internal processes"). So where an
agent runs in a group that was delegated to it, by systemd for a service or a user's scope, it first moves what runs
there into a leaf of that group, and puts the boxes beside it.

`memory.high` stays as it is: a program above it is slowed down almost to a stop, which looks like one that hangs; at
`memory.max` it ends, with a reason.

Source: Documentation/admin-guide/cgroup-v2.rst of Linux; "Control Group APIs and Delegation" of systemd.
"""

import logging
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from penstock.core.model.jobs import WorkloadClass
from penstock.core.model.resources import Resources
from penstock.engines.processes import boxes
from penstock.engines.processes.boxes import Box, Usage
from penstock.engines.processes.cgroup_files import (
    counters,
    listed,
    number,
    out_of_memory,
    pids,
    read,
    remove,
    remove_all,
    tasks_max,
    write,
    written,
)
from penstock.engines.processes.memory import Scale
from penstock.engines.processes.procfs import Process

log = logging.getLogger(__name__)

TOP = Path("/sys/fs/cgroup")
LEAF = "penstock-agents"
"""Group of everything that ran in a delegated group before there were boxes in it."""
ENFORCING = ("cpu", "memory")
CONTROLLERS = (*ENFORCING, "pids", "io", "cpuset")
MOVES_MAX = 10
"""Processes that are born in a delegated group while it is emptied are moved too, this often."""
WEIGHT_MAX = 10_000
SHARES_OF_WEIGHT_100 = 1024


def weight(shares: int) -> int:
    """Return the weight (1 to 10,000) that version 2 takes for CPU shares: 100 for 1024.

    Source: `sched_weight_from_cgroup` and `sched_weight_to_cgroup` of Linux, kernel/sched/sched.h.
    """
    return min(WEIGHT_MAX, max(1, (shares * 100 + SHARES_OF_WEIGHT_100 // 2) // SHARES_OF_WEIGHT_100))


class _BoxV2:
    def __init__(self, folder: Path, limits: Resources) -> None:
        self._folder, self._limits, self._scale = folder, limits, Scale(limits)
        self.mark = folder.name
        self.fresh = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)

    def limit(self, workload_class: WorkloadClass) -> None:
        folder, limits = self._folder, self._limits
        if limits.cpu_milli:
            write(folder / "cpu.max", f"{boxes.quota_us(limits.cpu_milli)} {boxes.CPU_PERIOD_US}")
            write(folder / "cpu.weight", str(weight(boxes.shares(limits.cpu_milli, workload_class))))
        if limits.memory_bytes:
            write(folder / "memory.max", str(limits.memory_bytes))
            write(folder / "memory.oom.group", "1")
        write(folder / "pids.max", str(tasks_max(limits.cpu_milli)))
        disks = weight(boxes.SHARES_PER_CPU[workload_class])
        if not written(folder / "io.weight", f"default {disks}"):  # of io.cost; else the BFQ scheduler may have one
            written(folder / "io.bfq.weight", f"default {disks}")

    def run_on(self, cpus: str) -> None:
        """Keep the box to CPUs, as far as they are there."""
        written(self._folder / "cpuset.cpus", cpus)

    @property
    def gates(self) -> tuple[str, ...]:
        return (str(self._folder / "cgroup.procs"),)

    def lead(self, leader: Process) -> None:
        """The group knows its members."""

    def pids(self) -> list[int]:
        return pids(self._folder)

    def empty(self) -> bool:
        """A process whose threads are all on their way out is no member any more, but still has files and memory."""
        return "populated 1" not in read(self._folder / "cgroup.events")

    def kill(self) -> None:
        """Since Linux 5.14. A process whose first thread has ended survives it (seen in 6.18)."""
        write(self._folder / "cgroup.kill", "1")

    def freeze(self) -> bool:
        return written(self._folder / "cgroup.freeze", "1")

    def frozen(self) -> bool:
        return "frozen 1" in read(self._folder / "cgroup.events")

    def thaw(self) -> None:
        write(self._folder / "cgroup.freeze", "0")

    def usage(self) -> Usage:
        """Peaks since Linux 5.19."""
        folder = self._folder
        held, disks = number(folder / "memory.current"), _moved(folder / "io.stat")
        if held is not None:
            held = max(0, held - counters(folder / "memory.stat").get("inactive_file", 0))
        return Usage(
            cpu_us=counters(folder / "cpu.stat").get("usage_usec"),
            memory_bytes=held,
            memory_peak_bytes=number(folder / "memory.peak"),
            read_bytes=disks.get("rbytes"),
            written_bytes=disks.get("wbytes"),
        )

    def exceeded(self) -> str:
        return "" if (self._folder / "memory.max").exists() else self._scale.exceeded(self.pids)

    def note(self) -> str:
        """The kernel counts the process that it chose twice when it ends the whole group."""
        events = counters(self._folder / "memory.events")
        killed = max(events.get("oom_kill", 0) - events.get("oom_group_kill", 0), min(1, events.get("oom_kill", 0)))
        return out_of_memory(self._limits, killed, reached=events.get("oom", 0) > 0)

    def remove(self) -> None:
        remove_all(self._folder)


def _moved(path: Path) -> dict[str, int]:
    """Return the sums over all disks of a table such as `8:0 rbytes=4096 wbytes=0`; empty: no table."""
    if not path.exists():
        return {}
    total = dict.fromkeys(("rbytes", "wbytes"), 0)
    for line in read(path).splitlines():
        for name, found, value in (word.partition("=") for word in line.split()[1:]):
            if found and name in total:
                total[name] += int(value)
    return total


class CgroupV2:
    """Boxes in a group that has given its controllers to groups below.

    Args:
        base: the parent of the boxes.
        missing: controllers that it could not be given, of those that enforce what a job asked for.
    """

    def __init__(self, base: Path, missing: Sequence[str] = ()) -> None:
        self._base, self._missing = base, tuple(missing)
        self._shared = ""
        self._open_files = ""

    @property
    def kind(self) -> str:
        without = [
            "memory is weighed" if one == "memory" else f"limits of {one} are not enforced" for one in self._missing
        ]
        without += [f"device files stay open: {self._open_files}"] if self._open_files else []
        return "cgroup v2" + (f" ({'; '.join(without)})" if without else "")

    def box(
        self,
        name: str,
        limits: Resources,
        leader: Process | None = None,
        *,
        closed: Sequence[str] = (),
        workload_class: WorkloadClass = "training",
        cpus: Sequence[int] = (),
    ) -> Box:
        box = _BoxV2(self._base / name, limits)
        if box.fresh:
            box.limit(workload_class)
            if cpus or self._shared:
                box.run_on(listed(cpus) if cpus else self._shared)
            if closed:
                self._close(self._base / name, closed)
        return box

    def _close(self, group: Path, closed: Sequence[str]) -> None:
        from penstock.engines.processes.device_filter import close_files

        why = close_files(group, closed)
        if why and why != self._open_files:
            log.warning("device files stay open to those who do not have the devices: %s", why)
        self._open_files = why

    def share_cpus(self, cpus: Iterable[int], own: Collection[str]) -> bool:
        if "cpuset" not in read(self._base / "cgroup.subtree_control").split():
            return False
        self._shared = listed(cpus)
        for entry in os.scandir(self._base):
            if entry.is_dir() and entry.name not in own:
                written(Path(entry.path, "cpuset.cpus"), self._shared)
        return True

    def close(self) -> None:
        remove(self._base)


def find(parent: str) -> CgroupV2 | None:
    """Return the containment below `parent`, where this process may make groups; None where it may not."""
    if not (TOP / "cgroup.controllers").exists():
        return None
    for top in _tops(read(Path("/proc/self/cgroup"))):
        base = top / parent
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if not os.access(base / "cgroup.procs", os.W_OK):
            continue
        given = _given(top, base)
        missing = [name for name in ENFORCING if name not in given]
        return CgroupV2(base, missing)
    return None


def _tops(memberships: str) -> list[Path]:
    """Return the groups below which boxes may be: the root for whom it belongs to, else the own group.

    An agent that moved into the leaf of a delegated group still has its boxes beside it.
    """
    own = next((line[3:] for line in memberships.splitlines() if line.startswith("0::")), "/")
    group = TOP / own.lstrip("/")
    return list(dict.fromkeys([TOP, group.parent if group.name == LEAF else group]))


def _given(top: Path, base: Path) -> list[str]:
    """Give as many controllers as there are to the groups below `base`; return which."""
    for folder in dict.fromkeys([top, base.parent, base]):
        control = folder / "cgroup.subtree_control"
        given = read(control).split()
        wanted = [name for name in read(folder / "cgroup.controllers").split() if name in CONTROLLERS]
        if set(wanted) <= set(given) or not _may_give(folder):
            continue
        for name in wanted:
            if not written(control, f"+{name}"):
                log.info("controller %s is not given to groups below %s", name, folder)
    return read(base / "cgroup.subtree_control").split()


def _may_give(folder: Path) -> bool:
    """Return whether no process of a group is in the way of controllers for groups below.

    Of a group with processes the kernel takes some controllers, for threads (cpu, cpuset, pids): then no process may
    enter the groups below any more.
    """
    if not (folder / "cgroup.events").exists() or not read(folder / "cgroup.procs").split():
        return True
    return _delegated(folder) and _cleared(folder)


def _delegated(folder: Path) -> bool:
    """Return whether what runs in a group is ours to move: systemd says so, or it is the topmost one that we have.

    Seen from a container, its own group is the root; only the true root lacks `cgroup.events`.
    """
    if folder == TOP:
        return (folder / "cgroup.events").exists()
    try:
        if folder.stat().st_uid == os.geteuid() != folder.parent.stat().st_uid:
            return True
        return os.getxattr(folder, "user.delegate") == b"1"
    except OSError:
        return False


def _cleared(folder: Path) -> bool:
    """Move all processes of a group into a leaf below it; return whether none is left in the group itself."""
    leaf = folder / LEAF
    try:
        leaf.mkdir(exist_ok=True)
    except OSError:
        return False
    for _ in range(MOVES_MAX):
        members = read(folder / "cgroup.procs").split()
        if not members:
            return True
        for pid in members:
            written(leaf / "cgroup.procs", pid)
    return False
