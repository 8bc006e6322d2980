"""File operations that survive a crash or a power cut: bytes are on disk before the name that promises them.

Nothing here knows what a checkpoint is. All changes to a checkpoint directory go through these functions,
which call `os.mkdir`, `os.open`, `os.fsync` and `os.rename`, so that tests can fail each one of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Sink(Protocol):
    """What a writer of a blob may use: sequential writes only."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int: ...

    def flush(self) -> None: ...


Writer = Callable[[Sink], None]


@dataclass(frozen=True, slots=True)
class Written:
    """Size (bytes) and SHA-256 (lower-case hex) of what went to disk."""

    size_bytes: int
    sha256: str


class _HashingSink:
    """Counts and hashes on the way, so that the checksum is of what was meant, not of what a disk returns."""

    def __init__(self, file: Sink) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        view = memoryview(data)
        self._file.write(view)
        self._digest.update(view)
        self._size_bytes += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        self._file.flush()

    def written(self) -> Written:
        return Written(self._size_bytes, self._digest.hexdigest())


def write_file(path: Path, writer: Writer) -> Written:
    """Create `path` (which must not exist) from `writer`, on disk when this returns.

    The name itself is durable only after `sync_folder` of the parent. Raises: OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        sink = _HashingSink(file)
        writer(sink)
        file.flush()
        os.fsync(file.fileno())
    return sink.written()


def write_bytes(path: Path, data: bytes) -> Written:
    """Like `write_file`, for contents that are already in memory."""

    def writer(sink: Sink) -> None:
        sink.write(data)

    return write_file(path, writer)


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
    """Delete a folder and all in it. Not atomic: first give it a name that nobody reads. Raises: OSError."""
    shutil.rmtree(path)
