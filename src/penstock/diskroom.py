"""Whether the disk of a folder is full."""

import os
from pathlib import Path

from penstock.core.model.quantities import format_size

FULL_BYTES = 256 * 2**10
"""With less room than this a disk is full."""
AGAIN_BYTES = 2**20
"""With this much it is full no more: who acts on it does not go to and fro at each file that comes and goes."""


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
