"""How much host memory this process may still take: of the machine, and within its control group.

Penstock enforces what a job asks for; beyond that the kernel kills it, so a copy of the state must fit within.
"""

from __future__ import annotations

from pathlib import Path

_UNLIMITED = 2**60
"""Version 1 says about 2**63 where there is no limit."""


def spare_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that are left, the least of machine and control groups; None where nothing tells.

    Args:
        root: holds `proc` and `sys`.
    """
    found = [_of_machine(root), *_of_groups(root)]
    known = [left for left in found if left is not None]
    return min(known, default=None)


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
