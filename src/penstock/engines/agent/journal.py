"""The agent's journal: its actions on each process, so that a new worker can take over after a kill -9.

Appended without sync: it has to survive the worker, not the machine (a reboot ends all processes anyway). Each line
is written with one call before the thing it announces may have an effect.
"""

import contextlib
import os
from collections.abc import Set
from pathlib import Path
from typing import Literal

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import CheckpointSpec, ExitInfo
from penstock.core.model.resources import Resources
from penstock.privatefiles import write_whole

What = Literal["spawning", "started", "stopping", "exited", "forgotten"]


class JournalLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of one replica."""

    key: ReplicaKey
    what: What
    pid: int = 0
    ticks: int = 0
    """Start time of the process, to tell it from a later one with the same number."""
    kill_at_ms: int = 0
    exit: ExitInfo | None = None
    checkpoint: CheckpointSpec = CheckpointSpec()
    limits: Resources = Resources()
    account: str = ""
    """Of the machine, as which its programs run; empty: as the agent does, or the line is of an older version."""
    problem: str = ""
    """With `stopping`: the agent's reason to stop it; empty where the server ordered the stop."""
    cpus: tuple[int, ...] = ()
    """Processors that it has for itself; empty: it shares those of all."""
    devices: tuple[int, ...] = ()
    share_milli: int = 0
    """Of each device."""
    memory_limit_bytes: int = 0
    mps: int | None = None
    """The device of whose MPS daemon it is a client."""


class JournalReplica(msgspec.Struct):
    """State of a replica by all its journal lines."""

    key: ReplicaKey
    what: What
    pid: int = 0
    ticks: int = 0
    kill_at_ms: int = 0
    exit: ExitInfo | None = None
    checkpoint: CheckpointSpec = CheckpointSpec()
    limits: Resources = Resources()
    account: str = ""
    stopping: bool = False
    problem: str = ""
    cpus: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    share_milli: int = 0
    memory_limit_bytes: int = 0
    mps: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalLine).decode


class Journal:
    """Append-only file of lines; compacted whenever a worker starts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = replay(path)
        self._compact()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: JournalLine) -> None:
        os.write(self._file, _encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def _compact(self) -> None:
        lines = []
        for known in self.known.values():
            base = JournalLine(
                known.key,
                "spawning",
                checkpoint=known.checkpoint,
                limits=known.limits,
                account=known.account,
                cpus=known.cpus,
                devices=known.devices,
                share_milli=known.share_milli,
                memory_limit_bytes=known.memory_limit_bytes,
                mps=known.mps,
            )
            lines.append(_encode(base) + b"\n")
            if known.pid:
                lines.append(_encode(JournalLine(known.key, "started", known.pid, known.ticks)) + b"\n")
            if known.stopping:
                stop = JournalLine(known.key, "stopping", kill_at_ms=known.kill_at_ms, problem=known.problem)
                lines.append(_encode(stop) + b"\n")
            if known.exit is not None:
                lines.append(_encode(JournalLine(known.key, "exited", exit=known.exit)) + b"\n")
        write_whole(self._path, b"".join(lines), synced=False)


def replay(path: Path) -> dict[ReplicaKey, JournalReplica]:
    """Return the state of each replica in the journal that is not forgotten."""
    known: dict[ReplicaKey, JournalReplica] = {}
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return known
    for text in data.split(b"\n"):
        try:
            line = _decode(text)
        except msgspec.DecodeError:
            continue  # the last line of a worker that was killed while it wrote
        if line.what == "spawning":
            known[line.key] = JournalReplica(
                line.key,
                "spawning",
                checkpoint=line.checkpoint,
                limits=line.limits,
                account=line.account,
                cpus=line.cpus,
                devices=line.devices,
                share_milli=line.share_milli,
                memory_limit_bytes=line.memory_limit_bytes,
                mps=line.mps,
            )
        elif line.what == "forgotten":
            known.pop(line.key, None)
        else:
            _merge(known.setdefault(line.key, JournalReplica(line.key, "spawning")), line)
    return known


def _merge(entry: JournalReplica, line: JournalLine) -> None:
    entry.what = line.what
    if line.what == "started":
        entry.pid, entry.ticks = line.pid, line.ticks
    elif line.what == "stopping":
        entry.stopping, entry.kill_at_ms, entry.problem = True, line.kill_at_ms, line.problem
    elif line.what == "exited":
        entry.exit = line.exit


PROGRAMS_JOB = JobId(0)
"""No job has this number: its replicas are programs that prepare something for replicas."""


def programs_in(journal: Journal) -> list[JournalReplica]:
    """Return the programs that a former worker was running, and take them out of what the journal knows: they are no
    replicas."""
    found = [known for known in journal.known.values() if known.key.job_id == PROGRAMS_JOB]
    for known in found:
        del journal.known[known.key]
    return found


class ExitBook:
    """Notes of the guardian for workers: exits of processes it inherited, and replicas it ended itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.exits: dict[tuple[int, int], tuple[int | None, int | None]] = {}
        """(pid, start ticks) to (exit code, signal)."""
        self.ended_by_lease: set[tuple[int, int]] = set()
        """Leaders of replicas that the guardian ended because the lease was over."""

    def add(self, pid: int, ticks: int, code: int | None, signal: int | None) -> None:
        """Note an exit, before the process is reaped."""
        self._write(f"{pid} {ticks} {'-' if code is None else code} {'-' if signal is None else signal}\n")

    def add_ended_by_lease(self, pid: int, ticks: int) -> None:
        """Note that a replica is about to be ended because the lease is over."""
        self._write(f"{pid} {ticks} lease -\n")

    def _write(self, line: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode("ascii"))
        finally:
            os.close(descriptor)

    def keep(self, wanted: Set[tuple[int, int]]) -> None:
        """Keep only lines about these (pid, start ticks). Only between two workers: no other process writes then.

        Every new worker reads the whole book, and is late by that much. A disk that is full leaves it as it is.
        """
        with contextlib.suppress(OSError):
            lines = [line for line in self._path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
            kept = [line for line in lines if (int(line.split()[0]), int(line.split()[1])) in wanted]
            write_whole(self._path, b"".join(kept), synced=False)

    def refresh(self) -> None:
        """Take in lines written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode("ascii").splitlines():
            pid, ticks, code, signal = line.split()
            if code == "lease":
                self.ended_by_lease.add((int(pid), int(ticks)))
                continue
            exit_code = None if code == "-" else int(code)
            self.exits[int(pid), int(ticks)] = (exit_code, None if signal == "-" else int(signal))
