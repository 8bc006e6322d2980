"""The lease of a node's processes as its worker and its guardian share it, and the server that can extend it."""

import fcntl
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.core.model.nodes import NodeSpec
from penstock.engines.agent.protocol import ServerCertificate, ServerStored, ServerWelcome, ToServer
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import open_own


def boot_ms() -> int:
    """Return milliseconds since boot, time in suspend included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class LeaseCell:
    """The lease's end in a small shared file, so that the guardian can act on it while the worker cannot."""

    def __init__(self, path: Path) -> None:
        descriptor = open_own(path, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, 8)  # written to a hole of a full disk, the mapping would kill the writer
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
    if data.store_address.exists() or data.link.exists():
        return False  # a server elsewhere may have taken over, or is elsewhere
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


class AnnouncedServer:
    """The server of this machine, as it announces itself in the data folder that it shares with its agents.

    The agent of another machine has `engines.agent.apart.DistantServer` in its place.
    """

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._stamp, self._address = (0, 0), ("", 0)
        """Of the last announcement used, and its address."""

    @property
    def ready(self) -> bool:
        """Whether `dial` has a connection at once, that was made meanwhile."""
        return False

    def moved(self) -> bool:
        """Return whether another server has announced itself since: the connected one may be suspended."""
        former = self._address
        return self._read() and self._address != former

    def dial(self) -> socket.socket | None:
        """Return a new connection, or None."""
        self._read()
        try:
            there = self._data.server_info.exists()
            return socket.create_connection(self._address, timeout=1.0) if there else None
        except OSError:
            return None

    def begin(self, spec: NodeSpec, _link: socket.socket) -> NodeSpec:
        """Return what the node says of itself on a new connection."""
        return spec

    def failed(self, problem: str) -> None:
        """Take note why there is no session."""

    def welcome(self, welcome: ServerWelcome) -> None:
        """Take note that a session has begun."""

    def learn(self, servers: tuple[str, ...]) -> None:
        """Take note of where servers may be found from now on; () says nothing."""

    def messages(self) -> Iterable[ToServer]:
        """Return what is to be sent now, beside orders and reports."""
        return ()

    def take(self, message: ServerCertificate | ServerStored) -> None:
        """Take an answer to one of `messages`."""

    def _read(self) -> bool:
        """Take up the announcement as it is now; return whether it has changed."""
        try:
            known = self._data.server_info.stat()
            if (known.st_ino, known.st_mtime_ns) == self._stamp:
                return False
            info = msgspec.json.decode(self._data.server_info.read_bytes())
            self._stamp, self._address = (known.st_ino, known.st_mtime_ns), (info["agent_host"], info["agent_port"])
        except (OSError, msgspec.DecodeError, KeyError):
            return False
        return True
