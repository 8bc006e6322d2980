"""Locks and announcements of the servers on one data folder; a lock ends with its process.

A server whose log is in the folder is alone there. Of servers whose log is in a database one leads, and others wait.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.core.model.errors import PenstockError
from penstock.engines.processes import locks
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import new_beside, open_own

LOCK_WAIT_S = 3.0


class AlreadyRunning(PenstockError):
    code = "already_running"


def hold_server_lock(data: DataFolder, *, shared: bool = False) -> int:
    """Hold the lock that proves a server's life, for as long as the process lives.

    Args:
        shared: others may hold it too: servers whose log is in a database, where only one of them leads.
    Raises: AlreadyRunning when another server holds it.
    """
    descriptor = open_own(data.server_lock, os.O_RDWR)
    if not locks.take(descriptor, LOCK_WAIT_S, shared=shared):
        os.close(descriptor)
        raise AlreadyRunning(f"another server runs on {data.root}", hint="penstock down ends it")
    return descriptor


@contextlib.contextmanager
def alone(data: DataFolder) -> Iterator[None]:
    """Let one server at a time create the folder's files."""
    descriptor = open_own(data.setup_lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def waiting(data: DataFolder, info: Mapping[str, object]) -> Iterator[Callable[[], None]]:
    """Announce this standby until the yielded function is called, or the block ends."""
    path = data.standby_info(os.getpid())
    descriptor = _write_locked(path, msgspec.json.encode({**info, "pid": os.getpid()}))
    try:
        yield lambda: path.unlink(missing_ok=True)
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _write_locked(path: Path, data: bytes) -> int:
    """Write a file that only its owner can read, whole or not at all; return it open and locked."""
    descriptor, temporary = new_beside(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, data)
    temporary.rename(path)
    return descriptor


def waiting_servers(data: DataFolder) -> list[int]:
    """Return the processes of standbys on this folder; files of killed ones are removed."""
    found = []
    for path in data.root.glob("standby-*.json"):
        with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(int(path.stem.partition("-")[2]))
            else:
                path.unlink()
    return found
