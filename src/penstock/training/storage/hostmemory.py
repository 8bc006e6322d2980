"""Host memory: how much this process may still take, of the machine and within its control group, and allocation.

Penstock enforces what a job asks for; beyond that the kernel kills it, so a copy of the state must fit within.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from pathlib import Path

_MADV_WIPEONFORK = 18
"""Of Linux; the module mmap does not name it. Unlike MADV_DONTFORK it leaves no hole that a child's unmapping hits."""
_UNLIMITED = 2**60
"""Version 1 says about 2**63 where there is no limit."""


def spare_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that are left, the least of machine and control groups; None where unknown.

    Args:
        root: holds `proc` and `sys`.
    """
    found = [_of_machine(root), *_of_groups(root)]
    known = [left for left in found if left is not None]
    return min(known, default=None)


def fresh(size_bytes: int) -> mmap.mmap:
    """Return zeroed memory (`size_bytes` > 0) with no page touched yet. Raises: MemoryError, OSError.

    Python's default is memory that a forked process shares: it would write into this one's. Huge pages were tried: a
    copy into them takes 0.87 times as long, but to get them 6 times where the page cache has filled the machine.
    """
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def keep_from_forks(memory: mmap.mmap) -> None:
    """Have forked processes see zeros there: with shared pages each write of this process would copy one first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel before 4.14
            memory.madvise(_MADV_WIPEONFORK)


def _of_machine(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_groups(root: Path) -> list[int | None]:
    found: list[int | None] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if not controllers:
            folder = root / "sys/fs/cgroup" / below
            found.append(_left(folder / "memory.max", folder / "memory.current"))
        elif "memory" in controllers.split(","):
            folder = root / "sys/fs/cgroup/memory" / below
            found.append(_left(folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes"))
    return found


def _left(limit: Path, usage: Path) -> int | None:
    """Return limit less usage; pages of files that were not read again lately can be given up."""
    most, used = _read(limit).strip(), _read(usage).strip()
    if not most.isdigit() or not used.isdigit() or int(most) >= _UNLIMITED:
        return None
    lines = (line.split() for line in _read(limit.with_name("memory.stat")).splitlines())
    cached = {name: int(value) for name, value in lines if name in ("inactive_file", "total_inactive_file")}
    return max(0, int(most) - int(used) + max(cached.values(), default=0))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
