"""The batch that the scheduler orders: in the environment at the start, in a file when it changes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

LOCAL_MAX = 2**31
ACCUMULATION_MAX = 2**16
_FILE_MAX_BYTES = 64

_log = logging.getLogger("penstock.training")


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank does of an update: `local` samples at once (>= 1), and so many further passes before it (>= 0)."""

    local: int
    accumulation: int = 0

    @property
    def samples(self) -> int:
        """Samples of one rank in one update."""
        return self.local * (self.accumulation + 1)


def parse_share(text: str) -> Share | None:
    """Return what `LOCAL,ACCUMULATION` says, or None where it says nothing of the kind."""
    words = text.strip().split(",")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() and len(word) <= 10 for word in words):
        return None
    local, accumulation = map(int, words)
    if not (1 <= local <= LOCAL_MAX and accumulation <= ACCUMULATION_MAX):
        return None
    return Share(local, accumulation)


class OrderFile:
    """The file that the agent replaces when the batch changes; looked at between two steps, which is one `stat`."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._said = False

    def newest(self) -> Share | None:
        """Return what the file says, once for each time that it was replaced; else None."""
        if self._path is None:
            return None
        try:
            about = os.stat(self._path)
            mark = (about.st_ino, about.st_mtime_ns, about.st_size)
            if mark == self._seen:
                return None
            with open(self._path, encoding="ascii", errors="replace") as file:
                text = file.read(_FILE_MAX_BYTES)
        except OSError:
            return None
        self._seen = mark
        share = parse_share(text)
        if share is None and not self._said:
            self._said = True
            _log.warning("an order to change the batch was not understood", extra={"text": text[:_FILE_MAX_BYTES]})
        return share
