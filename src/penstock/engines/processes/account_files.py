"""Files and folders that an account owns, as root touches them: by descriptor, following no links, waiting for none.

Theory. Who owns a folder may rename what is in it at any moment, and who owns a file may hold a lease on it or have put
a pipe in its place. So a path is good as far as it leads through folders that root alone may change; from there on each
step is taken from the descriptor of the last, no step follows a link, and nothing is opened before its descriptor has
shown what it is: to open a pipe or a device is an act of its own, and may wait. What is walked is bounded by number and
depth, what is removed by time. `docs/security.md` has the owners of all folders of a node; `scripts/check_folders.py`
finds operations by path in modules that touch those of accounts.
"""

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

ENTRIES_MAX = 1_000_000
"""Of one tree that is walked."""
DEPTH_MAX = 128
"""Folders of a tree that are open at once; what lies deeper is not walked."""
REMOVE_MAX_S = 30.0
"""For one tree; what is left then is left to the next time."""
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_AT_ONCE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TooLarge(OSError):
    """A tree has more entries, or is deeper, than is walked."""


class TreeEntry(NamedTuple):
    """One entry of a tree; `path` is relative to it, '' for the tree itself."""

    path: str
    about: os.stat_result


@contextlib.contextmanager
def folder(path: Path | str, within: int | None = None) -> Iterator[int]:
    """Hold a folder open by its descriptor.

    Args:
        path: with `within` the relative path from that descriptor, no part of which may be a link; else an absolute
            path whose last part alone an account may change.
    Raises: OSError where it is no folder, or a link.
    """
    descriptor = os.open(path, _LIST) if within is None else _listed(within, str(path))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def plain_file(path: Path | str, flags: int = os.O_RDONLY, within: int | None = None) -> int:
    """Return a descriptor of a regular file that has one name.

    Args:
        path: as that of `folder`.
    Raises: OSError, at once: ELOOP where it is anything else, EWOULDBLOCK where its owner holds a lease on it.
    """
    step = os.open(path, _STEP) if within is None else _stepped(within, str(path))
    try:
        about = os.fstat(step)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise OSError(errno.ELOOP, "not a plain file with one name", str(path))
        return os.open(f"/proc/self/fd/{step}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(step)


def kept_file(path: Path, flags: int, uid: int = -1, gid: int = -1, *, mode: int = 0o600) -> int:
    """Return a descriptor of a file in a folder of root's, which the account owns, made where there is none.

    What cannot be opened at once there, or is no plain file, gives way to a new file. Raises: OSError.
    """
    making = flags | os.O_CREAT | os.O_EXCL | _AT_ONCE
    try:
        descriptor = os.open(path, making, 0o600)  # most often there is none
    except FileExistsError:
        try:
            descriptor = plain_file(path, flags)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EWOULDBLOCK):
                raise
            path.unlink()
            descriptor = os.open(path, making, 0o600)
    try:
        if uid >= 0:
            os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def write_new(name: str, data: bytes, within: int, mode: int = 0o644) -> None:
    """Write a new file into a folder. Raises: OSError, FileExistsError where something of that name is there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _AT_ONCE
    with os.fdopen(os.open(name, flags, mode, dir_fd=within), "wb") as file:
        file.write(data)


def make_folder(path: Path, mode: int = 0o700, uid: int = -1, gid: int = -1) -> Path:
    """Return a folder in one of root's, made where there is none, closed to others and given to an account.

    Raises: OSError where there is something else.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    descriptor = os.open(path, _LIST)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & ~mode:
            os.fchmod(descriptor, mode)
        if uid >= 0:
            os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
    return path


def walk(tree: int, most: int = ENTRIES_MAX) -> Iterator[TreeEntry]:
    """Yield a tree and all that is in it, in the order of names, folders before what they hold.

    Raises: OSError, TooLarge where it has more than `most` entries or is deeper than `DEPTH_MAX`.
    """
    left = [most]
    yield TreeEntry("", os.fstat(tree))
    yield from _walked(tree, "", left, 0)


def _walked(opened: int, path: str, left: list[int], depth: int) -> Iterator[TreeEntry]:
    names = names_in(opened, left[0])
    left[0] -= len(names)
    for name in names:
        about = os.stat(name, dir_fd=opened, follow_symlinks=False)
        yield TreeEntry(f"{path}{name}", about)
        if stat.S_ISDIR(about.st_mode):
            if depth == DEPTH_MAX:
                raise TooLarge(errno.ELOOP, f"a tree is deeper than {DEPTH_MAX} folders")
            with folder(name, opened) as inner:
                yield from _walked(inner, f"{path}{name}/", left, depth + 1)


def names_in(opened: int, most: int) -> list[str]:
    """Return the names in a folder, in order. Raises: OSError, TooLarge where there are more than `most`."""
    names = first_names(opened, most + 1)
    if len(names) > most:
        raise TooLarge(errno.E2BIG, f"a tree has more than {ENTRIES_MAX} entries")
    return sorted(names)


def first_names(opened: int, most: int) -> list[str]:
    """Return names in a folder, of which its owner may have made any number: `most` at most, in any order."""
    with os.scandir(opened) as entries:
        return [entry.name for entry in islice(entries, most)]


def remove(name: str, within: int, clock: Callable[[], float] = time.monotonic) -> bool:
    """Remove an entry of a folder with all that is in it, whatever its owner does meanwhile; return whether it is gone.

    A folder that lies too deep to be held open with those above it is moved to the top of the tree first.
    """
    until_s = clock() + REMOVE_MAX_S
    try:
        while clock() < until_s:
            try:
                os.unlink(name, dir_fd=within)
                return True
            except OSError as error:
                if error.errno not in (errno.EISDIR, errno.EPERM):
                    raise
            with folder(name, within) as top:
                _empty(top, top, 0, lambda: clock() < until_s)
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=within)
                return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _empty(opened: int, top: int, depth: int, goes_on: Callable[[], bool]) -> None:
    """Remove what is in a folder, as far as it can be."""
    if os.geteuid() != 0:
        os.fchmod(opened, 0o700)
    with os.scandir(opened) as entries:
        for entry in entries:
            if not goes_on():
                return
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=opened)
                elif depth == DEPTH_MAX:
                    os.rename(entry.name, f".{secrets.token_hex(8)}", src_dir_fd=opened, dst_dir_fd=top)
                else:
                    with folder(entry.name, opened) as inner:
                        _empty(inner, top, depth + 1, goes_on)
                    os.rmdir(entry.name, dir_fd=opened)


def _listed(within: int, path: str) -> int:
    step = _stepped(within, path)
    try:
        return os.open(".", _LIST, dir_fd=step)
    finally:
        os.close(step)


def _stepped(within: int, path: str) -> int:
    """Return a descriptor of what a relative path leads to, step by step; of a link at its end that of the link."""
    parts = path.split("/")
    if not all(part not in ("", ".", "..") for part in parts):
        raise OSError(errno.EINVAL, "not a relative path in a folder", path)
    step = os.dup(within)
    for part in parts:
        try:
            further = os.open(part, _STEP, dir_fd=step)
        finally:
            os.close(step)
        step = further
    return step
