"""This machine's resources beside accelerators: CPUs, memory, scratch space."""

import os
import shutil
from pathlib import Path

import psutil

from penstock.core.model.resources import Resources

MEMORY_SHARE_USABLE = 0.9
"""Share of the host's memory that jobs may be given; the rest is the system's."""


def host_resources(scratch: Path) -> Resources:
    """Return the CPUs, memory and free scratch space that this process may use."""
    cpus = len(os.sched_getaffinity(0))
    return Resources(
        cpu_milli=cpus * 1000,
        memory_bytes=int(psutil.virtual_memory().total * MEMORY_SHARE_USABLE),
        storage_bytes=shutil.disk_usage(scratch).free,
    )
