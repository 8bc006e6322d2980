"""File operations that survive a crash or a power cut: bytes are on disk before the name that promises them.

Nothing here knows what a checkpoint is. All changes to a checkpoint directory go through these functions,
which call `os.mkdir`, `os.open`, `os.fsync`, `os.link` and `os.rename`, so that tests can fail each one of them.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import xxhash

Result = TypeVar("Result")
_NO_LINKS_HERE = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.ENOENT)


CHUNK_BYTES = 4 * 2**20
"""Written and hashed by turns: small enough for the second to find it in the cache."""
WRITERS = 4
"""Files written at once: while one waits for the disk, another is copied into its cache."""
_SUPPORTED: dict[str, Callable[[], Any]] = {"xxh3": xxhash.xxh3_128, "sha256": hashlib.sha256}
CHECKSUM = "xxh3"
"""128 bits against disks and crashes, not against an adversary; ten times as fast as SHA-256."""


@dataclass(frozen=True, slots=True)
class Written:
    """Size (bytes) and checksum (`kind:hex`) of the bytes written."""

    size_bytes: int
    checksum: str


def checksum(windows: Iterable[memoryview | bytes], kind: str = CHECKSUM) -> str:
    """Return the checksum of all bytes in order, as `kind:hex`. Raises: ValueError for an unknown kind."""
    if kind not in _SUPPORTED:
        raise ValueError(f"checksum kind {kind!r} is unknown; expected one of {', '.join(_SUPPORTED)}")
    digest = _SUPPORTED[kind]()
    for window in windows:
        digest.update(window)
    return f"{kind}:{digest.hexdigest()}"


def write_file(path: Path, windows: Iterable[memoryview | bytes]) -> Written:
    """Create `path` (which must not exist) from `windows`, on disk when this returns.

    The checksum is of the bytes given, not of those a disk returns. The name itself is durable only after
    `sync_folder` of the parent. Raises: OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        written = pass_on(windows, lambda chunk: _write_all(descriptor, chunk))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return written


def pass_on(windows: Iterable[memoryview | bytes], write: Callable[[memoryview], object]) -> Written:
    """Give `write` all bytes in order, in pieces of up to `CHUNK_BYTES`; return size and checksum."""
    digest = _SUPPORTED[CHECKSUM]()
    size_bytes = 0
    for window in windows:
        for first in range(0, len(window), CHUNK_BYTES):
            chunk = memoryview(window)[first : first + CHUNK_BYTES]
            write(chunk)
            digest.update(chunk)
            size_bytes += len(chunk)
    return Written(size_bytes, f"{CHECKSUM}:{digest.hexdigest()}")


def _write_all(descriptor: int, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]


def write_bytes(path: Path, data: bytes) -> Written:
    """Like `write_file`, for contents that are already in memory."""
    return write_file(path, [data])


def take_over(source: Path, target: Path, *, linked: bool) -> Written:
    """Give `target` the contents of the file `source`, on disk when this returns.

    Args:
        linked: where that is possible, as a second name of the same file: then it must not be written to any more.
    Raises: OSError.
    """
    source = source.resolve()
    with source.open("rb", buffering=0) as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        if not linked or not link(source, target, names_max=2):
            return write_file(target, chunks)
        written = pass_on(chunks, len)
        os.fsync(file.fileno())
        return written


class SummedFile(io.BufferedWriter):
    """A new file that another library writes from front to back: on disk when it is closed, its sum in `written`.

    Raises: OSError, also where `path` exists; io.UnsupportedOperation for going back within the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "xb"))
        self._digest = _SUPPORTED[CHECKSUM]()
        self._size_bytes = 0

    def write(self, data: Any, /) -> int:
        self._digest.update(data)
        written = super().write(data)
        self._size_bytes += written
        return written

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("a file that is summed up can only be written from front to back")

    def close(self) -> None:
        """Sync, then close; the writing library does not always sync, or flushes too late for it."""
        try:
            if not self.closed:
                self.flush()
                os.fsync(self.fileno())
        finally:
            super().close()

    @property
    def written(self) -> Written:
        """Size and checksum so far."""
        return Written(self._size_bytes, f"{CHECKSUM}:{self._digest.hexdigest()}")


def at_once(path: str, flags: int) -> int:
    """Open a file for `open(opener=...)` without waiting: a pipe in its place would block the reader."""
    return os.open(path, flags | os.O_NONBLOCK)


def in_parallel(tasks: Sequence[Callable[[], Result]], threads: int = WRITERS) -> list[Result]:
    """Return the results of all tasks in order; the first failure ends those that have not begun, and is raised."""
    if len(tasks) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks)), thread_name_prefix="penstock-write") as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def link(source: Path, target: Path, *, names_max: int) -> bool:
    """Give the file `source` a second name; False where it has `names_max` names, or files have only one here."""
    try:
        if os.stat(source).st_nlink >= names_max:
            return False
        os.link(source, target)
    except OSError as error:
        if error.errno in _NO_LINKS_HERE:
            return False
        raise
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one atomic step: a reader sees the old contents or the new. Raises: OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    write_bytes(temporary, data)
    move(temporary, path)


def create_folder(path: Path) -> None:
    """Make `path`, which must not exist; its parent must. Raises: OSError."""
    os.mkdir(path)


def sync_folder(path: Path) -> None:
    """Make the names inside `path` durable. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Rename within one parent folder, durable when this returns. Raises: OSError."""
    os.rename(source, target)
    sync_folder(target.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder and all in it. Not atomic: first give it a name that is never read. Raises: OSError."""
    shutil.rmtree(path)
