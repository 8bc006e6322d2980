"""Folders of mount points, in which Charliecloud shows an image with what a replica brings: it makes none itself."""

# root's: mount points lie in a folder of the agent's, which no account may write

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.engines.containers.commands import Container, layers

FOLDERS = ("dev", "proc", "sys", "tmp", "etc")
FILES = ("etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", "etc/machine-id")
"""What Charliecloud mounts by itself, before anything of the image is shown."""


def make_root(root: Path, container: Container, inside: Callable[[str], Iterable[str]]) -> None:
    """Make the mount points of an image and of the mounts of its container. Raises: OSError."""
    remove_root(root)
    for name in FOLDERS:
        (root / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in FILES:
        (root / name).touch(0o644)
    for layer in layers(container, inside):
        at = root / layer.path.lstrip("/")
        if layer.kind == "link":
            at.symlink_to(layer.source)
        else:
            _point(at, folder=layer.kind != "file")
    for mount in container.mounts:
        _point(root / mount.target.lstrip("/"), folder=mount.target not in container.files)
    for folder in (root, *(root / name for name in FOLDERS)):
        folder.chmod(0o755)


def _point(at: Path, *, folder: bool) -> None:
    at.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if folder:
        at.mkdir(mode=0o755, exist_ok=True)
    elif not at.exists():
        at.touch(0o644)


def remove_root(root: Path) -> None:
    """Remove mount points; nothing is mounted there in this namespace."""
    shutil.rmtree(root, ignore_errors=True)
