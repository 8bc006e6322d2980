"""An image made of nothing but a static busybox, for tests of real runtimes: nothing is pulled.

Where a program is missing a test is skipped, with the reason; in CI (CI=true) it fails: `install-system-packages.sh`
installs it.
"""

import functools
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

NAME = "localhost/penstock-test:1"
COMMANDS = (
    "sh",
    "true",
    "false",
    "sleep",
    "kill",
    "cat",
    "echo",
    "id",
    "env",
    "ls",
    "dd",
    "nc",
    "touch",
    "pwd",
    "head",
)


def need(*programs: str) -> None:
    """Skip the test that asks where a program is missing; in CI it fails."""
    missing = [
        one for one in (*programs, "busybox") if shutil.which(one, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    if missing:
        reason = f"not installed: {', '.join(missing)}"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)


def unpacked(folder: Path) -> Path:
    """Return a folder with the image in it."""
    root = folder / "image"
    if not root.exists():
        with tarfile.open(fileobj=io.BytesIO(archive())) as opened:
            opened.extractall(root, filter="tar")
    return root


@functools.cache
def imported() -> str:
    """Return the name of the image in this machine's Podman, root's or the caller's."""
    subprocess.run(["podman", "import", "--quiet", "-", NAME], input=archive(), check=True, capture_output=True)
    return NAME


@functools.cache
def archive() -> bytes:
    busybox = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("bin", "tmp", "etc", "dev", "proc", "sys", "mnt"):
            _add(archive, tarfile.DIRTYPE, name, mode=0o1777 if name == "tmp" else 0o755)
        _add(archive, tarfile.REGTYPE, "bin/busybox", busybox)
        _add(archive, tarfile.REGTYPE, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", mode=0o644)
        _add(archive, tarfile.REGTYPE, "etc/group", b"root:x:0:\n", mode=0o644)
        _add(archive, tarfile.REGTYPE, "bin/notes", b"not a program\n", mode=0o644)
        for command in COMMANDS:
            entry = tarfile.TarInfo(f"bin/{command}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return made.getvalue()


def _add(archive: tarfile.TarFile, kind: bytes, name: str, data: bytes = b"", *, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size = kind, mode, len(data)
    archive.addfile(entry, io.BytesIO(data))
