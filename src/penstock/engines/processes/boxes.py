"""The interface of process boxes of all kinds."""

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Protocol

from penstock.core.model.resources import Resources
from penstock.engines.processes.procfs import Process


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

    def freeze(self) -> bool:
        """Begin to take all processor time from the processes; return False where that cannot be done."""
        ...

    def frozen(self) -> bool:
        """Return whether nothing inside runs any more."""
        ...

    def thaw(self) -> None:
        """Let the processes go on; no effect where they were not frozen."""
        ...

    def note(self) -> str:
        """Return the box's explanation of a death, or ''."""
        ...

    def remove(self) -> None:
        """Drop the empty box."""
        ...


class Containment(Protocol):
    kind: str

    def box(self, name: str, limits: Resources, leader: Process | None = None, closed: Sequence[str] = ()) -> Box:
        """Return a new box with limits, or the present one of that name after a restart of the agent.

        Args:
            closed: device files that stay closed to the processes, as `c MAJOR:MINOR`; only by version 1.
        """
        ...

    def close(self) -> None:
        """Drop the parent of the boxes, if all are gone."""
        ...


def kill_inside(box: Box) -> bool:
    """Kill everything in the box once; return whether it is empty. To be repeated until it is."""
    pids = box.pids()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if pids:
        box.thaw()  # frozen processes do not die (control groups of version 1)
    return not pids and box.empty()
