"""Messages between `srun` and the places of a job, over TCP: kind, task, length, bytes."""

import contextlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct(">cII")
FRAME_MAX_BYTES = 4 * 2**20
"""A longer frame ends the connection."""
TOKEN, START, INPUT, SIGNAL, WATCH = b"T", b"S", b"I", b"K", b"W"
"""To a place. An INPUT without bytes ends the tasks' standard input."""
OUTPUT, ERROR, ENDED, FAULT = b"O", b"E", b"X", b"F"
"""From a place."""
PLACE_S = 60.0
"""How long is waited for a place that is still starting."""


class Address(NamedTuple):
    """Where a place of a job listens, and what one says there first."""

    host: str
    port: int
    token: str


class Channel:
    """A connection that sends and receives frames; several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, kind: bytes, task: int = 0, data: bytes = b"") -> None:
        with self._sending:
            self._connection.sendall(_HEAD.pack(kind, task, len(data)) + data)

    def receive(self) -> tuple[bytes, int, bytes] | None:
        """Return the next frame, or None at the end of the connection."""
        try:
            head = self._exactly(_HEAD.size)
            if head is None:
                return None
            kind, task, length = _HEAD.unpack(head)
            data = self._exactly(length) if 0 < length <= FRAME_MAX_BYTES else b"" if not length else None
        except OSError:
            return None
        return None if data is None else (kind, task, data)

    def _exactly(self, size: int) -> bytes | None:
        parts = []
        while size:
            part = self._connection.recv(min(size, 65_536))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """End the connection; a receiver in another thread returns."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def listening(host: str) -> tuple[socket.socket, Address]:
    """Return a socket that listens at any free port of an address of this node, and how it is reached."""
    listener = socket.create_server((host, 0), backlog=64)
    return listener, Address(host, listener.getsockname()[1], secrets.token_hex(16))


def own_host(master: str) -> str:
    """Return the address by which this node is seen from the first place of its job."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # sends nothing
        return str(probe.getsockname()[0])


def write_address(folder: Path, place: int, address: Address) -> None:
    """Write down where a place listens, for the user of the job alone: the token opens it."""
    partial = folder / f".place-{place}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(address, file)
    partial.rename(folder / f"place-{place}")


def connected(folder: Path, place: int, timeout_s: float = PLACE_S, *, over: Path | None = None) -> Channel:
    """Return a channel to a place of this job, once it listens.

    Args:
        over: a file that is there once nobody has to be waited for.
    Raises: TimeoutError, OSError.
    """
    deadline, pause = time.monotonic() + timeout_s, 0.02
    while True:
        try:
            address = Address(*json.loads((folder / f"place-{place}").read_text()))
            connection = socket.create_connection((address.host, address.port), timeout=max(1.0, timeout_s))
            break
        except (OSError, ValueError, TypeError) as error:
            if time.monotonic() >= deadline or (over is not None and over.exists()):
                raise TimeoutError(f"place {place} of the job cannot be reached: {error}") from error
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)
    connection.settimeout(None)
    channel = Channel(connection)
    channel.send(TOKEN, 0, address.token.encode())
    return channel


def is_right(token: str, frame: tuple[bytes, int, bytes] | None) -> bool:
    """Return whether the first frame of a connection says the token of a place."""
    return frame is not None and frame[0] == TOKEN and hmac.compare_digest(frame[2], token.encode())
