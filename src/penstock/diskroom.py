"""Whether the disk of a folder is full."""

import os
from pathlib import Path

from penstock.core.model.quantities import format_size

FULL_BYTES = 256 * 2**10
"""With less room than this a disk is full."""
AGAIN_BYTES = 2**20
"""With this much it is full no more: who acts on it does not go to and fro at each file that comes and goes."""


NEARLY_BYTES, NEARLY_FILES = 64 * 2**20, 4_096


def is_nearly_full(folder: Path) -> bool:
    """Return whether a file that is made in a moment may be one too many. Cheap."""
    try:
        known = os.statvfs(folder)
    except OSError:
        return True
    short = known.f_files and known.f_favail < NEARLY_FILES  # some file systems do not count them
    return bool(short) or known.f_bavail * known.f_frsize < NEARLY_BYTES


def why_full(folder: Path, least_bytes: int = FULL_BYTES) -> str:
    """Return that the disk takes no more, in words; '' where it does, or cannot be asked. Cheap."""
    try:
        known = os.statvfs(folder)
    except OSError:
        return ""
    free_bytes = known.f_bavail * known.f_frsize
    if known.f_blocks and free_bytes < least_bytes:
        return f"its disk is full: {format_size(free_bytes)} are free"
    if known.f_files and not known.f_favail:
        return "its disk is full: it takes no more files, though it has room"
    return ""
