"""The agent's journal: its actions on each process, so that a new worker can take over after a kill -9.

Appended without sync: it has to survive the worker, not the machine (a reboot ends all processes anyway). Each line
is written with one call before the thing it announces may have an effect; where the disk refuses it, nothing is
started, and what ends is noted later (`lines.py`).
"""

import logging
import mmap
import os
import signal
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import CheckpointSpec, ExitInfo
from penstock.core.model.resources import Resources
from penstock.engines.agent.lines import LineFile
from penstock.engines.processes import procfs
from penstock.engines.processes.boxes import Box
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.spawn import StartGate
from penstock.privatefiles import open_own, write_whole

log = logging.getLogger(__name__)

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
_LINE_BEGIN = b'{"key":'


class Journal:
    """Append-only file of lines; compacted whenever a worker starts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = replay(path)
        try:
            self._compact()
        except OSError as error:  # then it stays as it is
            log.warning("the journal was not compacted: %s", error)
        self._file = LineFile(path)

    @property
    def problem(self) -> str:
        """Why a line cannot be written now, or soon cannot be; or ''."""
        return self._file.problem

    def write(self, line: JournalLine) -> None:
        """Add a line, now or as soon as it can be."""
        self._file.write(_encode(line) + b"\n")

    def announce(self, line: JournalLine) -> None:
        """Add a line before what it says is done. Raises: OSError where it cannot be written: then that may not be."""
        if not self._file.write(_encode(line) + b"\n", held=False):
            raise OSError(f"the journal cannot be written: {self.problem}")

    def tend(self) -> None:
        """Write what waits, and keep room for more. To be called now and then."""
        self._file.tend()

    def close(self) -> None:
        self._file.close()

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
    for line in _lines(data):
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


def _lines(data: bytes) -> Iterator[JournalLine]:
    """Yield the lines; of one that was cut short, and of what else is none, only a whole one that was added to it."""
    for text in data.split(b"\n"):
        start = 0
        while start >= 0:
            try:
                yield _decode(text[start:])
                break
            except msgspec.DecodeError:
                start = text.find(_LINE_BEGIN, start + 1)


def _merge(entry: JournalReplica, line: JournalLine) -> None:
    entry.what = line.what
    if line.what == "started":
        entry.pid, entry.ticks = line.pid, line.ticks
    elif line.what == "stopping":
        entry.stopping, entry.kill_at_ms, entry.problem = True, line.kill_at_ms, line.problem
    elif line.what == "exited":
        entry.exit = line.exit


def announce_start(journal: Journal, key: ReplicaKey, box: Box, gate: StartGate) -> int:
    """Make the process behind a gate the first of its box, note it, and return its start ticks.

    Raises: OSError where it cannot be noted: it never ran then, and is gone.
    """
    try:
        ticks = procfs.start_ticks(gate.pid) or 0
        box.lead(Process(gate.pid, ticks))
        journal.announce(JournalLine(key, "started", gate.pid, ticks))
    except (OSError, MemoryError):
        os.kill(gate.pid, signal.SIGKILL)  # first: without its line it would say that its agent died
        gate.close()
        os.waitpid(gate.pid, 0)
        raise
    return ticks


PROGRAMS_JOB = JobId(0)
"""No job has this number: its replicas are programs that prepare something for replicas."""


def programs_in(journal: Journal) -> list[JournalReplica]:
    """Return the programs that a former worker was running, and take them out of what the journal knows: they are no
    replicas."""
    found = [known for known in journal.known.values() if known.key.job_id == PROGRAMS_JOB]
    for known in found:
        del journal.known[known.key]
    return found


GUARDIAN, WORKER = 0, 1
"""Who writes into an `ExitBook`; each has a part of its own."""
EXITS_KEPT_MAX = 2_048
"""Notes of each writer: the oldest is overwritten. A worker reads them within a second or two."""
_NOTE = struct.Struct("<QqihhI4x")
"""Number (from 1), start ticks, process number, exit code, signal, check sum of these."""
_NONE, _LEASE = -1, -2
_Exit = tuple[int | None, int | None]


class ExitBook:
    """Notes for the next worker: exits of processes that the guardian inherited, or that were reaped before their box
    was empty, and replicas that the guardian ended itself.

    A file of one size, which is on the disk from the beginning and mapped: what is noted needs no room, no call that
    could fail, and no worker that lives.
    """

    def __init__(self, path: Path, writer: int = WORKER) -> None:
        size = 2 * EXITS_KEPT_MAX * _NOTE.size
        descriptor = open_own(path, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._writer = writer
        self.resume()
        self._next = [0, 0]
        """Numbers of the notes to be read next; 0: nothing was read yet."""
        self.exits: dict[tuple[int, int], _Exit] = {}
        """(pid, start ticks) to (exit code, signal)."""
        self.ended_by_lease: set[tuple[int, int]] = set()
        """Leaders of replicas that the guardian ended because the lease was over."""

    def resume(self) -> None:
        """Note what comes behind what another process has noted as this writer."""
        self._number = max(self._numbers(self._writer), default=0) + 1

    def add(self, pid: int, ticks: int, code: int | None, signal: int | None) -> None:
        """Note an exit, before the process is reaped."""
        self._write(pid, ticks, _NONE if code is None else code, _NONE if signal is None else signal)

    def add_ended_by_lease(self, pid: int, ticks: int) -> None:
        """Note that a replica was ended because the lease is over."""
        self._write(pid, ticks, _LEASE, _NONE)

    def refresh(self) -> None:
        """Take in the notes since the last call."""
        for writer in (GUARDIAN, WORKER):
            self._next[writer] = self._next[writer] or self._oldest(writer)
            while (note := self._at(writer, self._next[writer])) is not None:
                if note[0] != self._next[writer]:  # as many came since as there is room for
                    self._next[writer] = self._oldest(writer)
                    continue
                self._next[writer] += 1
                _, ticks, pid, code, signal, _ = note
                if code == _LEASE:
                    self.ended_by_lease.add((pid, ticks))
                else:
                    self.exits[pid, ticks] = (None if code == _NONE else code, None if signal == _NONE else signal)

    def _write(self, pid: int, ticks: int, code: int, signal: int) -> None:
        note = (self._number, ticks, pid, code, signal)
        start = self._offset(self._writer, self._number)
        self._map[start : start + _NOTE.size] = _NOTE.pack(*note, _check_sum(note))
        self._number += 1

    def _offset(self, writer: int, number: int) -> int:
        return (writer * EXITS_KEPT_MAX + number % EXITS_KEPT_MAX) * _NOTE.size

    def _at(self, writer: int, number: int) -> tuple[int, ...] | None:
        """Return the note where this one belongs, it or a later one; None where it is not, or not wholly, written."""
        note = _NOTE.unpack_from(self._map, self._offset(writer, number))
        return note if note[0] >= number and note[-1] == _check_sum(note[:-1]) else None

    def _numbers(self, writer: int) -> list[int]:
        found = (self._at(writer, slot) for slot in range(EXITS_KEPT_MAX))
        return [note[0] for note in found if note is not None and note[0]]

    def _oldest(self, writer: int) -> int:
        return min(self._numbers(writer), default=1)


def _check_sum(note: tuple[int, ...]) -> int:
    return zlib.crc32(struct.pack("<Qqihh", *note))
