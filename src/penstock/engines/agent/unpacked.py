"""The files of an unpacked snapshot, made in a folder of the agent's own."""

# root's: trees are filled in the agent's own folder, before their account can pass them

import os
from collections.abc import Sequence
from pathlib import Path

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
