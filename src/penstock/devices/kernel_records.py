"""New records of the kernel's log, `/dev/kmsg`, without waiting for one.

The log begins with the boot; what stood in it before the first reading comes first.
"""

import os
from collections.abc import Callable

KMSG = "/dev/kmsg"
RECORD_BYTES_MAX = 8192
"""Longer ones the kernel does not make."""
RECORDS_MAX = 50_000
"""That one reading takes; a log of 16 MiB has fewer."""


def open_kmsg() -> int:
    return os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class KernelRecords:
    """The records since the last reading. Containers and many users may not read the log: they have none.

    Args:
        opened: returns a descriptor that gives one record a read, and does not wait.
    """

    def __init__(self, opened: Callable[[], int] = open_kmsg) -> None:
        self._opened = opened
        self._file: int | None = None
        self._refused = False

    def new(self) -> list[str]:
        """Return the records since the last call, oldest first; the first call returns all that the kernel keeps."""
        if self._refused:
            return []
        if self._file is None:
            try:
                self._file = self._opened()
            except OSError:
                self._refused = True
                return []
        lines: list[str] = []
        while len(lines) < RECORDS_MAX:
            try:
                record = os.read(self._file, RECORD_BYTES_MAX)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before they were read: go on with the oldest
                continue
            except OSError:
                self.close()
                self._refused = True
                break
            if not record:
                break
            lines.append(record.decode("utf-8", errors="replace").partition("\n")[0])
        return lines

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None
