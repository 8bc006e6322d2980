"""The lease of a node's processes as its worker and its guardian share it, and whether a server can extend it."""

import fcntl
import mmap
import os
import struct
from pathlib import Path

from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import open_own


class LeaseCell:
    """The lease's end in a small shared file, so that the guardian can act on it while the worker cannot."""

    def __init__(self, path: Path) -> None:
        descriptor = open_own(path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, 8)
            self._map = mmap.mmap(descriptor, 8)
        finally:
            os.close(descriptor)

    def get(self) -> int | None:
        (value,) = struct.unpack("<q", self._map[:8])
        return value or None

    def set(self, until_ms: int | None) -> None:
        self._map[:8] = struct.pack("<q", until_ms or 0)


def server_is_gone(data: DataFolder) -> bool:
    """Return whether surely no server lives: the server's lock is free, and the log is in this folder."""
    if data.store_address.exists():
        return False  # a server elsewhere may have taken over
    try:
        descriptor = os.open(data.server_lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
