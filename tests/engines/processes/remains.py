"""What is left of process trees, found without the engine's help: from /proc, from locks, from control groups."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MARK_VARIABLE = "LEAK_MARK"


def marked(mark: str) -> dict[int, list[str]]:
    """Return, by attempt, the living processes that carry its mark: "number state command"."""
    pattern = re.compile(re.escape(mark.encode()) + rb"-(\d+)")
    found: dict[int, list[str]] = {}
    for pid in numbers():
        command = read(pid, "cmdline")
        text = command + read(pid, "environ")
        if not text:  # a zombie, or a process whose first thread has ended: then another one knows
            command = b"".join(read(pid, f"task/{task}/cmdline") for task in _tasks(pid))
            text = command + b"".join(read(pid, f"task/{task}/environ") for task in _tasks(pid))
        match = pattern.search(text)
        if match is not None:
            line = f"{pid} {state_of(pid)} {command.replace(bytes(1), b' ').decode(errors='replace')[:300]}"
            found.setdefault(int(match[1]), []).append(line)
    return found


def noted(notes: Path) -> set[tuple[int, int]]:
    """Return (number, start ticks) of every process that noted itself."""
    with contextlib.suppress(FileNotFoundError):
        return {(int(w[0]), int(w[1])) for w in map(str.split, notes.read_text(encoding="ascii").splitlines())}
    return set()


def complete(notes: Path) -> bool:
    return notes.exists() and "complete" in notes.read_text(encoding="ascii")


def left_at(notes: Path) -> float | None:
    with contextlib.suppress(FileNotFoundError):
        words = [line.split() for line in notes.read_text(encoding="ascii").splitlines()]
        return next((float(w[3]) for w in words if w[2] == "left"), None)
    return None


def still_there(noted: Iterable[tuple[int, int]]) -> list[str]:
    """Return those of the processes that still exist, zombies included: "number state"."""
    found = []
    for pid, ticks in noted:
        fields = _stat(pid)
        if fields and int(fields[19]) == ticks:
            found.append(f"{pid} {state_of(pid)}")
    return found


def state_of(pid: int) -> str:
    """Return the state of a process: of any thread that has not ended, if there is one."""
    states = [read(pid, f"task/{task}/stat").rpartition(b")")[2].split()[:1] for task in _tasks(pid)]
    return next((s[0].decode() for s in states if s and s[0] not in (b"Z", b"X")), "Z")


def _stat(pid: int) -> list[bytes]:
    return read(pid, "stat").rpartition(b")")[2].split()


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _tasks(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/task")
    return []


def read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def groups(parent: str, name: str = "") -> list[Path]:
    """Return the control groups of that name below the agent's, or all of the agent's, its own included."""
    below = f"{parent}/{name}" if name else f"{parent}/**/"
    return [path for pattern in (below, f"*/{below}") for path in GROUPS.glob(pattern) if path.is_dir()]


def unlocked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
