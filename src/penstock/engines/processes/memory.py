"""The memory of boxes that no control group of their own limits.

Inside another scheduler's allocation the groups are that scheduler's, and it finds the processes of a job by them. Of
version 1 of control groups the tree of memory is apart from the one by which processes are found: boxes get groups
there, below the allocation's. Of version 2 there is one tree: a process in a group of ours would be where nobody
looks for it. There, and where no groups can be made, the processes of a box are weighed twice a second.
"""

import os
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path

from penstock.core.model.quantities import format_size
from penstock.core.model.resources import Resources
from penstock.engines.processes import procfs
from penstock.engines.processes.cgroup_files import (
    counters,
    number,
    out_of_memory,
    pids,
    read,
    remove_all,
    written,
)

WEIGHED_SHARE = 20
"""The agent pauses between two reads of processes' memory for this many times as long as the last read took."""
MEMORY_TREE = Path("/sys/fs/cgroup/memory")
OF_SLURM = re.compile(r"/slurm[^/]*/uid_\d+/job_\d+(/|$)")
"""Its groups of version 1 for the processes of a job. Source: cgroup_v1.c and xcgroup.c of Slurm 22.05."""
GROUP = "penstock-"
"""How names of our groups begin."""


class Scale:
    """Weighs the processes of one box against their limit."""

    def __init__(self, limits: Resources) -> None:
        self._limit = limits.memory_bytes
        self._next_s = 0.0

    def exceeded(self, members: Callable[[], Collection[int]]) -> str:
        """Return that the processes of the box hold more than their limit, in words with numbers, or ''.

        What several processes share counts once: first a sum that counts it for each of them, which costs little, and
        only where that is above the limit the exact one. A job of many processes is weighed less often, so that it
        does not take the agent's time from others.
        """
        begun_s = time.monotonic()
        if not self._limit or begun_s < self._next_s:
            return ""
        pids = members()
        held = procfs.resident_bytes(pids)
        if held > self._limit:
            held = procfs.proportional_bytes(pids)
        ended_s = time.monotonic()
        self._next_s = ended_s + WEIGHED_SHARE * (ended_s - begun_s)
        if held <= self._limit:
            return ""
        return f"out of memory: limit {format_size(self._limit)}, {format_size(held)} held, ended by the node's agent"


class MemoryGroup:
    """A group of version 1 with a limit, below an allocation's."""

    def __init__(self, folder: Path, limits: Resources) -> None:
        self._folder, self._limits = folder, limits

    @property
    def gate(self) -> str:
        return str(self._folder / "cgroup.procs")

    def pids(self) -> list[int]:
        return pids(self._folder)

    def held(self) -> tuple[int | None, int | None]:
        """Return how much it holds now, without files that nobody has used lately, and the most it has held."""
        now = number(self._folder / "memory.usage_in_bytes")
        if now is not None:
            now = max(0, now - counters(self._folder / "memory.stat").get("total_inactive_file", 0))
        return now, number(self._folder / "memory.max_usage_in_bytes")

    def note(self) -> str:
        killed = counters(self._folder / "memory.oom_control").get("oom_kill", 0)
        reached = read(self._folder / "memory.failcnt").strip() not in ("", "0")
        return out_of_memory(self._limits, killed, reached=reached)

    def remove(self) -> None:
        remove_all(self._folder)


class MemoryGroups:
    """Makes groups below the one of an allocation."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent

    def group(self, name: str, limits: Resources) -> MemoryGroup | None:
        """Return the group of a box, new or as it is; None where there is no limit, or none can be set."""
        folder = self._parent / f"{GROUP}{name}"
        if folder.is_dir():
            return MemoryGroup(folder, limits)
        if not limits.memory_bytes:
            return None
        try:
            folder.mkdir()
        except OSError:
            return None
        if written(folder / "memory.limit_in_bytes", str(limits.memory_bytes)):
            return MemoryGroup(folder, limits)
        remove_all(folder)
        return None


def groups_of_slurm() -> MemoryGroups | None:
    """Return what makes groups below this process's own, if Slurm has made that one, and it can be divided."""
    for line in read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        parent = MEMORY_TREE / path.lstrip("/")
        if controllers == "memory" and OF_SLURM.match(path):
            # Without use_hierarchy what is in groups below would not count against the allocation.
            whole = read(parent / "memory.use_hierarchy").strip() == "1"
            return MemoryGroups(parent) if whole and os.access(parent, os.W_OK) else None
    return None
