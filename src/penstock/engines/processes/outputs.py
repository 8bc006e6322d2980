"""Reads outputs of replicas. All virtual nodes share the data folder, so the server reads the files itself."""

import ctypes
import logging
import os
import re
from pathlib import Path

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.processes import account_files
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.reportfiles import read_report

log = logging.getLogger(__name__)

FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02
_BLOCK = 4096
ERROR_TAIL_BYTES = 16_384
ERROR_MAX_CHARS = 200
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt|Timeout|Failure)\b(: .*)?$")


class LocalOutputs:
    """The outputs below one data folder."""

    def __init__(self, data: DataFolder) -> None:
        self._data = data

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        """Return (attempt, rank, bytes) of each output of the job, in order."""
        found = self._data.outputs(job_id)
        return [(attempt, rank, path.stat().st_size) for attempt, rank, path in found]  # root's: the job's folder

    def size(self, job_id: JobId, attempt: AttemptNumber, rank: Rank) -> int | None:
        """Return the bytes of an output, with what was given up of it, or None when there is no such output."""
        try:
            return os.stat(
                self._data.output(ReplicaKey(job_id, attempt, rank)), follow_symlinks=False
            ).st_size  # root's: the job's folder
        except OSError:
            return None

    def read(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        """Return (where, up to `limit` bytes) from `offset` on, or None when there is no such output.

        Where the beginning was given up to keep the output within its bound, reading goes on behind the gap; or from
        the beginning of the newer output, on a file system without gaps.
        """
        return read_output(self._data.output(ReplicaKey(job_id, attempt, rank)), offset, limit)

    def read_report(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        """Return (bytes of the report file, up to `limit` of them from `offset` on), or None when there is none."""
        return read_report(self._data.report(ReplicaKey(job_id, attempt, rank)), offset, limit)


def read_output(path: Path, offset: int, limit: int) -> tuple[int, bytes] | None:
    """Return (where, up to `limit` bytes) of an output from `offset` on, as `LocalOutputs.read` does."""
    try:
        descriptor = account_files.plain_file(path)
    except OSError:
        return None
    try:
        try:
            if offset > os.fstat(descriptor).st_size:
                offset = 0
            offset = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError:
            return offset, b""
        return offset, os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)


def bound_output(path: Path, most_bytes: int) -> bool:
    """Give up the oldest half of an output that takes more than `most_bytes` on disk; return whether it did.

    A hole is punched, so that the program goes on writing where it was, offsets stay what they were, and no line
    is lost between copying and cutting, as with the usual copy-and-truncate rotation. Where the file system has no
    holes, all of it is given up: a full disk would cost more.
    """
    try:
        known = path.stat()  # root's: the job's folder
    except OSError:
        return False
    if known.st_blocks * 512 <= most_bytes:
        return False
    length = (known.st_size - most_bytes // 2) // _BLOCK * _BLOCK
    try:
        descriptor = account_files.plain_file(path, os.O_RDWR)
    except OSError:
        return False
    try:
        mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(descriptor, mode, ctypes.c_int64(0), ctypes.c_int64(length)):
            log.warning("all of an output was given up: the file system cannot punch holes: %s", path)
            os.ftruncate(descriptor, 0)  # writers append
    finally:
        os.close(descriptor)
    return True


def tell(path: Path, text: str) -> bool:
    """Add a line of Penstock's own to an output, where its owner looks; return whether that could be done.

    A line that the program has begun is ended before.
    """
    return add(path, f"penstock: {text}\n".encode(), line=True)


def add(path: Path, data: bytes, *, line: bool = False) -> bool:
    """Add to an output; return whether that could be done.

    Args:
        line: a line that was begun there is ended before.
    """
    try:
        descriptor = account_files.plain_file(path, os.O_RDWR | os.O_APPEND)
    except OSError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        begun = line and size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        return os.write(descriptor, b"\n" * begun + data) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def last_error(path: Path) -> str:
    """Return the last line of a program's output that names a Python error, shortened; or ''."""
    try:
        with os.fdopen(account_files.plain_file(path), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - ERROR_TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    found = [line.strip() for line in text.splitlines() if _ERROR.match(line.strip())]
    return found[-1][:ERROR_MAX_CHARS] if found else ""
