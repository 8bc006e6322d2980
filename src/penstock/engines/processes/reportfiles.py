"""Report files as the numbers in them are shown: read in pieces, and kept small once their program has ended."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.core.model.pieces import even_pieces, whole_lines
from penstock.engines.processes import account_files

KEPT_MAX_BYTES = 1 << 20
"""Of the report of a program that has ended: some thousand lines, more than any curve has points."""
KEPT_PIECE_BYTES = 16_384


def read_report(path: Path, offset: int, limit: int) -> tuple[int, bytes] | None:
    """Return (bytes of the file, up to `limit` of them from `offset` on), or None when there is no such file."""
    with _opened(path, os.O_RDONLY) as (descriptor, size):
        return None if descriptor < 0 else (size, os.pread(descriptor, limit, offset))


def thin_report(path: Path) -> bool:
    """Keep evenly spread pieces of a report that is longer than `KEPT_MAX_BYTES`; return whether it was.

    Written over itself from its beginning: each piece moves towards the beginning or stays, so none is lost before
    it was read, and of a file that is cut short in the middle of this one line is torn.
    """
    with _opened(path, os.O_RDWR) as (descriptor, size):
        if descriptor < 0 or size <= KEPT_MAX_BYTES:
            return False
        end = 0
        for offset, length in even_pieces(size, KEPT_MAX_BYTES, KEPT_PIECE_BYTES):
            lines = whole_lines(os.pread(descriptor, length, offset), from_start=offset == 0)
            end += os.pwrite(descriptor, lines, end)
        os.ftruncate(descriptor, end)
    return True


@contextlib.contextmanager
def _opened(path: Path, mode: int) -> Iterator[tuple[int, int]]:
    """Give descriptor and size of a regular file without other links; -1 where it cannot be opened, or is none."""
    descriptor = -1
    try:
        with contextlib.suppress(OSError):
            descriptor = account_files.plain_file(path, mode)
        yield (-1, 0) if descriptor < 0 else (descriptor, os.fstat(descriptor).st_size)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
