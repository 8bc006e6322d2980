"""The files of an unpacked snapshot: made, read, compared and removed."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.core.model import folder_snapshots as fs


def places(files: fs.Files) -> dict[bytes, list[tuple[str, int]]]:
    """Return where each chunk belongs: files, and offsets (bytes) in them."""
    found: dict[bytes, list[tuple[str, int]]] = {}
    for one in files:
        for index, chunk in enumerate(one.chunks):
            found.setdefault(chunk, []).append((one.path, index * fs.CHUNK_BYTES))
    return found


def make_folders(root: Path, files: fs.Files) -> list[Path]:
    """Make the folders of a tree, and return them, parents first."""
    inside: set[str] = set()
    for one in files:
        parent = one.path.rpartition("/")[0]
        while parent and parent not in inside:
            inside.add(parent)
            parent = parent.rpartition("/")[0]
    folders = [root / path for path in sorted(inside)]
    for folder in folders:
        folder.mkdir(0o700)
    return folders


def write(path: Path, offset: int, data: bytes) -> None:
    """Write a piece of a file, which is made where there is none. Raises: OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(descriptor)


def read(path: Path, offset: int, size: int) -> bytes:
    """Return a piece of a file; less, or nothing, where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, size, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def complete(root: Path, files: fs.Files, folders: Sequence[Path]) -> None:
    """Add what has no content, and take the right to write away."""
    for one in files:
        if one.kind == "link":
            os.symlink(one.target, root / one.path)
            continue
        if not one.size:
            write(root / one.path, 0, b"")
        (root / one.path).chmod(0o555 if one.kind == "program" else 0o444)
    for folder in (*reversed(folders), root):
        folder.chmod(0o555)


def remove(path: Path) -> None:
    """Remove a tree. Its folders may not be written, which root need not mind: and it must not change modes in a folder
    that another account can put links into."""
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):
            path.chmod(0o700)
        for where, folders, _ in os.walk(path):
            for name in folders:
                with contextlib.suppress(OSError):
                    if not (Path(where) / name).is_symlink():
                        (Path(where) / name).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def state_of(root: Path) -> str:
    """Return a digest of what the kernel says of all entries of a tree. Raises: OSError."""
    found = []
    for where, folders, names in os.walk(root, onerror=_raise):
        for path in (where, *(os.path.join(where, name) for name in (*names, *folders))):
            about = os.lstat(path)
            found.append((path, about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    return hashlib.sha256(msgspec.msgpack.encode(sorted(found))).hexdigest()


def _raise(error: OSError) -> None:
    raise error
