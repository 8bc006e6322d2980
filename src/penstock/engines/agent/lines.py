"""A file of lines that can still be written when the disk is full, for a while.

Room is kept beyond its end beforehand, and renewed as it is used up. What cannot be written all the same is held in
memory, and written in its order once it can be.
"""

import ctypes
import errno
import logging
import os
import threading
from collections import deque
from pathlib import Path

log = logging.getLogger(__name__)

FALLOC_FL_KEEP_SIZE = 0x01
ROOM_BYTES = 2**20
"""Kept beyond the end: the lines of some thousand replicas from their starts to their ends."""
HELD_MAX = 10_000
"""Lines that wait in memory. Further ones are given up: a later worker reports those replicas as ended unseen."""
_NEVER = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)
"""The file system cannot keep room."""


class LineFile:
    """Adds lines to a file. Any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file = -1
        self._size = self._room_end = 0
        self._torn = False
        """The last line has no end: what comes next must not become a part of it."""
        self._held: deque[bytes] = deque()
        self._full = False
        self._problems = {"write": "", "room": ""}
        self.tend()

    @property
    def problem(self) -> str:
        """Why a line cannot be written now, or soon cannot be; or ''."""
        return self._problems["write"] or self._problems["room"]

    def write(self, line: bytes, *, held: bool = True) -> bool:
        """Add a line; return whether it is in the file.

        Args:
            held: else it is given up where it cannot be written now.
        """
        with self._lock:
            if len(self._held) >= HELD_MAX:
                if not self._full:
                    log.error("a line is given up: %d wait already for %s", HELD_MAX, self._path)
                self._full = True
                return False
            if self._held and not held and not self._flush():
                return False
            self._held.append(line)
            done = self._flush()
            if not done and not held:
                self._torn |= self._held.pop() != line
            return done

    def tend(self) -> None:
        """Write what is held, and keep room. To be called now and then."""
        with self._lock:
            self._flush()
            self._keep_room()

    def close(self) -> None:
        """Close the file. What is held is lost."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _flush(self) -> bool:
        try:
            if self._file < 0:
                self._open()
            while self._held:
                data = b"\n" * self._torn + self._held[0]
                written = os.write(self._file, data)
                if not written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._size, self._torn = self._size + written, False
                if written < len(data):
                    self._held[0] = data[written:]
                else:
                    self._held.popleft()
        except (OSError, MemoryError) as error:
            self._note("write", error)
            return False
        self._full, self._problems["write"] = False, ""
        if self._size > self._room_end - ROOM_BYTES // 2:
            self._keep_room()
        return True

    def _open(self) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._size = os.fstat(file).st_size
            self._torn = self._size > 0 and os.pread(file, 1, self._size - 1) != b"\n"
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def _keep_room(self) -> None:
        if self._file < 0 or self._size <= self._room_end - ROOM_BYTES // 2:
            return
        keep = ctypes.CDLL(None, use_errno=True).fallocate
        if keep(self._file, FALLOC_FL_KEEP_SIZE, ctypes.c_int64(self._size), ctypes.c_int64(ROOM_BYTES)):
            number = ctypes.get_errno()
            if number not in _NEVER:
                self._note("room", OSError(number, os.strerror(number)))
                return
        self._problems["room"], self._room_end = "", self._size + ROOM_BYTES

    def _note(self, what: str, error: OSError | MemoryError) -> None:
        if not self._problems[what]:
            log.error("%s: no %s: %s", self._path, what, error)
        self._problems[what] = getattr(error, "strerror", None) or "out of memory"
