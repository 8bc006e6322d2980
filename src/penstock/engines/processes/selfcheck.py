"""Checks whether a node can be trusted with work: its disk, its memory, and that its devices compute.

Started as `python -P -m penstock.engines.processes.selfcheck FOLDER`; exits with 0, or its last line names the fault.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock import starts

DISK_BYTES = 16 * 2**20
MEMORY_BYTES = 64 * 2**20
DEVICE_WAIT_S = 20


def main() -> None:
    """Run all checks. Raises: SystemExit with what is wrong."""
    for check in (disk, memory, devices):
        problem = check(Path(sys.argv[1]))
        if problem:
            sys.exit(problem)


def disk(folder: Path) -> str:
    """Write, sync and read back; return what is wrong, or ''."""
    pattern = os.urandom(DISK_BYTES)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".check-") as file:
            file.write(pattern)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            back = file.read()
    except OSError as error:
        return f"disk: {error}"
    return "" if back == pattern else "disk: what was read is not what was written"


def memory(_: Path) -> str:
    """Fill memory with two patterns and compare; return what is wrong, or ''."""
    for byte in (0x55, 0xAA):
        block = bytearray([byte]) * MEMORY_BYTES
        expected = hashlib.sha256(bytes([byte]) * MEMORY_BYTES).digest()
        if hashlib.sha256(block).digest() != expected:
            return "memory: what was read is not what was written"
    return ""


def devices(_: Path) -> str:
    """Ask NVIDIA's tool, where it is installed, whether all devices answer; return what is wrong, or ''."""
    tool = starts.tool("nvidia-smi")
    if tool is None:
        return ""
    query = [tool, "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader"]
    try:
        told = subprocess.run(  # noqa: S603
            query, capture_output=True, text=True, timeout=DEVICE_WAIT_S, check=False, cwd=starts.HOME
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"devices: {error}"
    if told.returncode:
        return f"devices: {(told.stderr or told.stdout).strip()[-200:]}"
    bad = [line for line in told.stdout.splitlines() if line.rpartition(",")[2].strip() not in ("0", "[N/A]", "")]
    return f"devices: uncorrected memory errors: {'; '.join(bad)}" if bad else ""


if __name__ == "__main__":
    main()
