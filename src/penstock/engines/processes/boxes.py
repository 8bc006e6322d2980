"""The interface of process boxes of all kinds."""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.jobs import CheckpointSpec, ExitInfo, WorkloadClass
from penstock.core.model.resources import Resources
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.procfs import Usage as Usage

CPU_PERIOD_US = 100_000
CPU_QUOTA_MIN_US = 1_000
SHARES_PER_CPU: dict[WorkloadClass, int] = {"training": 1024, "inference": 1024, "data": 512, "api": 256}
"""What a replica gets of CPUs that others want too, for each CPU that it asked for."""


def quota_us(cpu_milli: int) -> int:
    """Return the processor time for a replica in each period (microseconds)."""
    return max(CPU_QUOTA_MIN_US, CPU_PERIOD_US * cpu_milli // 1000)


def shares(cpu_milli: int, workload_class: WorkloadClass) -> int:
    """Return the CPU shares of a replica, as version 1 of control groups counts them: 1024 are one CPU's."""
    return max(2, SHARES_PER_CPU[workload_class] * cpu_milli // 1000)


class Box(Protocol):
    """Holds the processes of one replica."""

    @property
    def mark(self) -> str:
        """Return the `PENSTOCK_REPLICA` of the first process's environment."""
        ...

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
        """Return whether certainly no process is left, now that `pids` found none."""
        ...

    def kill(self) -> None:
        """Kill everything inside at once, also what is being born, as far as the kernel offers that."""
        ...

    def freeze(self) -> bool:
        """Begin to take all processor time from the processes; return False where that cannot be done."""
        ...

    def frozen(self) -> bool:
        """Return whether nothing inside runs any more."""
        ...

    def thaw(self) -> None:
        """Let the processes go on; no effect where they were not frozen."""
        ...

    def usage(self) -> Usage:
        """Return what the processes have used. Cheap: looks at nothing outside the box."""
        ...

    def exceeded(self) -> str:
        """Return that the processes hold more memory than their limit, in words; '' also where the kernel sees to it.

        To be called now and then: it looks at the processes of the box alone.
        """
        ...

    def note(self) -> str:
        """Return the box's explanation of a death, or ''."""
        ...

    def remove(self) -> None:
        """Drop the empty box."""
        ...


class Containment(Protocol):
    @property
    def kind(self) -> str:
        """What holds the processes, and what it does not enforce."""
        ...

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
        """Return a new box with limits, or the present one of that name, as it is, after a restart of the agent.

        Args:
            closed: device files that stay closed to the processes, as `c MAJOR:MINOR`.
            cpus: run on these alone; empty: on those of `share_cpus`.
        """
        ...

    def share_cpus(self, cpus: Iterable[int], own: Collection[str]) -> bool:
        """Keep all boxes to these CPUs but those with CPUs of their own; return False where that cannot be done.

        Args:
            own: names of boxes with CPUs of their own.
        """
        ...

    def close(self) -> None:
        """Drop the parent of the boxes, if all are gone."""
        ...


class Running(msgspec.Struct):
    """One replica with processes. `leader` is the program, whose exit counts; the box holds all of them."""

    key: ReplicaKey
    box: Box
    pid: int
    ticks: int
    checkpoint: CheckpointSpec
    ours: bool
    """Whether this worker is its parent; else the guardian notes its exit."""
    missing_since_ms: int | None = None
    exit: ExitInfo | None = None
    stopping: bool = False
    """It was asked to stop, and has its grace."""
    save_signal: str = ""
    """The signal that makes it save and carry on, as its program says."""
    devices: tuple[int, ...] = ()
    share_milli: int = 0
    """Its part of each device."""
    memory_limit_bytes: int = 0
    """Memory of each device that it may use; 0 where it has them whole."""
    why_stopped: str = ""
    """What it did that the agent stops it for; the note of its exit."""


def kill_inside(box: Box) -> bool:
    """Kill everything in the box once; return whether it is empty. To be repeated until it is."""
    pids = box.pids()
    if pids:
        box.kill()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if pids:
        box.thaw()  # frozen processes do not die (control groups of version 1)
    return not pids and box.empty()
