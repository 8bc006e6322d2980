"""Boxes without control groups of their own: by session and a mark in the environment, which every user may use."""

import os
import time
from collections.abc import Collection, Iterable, Sequence

import msgspec

from penstock.core.model.jobs import WorkloadClass
from penstock.core.model.resources import Resources
from penstock.engines.processes import procfs
from penstock.engines.processes.boxes import Box, Usage
from penstock.engines.processes.memory import MemoryGroup, MemoryGroups, Scale
from penstock.engines.processes.procfs import Living, Process

LOOK_KEPT_S = 0.005
"""One look at all processes serves every session box for this long."""
QUIET_LOOKS = 2
"""Scans in a row that must find no process: one can miss a process born in it to a parent that ends in it."""
FORMER_LOOK_S = 5.0
"""A look that is no older says which processes to weigh, besides those that descend from the first one."""
DOUBT_MAX_S = 0.5
"""Time for which scans do not count because they find processes of unknown origin."""


class _Look(msgspec.Struct, frozen=True):
    """Which processes ran, between two moments (monotonic seconds)."""

    begun_s: float
    ended_s: float
    processes: tuple[Living, ...]


class _SessionBox:
    def __init__(
        self,
        containment: "SessionContainment",
        mark: str,
        limits: Resources,
        leader: Process | None,
        group: MemoryGroup | None,
    ) -> None:
        self._containment, self.mark, self._leader = containment, mark, leader
        self._group, self._scale = group, Scale(limits)
        self._since_s = time.monotonic()
        self._last: _Look | None = None
        self._former: _Look | None = None
        self._former_members: list[Living] = []
        self._quiet = 0
        self._doubted_s: float | None = None
        self._peak_bytes = 0

    @property
    def gates(self) -> tuple[str, ...]:
        return (self._group.gate,) if self._group is not None else ()

    def lead(self, leader: Process) -> None:
        self._leader, self._since_s = leader, time.monotonic()

    def pids(self) -> list[int]:
        """Return processes with the mark, in the leader's session, or in the group.

        Called again and again, until it is certain that they are gone: see `empty`.
        """
        look = self._containment.look(self._since_s)
        inside = [p.pid for p in self._members(look)]
        if self._group is not None:
            inside += set(self._group.pids()).difference(inside)
        if look is not self._last:
            self._last = look
            if inside:
                self._quiet, self._doubted_s = 0, None
            else:
                self._quiet = 0 if self._doubtful(look) else self._quiet + 1
        return inside

    def _members(self, look: _Look) -> list[Living]:
        session = self._session()
        return [one for one in look.processes if one.mark == self.mark or one.session == session]

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
        """Return the leader's session, unless its number was reused: then no process was left in it."""
        if self._leader is None or procfs.start_ticks(self._leader.pid) not in (None, self._leader.ticks):
            return None
        return self._leader.pid

    def kill(self) -> None:
        """A signal takes a process at a time."""

    def freeze(self) -> bool:
        """Processes and their parents notice a stop by a signal: that is not suspending."""
        return False

    def frozen(self) -> bool:
        return False

    def thaw(self) -> None:
        """Nothing was frozen."""

    def usage(self) -> Usage:
        """Return what the leader and its descendants use; orphans, and files that nobody may see, are left out."""
        if self._leader is None:
            return Usage()
        seen = procfs.tree_usage(self._leader)
        if self._group is not None:
            now, most = self._group.held()
            return msgspec.structs.replace(seen, memory_bytes=now, memory_peak_bytes=most)
        if seen.memory_bytes is not None:
            self._peak_bytes = max(self._peak_bytes, seen.memory_bytes)
        return msgspec.structs.replace(seen, memory_peak_bytes=self._peak_bytes or None)

    def exceeded(self) -> str:
        """Orphans are weighed once a look has seen them, descendants of the leader at once."""
        if self._group is not None or self._leader is None:
            return ""
        return self._scale.exceeded(self._weighed)

    def _weighed(self) -> set[int]:
        assert self._leader is not None
        former = self._containment.former_look()
        if former is not self._former:
            self._former, self._former_members = former, self._members(former)
        there = {one.pid for one in self._former_members if procfs.start_ticks(one.pid) == one.ticks}
        return procfs.tree(self._leader) | there

    def note(self) -> str:
        return self._group.note() if self._group is not None else ""

    def remove(self) -> None:
        if self._group is not None:
            self._group.remove()


class SessionContainment:
    """Boxes of processes that carry a mark in their environment, or are in the first one's session.

    Args:
        parent: part of the mark, as groups have it in their path: another cluster on this machine may have a node of
            the same name, and a job of the same number.
        groups: makes groups for the memory of boxes; None: it is weighed.
    """

    def __init__(self, parent: str, groups: MemoryGroups | None = None) -> None:
        self._parent, self._groups = parent, groups
        self._look = _Look(float("-inf"), float("-inf"), ())
        self._marks: dict[tuple[int, int], str] = {}

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
        group = self._groups.group(name, limits) if self._groups is not None else None
        return _SessionBox(self, f"{self._parent}/{name}", limits, leader, group)

    @property
    def kind(self) -> str:
        memory = "memory is weighed" if self._groups is None else "memory in groups of the allocation's"
        return f"sessions (no writable control groups: {memory}, limits of CPUs are not enforced)"

    def share_cpus(self, cpus: Iterable[int], own: Collection[str]) -> bool:
        return False

    def look(self, since_s: float) -> _Look:
        """Return a look that began after `since_s` and ended a moment ago at most: all boxes share it."""
        begun_s = time.monotonic()
        if self._look.begun_s <= since_s or self._look.ended_s < begun_s - LOOK_KEPT_S:
            processes = tuple(map(self._as_known, procfs.living()))
            self._look = _Look(begun_s, time.monotonic(), processes)
            self._marks = {(p.pid, p.ticks): p.mark for p in processes if p.mark}
        return self._look

    def former_look(self) -> _Look:
        """Return a look that may be some seconds old."""
        now_s = time.monotonic()
        return self.look(now_s - FORMER_LOOK_S) if self._look.ended_s < now_s - FORMER_LOOK_S else self._look

    def _as_known(self, process: Living) -> Living:
        """Return a process that has no environment now as the last look knew it: most are merely about to end."""
        mark = self._marks.get((process.pid, process.ticks), "") if process.unclear else ""
        return msgspec.structs.replace(process, mark=mark, unclear=False) if mark else process

    def close(self) -> None:
        """Nothing was made."""
