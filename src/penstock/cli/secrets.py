"""Keeps what is secret off the command line, where every user of a machine can read it."""

import contextlib
import ctypes
from pathlib import Path

ARG_START, ARG_END = 45, 46
"""Fields of /proc/self/stat after the name of the program: where the words of the command line lie. Source: proc(5)."""


def hide(secret: str | None) -> None:
    """Blot `secret` out of this process's command line, if it is a word of it and where the system lets us.

    It could be read until now: a file, PENSTOCK_STORE or ~/.pgpass is better.
    """
    if not secret or "@" not in secret:
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        if not 0 < start < end:
            return
        found = ctypes.string_at(start, end - start)
        word = secret.encode()
        at = found.find(word)
        while at >= 0:
            ctypes.memset(start + at, ord("x"), len(word))
            at = found.find(word, at + 1)
