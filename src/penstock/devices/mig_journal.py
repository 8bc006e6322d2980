"""What a node did with MIG instances: whom each was given to, and steps that were begun.

A line is on the disk before the thing it announces is done. Read again after a crash it says who owns which slices, and
which step may be half done; what really is on the devices only the driver knows.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from penstock.privatefiles import write_whole

LINES_MAX = 10_000
"""Of a journal; what is in force takes far fewer."""
LOCK_WAIT_S = 30.0
LOCK_PAUSE_S = 0.05


class Place(NamedTuple):
    """A part of a device of this machine, by its uuid."""

    gpu: str
    profile: str
    start: int


class Given(msgspec.Struct, frozen=True):
    """An instance that an owner has."""

    place: Place
    uuid: str
    """Of the instance, as `CUDA_VISIBLE_DEVICES` takes it."""


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    what: Literal["given", "back", "destroy", "create", "done"]
    place: Place | None = None
    owner: str = ""
    uuid: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class MigJournal:
    """The lines of one node, in a file. Only the holder of the lock (`locked`) may use it.

    Args:
        read_only: leave the file as it is; nothing may be noted then, and no lock is needed.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.given: dict[str, Given] = {}
        """What each owner has."""
        self.begun: dict[Place, Literal["destroy", "create"]] = {}
        """Steps that may be half done."""
        with contextlib.suppress(FileNotFoundError):
            for text in path.read_bytes().split(b"\n"):
                with contextlib.suppress(msgspec.DecodeError):  # the last line of a writer that was killed
                    self._take(_decode(text))
        self._path, self._lines = path, 0
        self._file: int | None = None
        if not read_only:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Write a file that says what is so now, in place of all that led to it."""
        lines = [_Line("given", given.place, owner, given.uuid) for owner, given in self.given.items()]
        lines += [_Line(what, place) for place, what in self.begun.items()]
        write_whole(self._path, b"".join(_encode(line) + b"\n" for line in lines))
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.close()
        self._file, self._lines = file, len(lines)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def give(self, owner: str, given: Given) -> None:
        """Note that an owner has an instance from now on."""
        self._write(_Line("given", given.place, owner, given.uuid))

    def take_back(self, owner: str) -> None:
        """Note that an owner has nothing any more."""
        self._write(_Line("back", owner=owner))

    def begin(self, what: Literal["destroy", "create"], place: Place) -> None:
        """Note that a step is about to be done."""
        self._write(_Line(what, place))

    def end(self, place: Place) -> None:
        """Note that the step there is over, done or not: nothing of it is half done."""
        self._write(_Line("done", place))

    def _write(self, line: _Line) -> None:
        assert self._file is not None, "a journal that is only read"
        os.write(self._file, _encode(line) + b"\n")
        os.fsync(self._file)
        self._take(line)
        self._lines += 1
        if self._lines > LINES_MAX:
            self._begin_anew()

    def _take(self, line: _Line) -> None:
        if line.what == "back":
            self.given.pop(line.owner, None)
        elif line.place is None:
            return
        elif line.what == "given":
            self.given[line.owner] = Given(line.place, line.uuid)
        elif line.what == "done":
            self.begun.pop(line.place, None)
        else:
            self.begun[line.place] = line.what


class LockHeld(Exception):
    """Another process changes the devices' instances, for too long."""


class MigLock:
    """Held while instances are changed. Tools inherit `descriptor`: one that outlives its agent still holds it."""

    def __init__(self, path: Path, pause: Callable[[float], object] = time.sleep) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pause = pause

    def close(self) -> None:
        os.close(self.descriptor)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Raises: LockHeld where another holds it for `LOCK_WAIT_S`."""
        for _ in range(round(LOCK_WAIT_S / LOCK_PAUSE_S)):
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self._pause(LOCK_PAUSE_S)
        else:
            raise LockHeld
        try:
            yield
        finally:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
