"""Processes as /proc shows them: start times (to tell a process from a later one with its number), and kin. How busy
the machine is.

A process whose first thread has ended looks like a zombie there, has no environment, and may go on for ever in its
other threads: only when they have ended too is it over.
"""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

REPLICA_MARK = "PENSTOCK_REPLICA"
LISTINGS_MAX = 5
"""One look lists the processes again until it finds no new one, or this often: some machines never stop forking."""
TREE_MAX = 10_000
"""Processes of one tree that are looked at."""
READ_BYTES = 65_536
ENVIRONMENT_MAX_BYTES = 8 * 2**20
"""No program is started with more: the kernel allows 6 MiB. But a program may name any of its memory its environment
(PR_SET_MM_MAP), and memory that it never wrote costs only who reads it."""
_ENDED = ("Z", "X")
_ENVIRONMENT_END = 48


class Process(msgspec.Struct, frozen=True):
    """One process and no later one with its number."""

    pid: int
    ticks: int


class Living(msgspec.Struct, frozen=True):
    """A process that runs, as it looked in one moment."""

    pid: int
    ticks: int
    parent: int
    session: int
    mark: str
    """Value of `PENSTOCK_REPLICA` in its environment, or ''."""
    unclear: bool
    """Without an environment for now: it is becoming another program, or is about to end."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the processes of one box have used, those that have ended included; None: not measured here."""

    cpu_us: int | None = None
    """Processor time since the start (microseconds)."""
    memory_bytes: int | None = None
    """Held now: without files in the kernel's cache that nobody has used lately."""
    memory_peak_bytes: int | None = None
    """The most that it has held, all cached files included."""
    read_bytes: int | None = None
    """From disks, since the start; files that were cached do not count."""
    written_bytes: int | None = None


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, zombies included; None when it is gone."""
    fields = _stat(str(pid))
    return int(fields[19]) if fields else None


def alive(pid: int, started: int) -> bool:
    """Return whether that very process still runs (a zombie does not)."""
    fields = _stat(str(pid))
    return fields is not None and int(fields[19]) == started and not _over(pid, fields)


def session_of(pid: int) -> int | None:
    fields = _stat(str(pid))
    return int(fields[3]) if fields else None


def name_of(pid: int) -> str:
    """Return the name of a process as the kernel keeps it, 15 characters of it; '' when it is gone."""
    return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def environment_of(pid: int) -> tuple[bytes, ...]:
    """Return the variables that a process began with, as `NAME=value`; none where they may not be read."""
    return tuple(_read(f"/proc/{pid}/environ").split(b"\0"))


def parent_of(pid: int) -> int | None:
    fields = _stat(str(pid))
    return int(fields[1]) if fields else None


def has_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open: the holder of a lock has, even if a pid file names another."""
    try:
        wanted = path.stat()
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):
                    return True
    except OSError:
        return False
    return False


def signal_holder(pid: int, path: Path, number: signal.Signals) -> bool:
    """Send a signal to a process if it has a file open; return whether it was sent.

    The number of an ended process may have been reused: the other process is not touched.
    """
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not has_open(pid, path):
            return False
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def catchers(leader: int, pids: Sequence[int], number: int) -> list[int]:
    """Return those of `pids` that catch a signal, from the leader down, without their descendants.

    A data loader's worker inherits the handler of the program, and would end.
    """
    children: dict[int, list[int]] = {}
    for pid in pids:
        children.setdefault(parent_of(pid) or 0, []).append(pid)
    found, reached = [], [leader]
    while reached:
        pid = reached.pop()
        if catches(pid, number):
            found.append(pid)
        else:
            reached += children.get(pid, [])
    return found


def _over(pid: int, fields: list[str]) -> bool:
    if fields[0] not in _ENDED:
        return False
    threads = [_stat(f"{pid}/task/{thread}") for thread in _threads(pid)]
    return all(found is None or found[0] in _ENDED for found in threads)


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _stat(process: str) -> list[str] | None:
    """Return the fields after the command name, which may hold spaces and brackets: state is the first."""
    text = _read(f"/proc/{process}/stat").decode(errors="replace")
    return text[text.rindex(")") + 2 :].split() if text else None


def _read(path: str) -> bytes:
    """Return a file's content, as much as an environment may have, or b'' when it cannot be read.

    Called thousands of times a second: nothing buffers.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces, left = [], ENVIRONMENT_MAX_BYTES
        while piece := os.read(descriptor, min(READ_BYTES, left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def living() -> Iterator[Living]:
    """Yield every running process, with those born during the scan; see `LISTINGS_MAX`."""
    seen: set[int] = set()
    for _ in range(LISTINGS_MAX):
        fresh = [pid for pid in all_pids() if pid not in seen]
        if not fresh:
            return
        seen.update(fresh)
        yield from filter(None, map(_living, fresh))


def _living(pid: int) -> Living | None:
    fields = _stat(str(pid))
    if fields is None or _over(pid, fields):
        return None
    headless = fields[0] in _ENDED
    where = [f"{pid}/task/{thread}" for thread in _threads(pid)] if headless else [str(pid)]
    mark = next(filter(None, map(_mark, where)), "")
    unclear = not (mark or headless) and fields[_ENVIRONMENT_END] == "0"
    return Living(pid, int(fields[19]), int(fields[1]), int(fields[3]), mark, unclear)


def _mark(process: str) -> str:
    environment = _read(f"/proc/{process}/environ")
    _, found, rest = (b"\0" + environment).partition(f"\0{REPLICA_MARK}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else ""


def tree_usage(leader: Process) -> Usage:
    """Return what a process and its living descendants use; what its children used that have ended counts too.

    Descendants whose parent has ended are not found: that would take a look at every process of the machine.
    """
    seen = tree(leader)
    if not seen:
        return Usage()
    ticks = sum(sum(map(int, fields[11:15])) for pid in seen if (fields := _stat(str(pid))) is not None)
    read_bytes, written_bytes = disk_bytes(seen)
    return Usage(
        cpu_us=ticks * 1_000_000 // os.sysconf("SC_CLK_TCK"),
        memory_bytes=resident_bytes(seen),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


def tree(leader: Process) -> set[int]:
    """Return a process and its living descendants, those of parents that have ended left out; none where it is gone."""
    if start_ticks(leader.pid) != leader.ticks:
        return set()
    seen, left = {leader.pid}, [leader.pid]
    while left and len(seen) <= TREE_MAX:
        pid = left.pop()
        children = {int(one) for task in _threads(pid) for one in _read(f"/proc/{pid}/task/{task}/children").split()}
        left += children - seen
        seen |= children
    return seen


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that processes have; what several of them share counts for each."""
    return sum(map(_resident, pids))


def _resident(pid: int) -> int:
    fields = _stat(str(pid))
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if fields is not None else 0


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory that processes have, of what is shared their parts: what they share among them counts once.

    Of a process that may not be looked into all that it has. Source: smaps_rollup in proc(5).
    """
    return sum(_proportional(pid) for pid in pids)


def _proportional(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(pid)


def disk_bytes(pids: Iterable[int]) -> tuple[int, int]:
    """Return how much processes have read from disks and written to them, and their children that have ended.

    Nothing of those that are gone, or that belong to another user where this one is not root.
    """
    moved = {b"read_bytes": 0, b"write_bytes": 0}
    for pid in pids:
        for name, _, value in (line.partition(b":") for line in _read(f"/proc/{pid}/io").splitlines()):
            if name in moved:
                moved[name] += int(value)
    return moved[b"read_bytes"], moved[b"write_bytes"]


class MachineCounters(NamedTuple):
    """Counters of a machine since it was booted; all 0 or None where they cannot be read."""

    busy_ticks: int
    """Of the processors that were asked about, added up."""
    all_ticks: int
    memory_milli: int | None
    """Part of the memory (thousandths) that no program could be given at present."""
    network_bytes: int | None
    """Over its network cards, both ways; None where it has none of its own, as in a container."""


def machine_counters(cpus: Collection[int]) -> MachineCounters:
    """Return the counters of the machine, of its processors those in `cpus`.

    Source: proc_stat(5), proc_meminfo(5) and proc_net_dev of Linux. `iowait` counts as idle.
    """
    wanted = {f"cpu{number}".encode() for number in cpus}
    busy = total = 0
    for line in _read("/proc/stat").splitlines():
        name, *fields = line.split()
        if name in wanted:
            ticks = [int(field) for field in fields[:8]]
            busy, total = busy + sum(ticks) - sum(ticks[3:5]), total + sum(ticks)
        elif not name.startswith(b"cpu"):
            break
    memory = {key: value.split()[0] for key, _, value in map(_parted, _read("/proc/meminfo").splitlines())}
    has, left = int(memory.get(b"MemTotal", 0)), int(memory.get(b"MemAvailable", 0))
    return MachineCounters(busy, total, 1000 * (has - left) // has if has else None, _network_bytes())


def _network_bytes() -> int | None:
    """Return what went over network cards; bridges and the like would count it again."""
    found: int | None = None
    for name, colon, value in map(_parted, _read("/proc/net/dev").splitlines()):
        if colon and os.path.exists(f"/sys/class/net/{os.fsdecode(name.strip())}/device"):
            fields = value.split()
            found = (found or 0) + int(fields[0]) + int(fields[8])
    return found


def _parted(line: bytes) -> tuple[bytes, bytes, bytes]:
    return line.partition(b":")


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
