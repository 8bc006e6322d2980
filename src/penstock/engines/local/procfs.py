"""What /proc tells about processes: start times (to tell a process from a later one with its number), and kin."""

import os
from pathlib import Path

REPLICA_MARK = "PENSTOCK_REPLICA"


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, zombies included; None when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def alive(pid: int, started: int) -> bool:
    """Return whether that very process still runs (a zombie does not)."""
    fields = _stat(pid)
    return fields is not None and int(fields[19]) == started and fields[0] not in ("Z", "X")


def session_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[3]) if fields else None


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the command name, which may hold spaces and brackets: state is the first."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark: str) -> list[int]:
    """Return processes whose environment carries `PENSTOCK_REPLICA=mark`, zombies excluded."""
    wanted = f"{REPLICA_MARK}={mark}".encode()
    found = []
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(pid)
    return found


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
