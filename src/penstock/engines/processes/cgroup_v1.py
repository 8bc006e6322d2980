"""Boxes by version 1 of control groups: a tree for each controller; the freezer's counts members.

Source: Documentation/admin-guide/cgroup-v1 of Linux.
"""

import contextlib
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
from penstock.engines.processes.procfs import Process, disk_bytes

TOP = Path("/sys/fs/cgroup")
ALWAYS = ("freezer", "cpuacct", "memory", "pids")
"""Trees of every box: the rest only where there is something to limit."""
TREES = (*ALWAYS, "cpu", "devices", "cpuset")
SHARED = "shared"
"""The group of all boxes without CPUs of their own; no box is called like this: theirs begin with a node and a dot."""
_MOUNTS = {"cpu": ("cpu", "cpu,cpuacct"), "cpuacct": ("cpuacct", "cpu,cpuacct")}


class _BoxV1:
    def __init__(self, trees: dict[str, Path], name: str, limits: Resources, wanted: Iterable[str]) -> None:
        self._limits, self._scale = limits, Scale(limits)
        self.mark = name
        used = [tree for tree in TREES if tree in wanted or (tree in trees and (trees[tree] / name).is_dir())]
        self.folders = {tree: trees[tree] / name for tree in used if tree in trees}
        self.fresh: set[Path] = set()
        """Groups that were not there before: their limits are still to be set."""
        for folder in self.folders.values():
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                self.fresh.add(folder)
        self._shared: tuple[str, ...] = ()

    def limit(self, workload_class: WorkloadClass, closed: Sequence[str]) -> None:
        """Set the limits of groups that are new."""
        limits = self._limits
        new = {tree: folder for tree, folder in self.folders.items() if folder in self.fresh}
        if "cpu" in new and limits.cpu_milli:
            write(new["cpu"] / "cpu.shares", str(boxes.shares(limits.cpu_milli, workload_class)))
            write(new["cpu"] / "cpu.cfs_period_us", str(boxes.CPU_PERIOD_US))
            write(new["cpu"] / "cpu.cfs_quota_us", str(boxes.quota_us(limits.cpu_milli)))
        if "memory" in new and limits.memory_bytes:
            write(new["memory"] / "memory.limit_in_bytes", str(limits.memory_bytes))
        if "pids" in new:
            write(new["pids"] / "pids.max", str(tasks_max(limits.cpu_milli)))
        for file in closed if "devices" in new else ():
            write(new["devices"] / "devices.deny", f"{file} rwm")

    def run_on(self, cpus: Sequence[int], shared: Path | None) -> None:
        """Keep the box to CPUs of its own, or to the group of those who have none."""
        own = self.folders.get("cpuset")
        if own is not None and own in self.fresh and cpus:
            memory = written(own / "cpuset.mems", read(own.parent / "cpuset.mems"))
            if not (memory and written(own / "cpuset.cpus", listed(cpus))):
                remove(own)  # such as a CPU that was taken offline: a group without CPUs lets nobody in
                del self.folders["cpuset"]
                own = None
        if own is None and shared is not None:
            self._shared = (str(shared / "cgroup.procs"),)

    @property
    def gates(self) -> tuple[str, ...]:
        own = (str(folder / "cgroup.procs") for folder in self.folders.values())
        return tuple(dict.fromkeys([*own, *self._shared]))

    def lead(self, leader: Process) -> None:
        """The group knows its members."""

    def pids(self) -> list[int]:
        return pids(self.folders["freezer"])

    def empty(self) -> bool:
        """Every thread counts as a member until it has given everything back."""
        return True

    def kill(self) -> None:
        """There is no such thing in version 1."""

    def freeze(self) -> bool:
        return written(self.folders["freezer"] / "freezer.state", "FROZEN")

    def frozen(self) -> bool:
        """A process that was born meanwhile may keep the group FREEZING: writing the state again reaches it too."""
        state = self.folders["freezer"] / "freezer.state"
        reached = read(state).strip()
        if reached == "FREEZING":
            write(state, "FROZEN")
        return reached == "FROZEN"

    def thaw(self) -> None:
        write(self.folders["freezer"] / "freezer.state", "THAWED")

    def usage(self) -> Usage:
        """Disks are counted by process: the tree for them counts only under limits, in newer kernels."""
        absent = Path("/nonexistent")
        account, memory = (self.folders.get(tree, absent) for tree in ("cpuacct", "memory"))
        spent_ns, held = number(account / "cpuacct.usage"), number(memory / "memory.usage_in_bytes")
        if held is not None:
            held = max(0, held - counters(memory / "memory.stat").get("total_inactive_file", 0))
        read_bytes, written_bytes = disk_bytes(self.pids())
        return Usage(
            cpu_us=None if spent_ns is None else spent_ns // 1000,
            memory_bytes=held,
            memory_peak_bytes=number(memory / "memory.max_usage_in_bytes"),
            read_bytes=read_bytes,
            written_bytes=written_bytes,
        )

    def exceeded(self) -> str:
        return "" if "memory" in self.folders else self._scale.exceeded(self.pids)

    def note(self) -> str:
        memory = self.folders.get("memory")
        if memory is None:
            return ""
        killed = counters(memory / "memory.oom_control").get("oom_kill", 0)
        reached = read(memory / "memory.failcnt").strip() not in ("", "0")
        return out_of_memory(self._limits, killed, reached=reached)

    def remove(self) -> None:
        for folder in dict.fromkeys(self.folders.values()):
            remove_all(folder)


class CgroupV1:
    """Boxes in those trees that can be written.

    Args:
        trees: the parent of the boxes, by controller; the freezer's is there.
    """

    kind = "cgroup v1"

    def __init__(self, trees: dict[str, Path]) -> None:
        self._trees = trees
        self._shared: Path | None = None

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
        wanted = {*ALWAYS}
        wanted |= {"cpu"} if limits.cpu_milli else set()
        wanted |= {"devices"} if closed else set()
        wanted |= {"cpuset"} if cpus and self._shared else set()
        box = _BoxV1(self._trees, name, limits, wanted)
        box.limit(workload_class, closed)
        box.run_on(cpus, self._shared)
        return box

    def share_cpus(self, cpus: Iterable[int], own: Collection[str]) -> bool:
        parent = self._trees.get("cpuset")
        if parent is None:
            return False
        if self._shared is None:
            for name in ("cpuset.mems", "cpuset.cpus"):  # a new group has neither, and lets nobody in
                if not read(parent / name).strip() and not written(parent / name, read(parent.parent / name)):
                    return False
            shared = parent / SHARED
            shared.mkdir(exist_ok=True)
            if not written(shared / "cpuset.mems", read(parent / "cpuset.mems")):
                return False
            self._shared = shared
        return written(self._shared / "cpuset.cpus", listed(cpus))

    def close(self) -> None:
        for folder in dict.fromkeys(self._trees.values()):
            remove(folder / SHARED)
            remove(folder)
        for other in TOP.glob(f"*/{self._trees['freezer'].relative_to(TOP / 'freezer')}"):
            with contextlib.suppress(OSError):  # of a tree in which only a container's runtime has made it
                other.rmdir()


def find(parent: str) -> CgroupV1 | None:
    """Return the containment below `parent` in all trees that can be written; None without a freezer."""
    trees: dict[str, Path] = {}
    for controller in TREES:
        for mount in _MOUNTS.get(controller, (controller,)):
            folder = TOP / mount / parent
            try:
                if not folder.parent.exists() and not (TOP / mount / "tasks").exists():
                    continue
                folder.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(folder / "cgroup.procs", os.W_OK):
                trees[controller] = folder
                break
    return CgroupV1(trees) if "freezer" in trees else None
