"""Control files of groups, as both versions of control groups have them: reading, writing, members, removal."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from penstock.core.model.quantities import format_size
from penstock.core.model.resources import Resources
from penstock.core.model.words import counted

TASKS_DIVISOR = 2
TASKS_MIN = 1_024
_PROC = Path("/proc/sys/kernel")


def pids(folder: Path) -> list[int]:
    """Return the processes in a group, and in groups that they made below it.

    Raises: OSError when a group that is there cannot be read: it must not be taken for an empty one.
    """
    members: list[int] = []
    for group, _, _ in os.walk(folder):
        try:
            members += map(int, Path(group, "cgroup.procs").read_text(encoding="ascii").split())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):  # gone, or a group of mere threads
                raise
    return members


def read(path: Path) -> str:
    """Return the text of a control file, '' where this kernel lacks it."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """Return the number that a control file holds; None where there is none, or it is `max`."""
    text = read(path).strip()
    return int(text) if text.isdecimal() else None


def write(path: Path, text: str) -> None:
    """Write a control file; if this kernel lacks it, the limit is not enforced. A group that is gone needs none."""
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EACCES, errno.EPERM):
            raise


def written(path: Path, text: str) -> bool:
    """Write a control file; return whether it is there and took it."""
    try:
        path.write_text(text, encoding="ascii")
    except OSError:
        return False
    return True


def remove_all(folder: Path) -> None:
    """Remove a group and those below it."""
    for group, _, _ in os.walk(folder, topdown=False):
        remove(Path(group))


def remove(folder: Path) -> None:
    """Remove a group, unless it has members or groups below it."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY, errno.EACCES):
            raise


def counters(path: Path) -> dict[str, int]:
    """Return the counters of a control file with one of them a line; none where the kernel lacks the file."""
    pairs = (line.split() for line in read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def out_of_memory(limits: Resources, killed: int, *, reached: bool) -> str:
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


def tasks_max(cpu_milli: int) -> int:
    """Return how many processes and threads a replica may have: its part of the CPUs, of half of what the machine can
    have.

    Programs that fork without end fail before the agent, other jobs and everybody else on the machine do.
    """
    most = (number(_PROC / name) for name in ("pid_max", "threads-max"))
    half = min((one for one in most if one), default=TASKS_MIN) // TASKS_DIVISOR
    return max(TASKS_MIN, half * min(cpu_milli, all_cpus := 1000 * (os.cpu_count() or 1)) // all_cpus)


def listed(cpus: Iterable[int]) -> str:
    """Return processor numbers as control files take them: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def unlisted(text: str) -> tuple[int, ...]:
    """Return the processor (or memory node) numbers of a list such as `0-3,8`, ascending; () for an empty one."""
    numbers: set[int] = set()
    for run in filter(None, text.strip().split(",")):
        first, _, last = run.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers))
