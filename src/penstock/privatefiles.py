"""Checks whether to trust files, and makes files that only their owner can use.

Theory. The content of a file is under control of its owner, of all users who may write it, and of all who may replace
it: those who may write a folder on its path, unless the sticky bit keeps them from moving files of others. So a file
is ours when all of these are root or the user of this process. The same rule as that of ssh for its own files.
"""

import contextlib
import errno
import glob
import grp
import os
import pwd
import secrets
import shlex
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from penstock.core.model.errors import PenstockError, Problem

LINKS_MAX = 40
"""Links on the way to a file, as the kernel has it."""
PASSED = 0o711
"""Of folders: to be passed through, not to be looked into."""
ACCESS_LIST = "system.posix_acl_access"
TRUSTED_FOLDERS = "PENSTOCK_TRUSTED_FOLDERS"
LEFT_AFTER_S = 3600.0
"""Longer than any write of one file."""
_WRITABLE_BY_OTHERS = 0o022
_NAMED_MAX = 5


class NotPrivate(PenstockError):
    """Another user owns, or may write, a file that would be trusted."""

    code = "not_private"


class Passed(msgspec.Struct, frozen=True):
    """Something on the way to a file: a folder, a link, or the file itself at the end."""

    path: Path
    about: os.stat_result
    last: bool


def way_to(path: Path) -> Iterator[Passed]:
    """Yield what the kernel passes on its way to `path`, links followed one by one.

    Raises: FileNotFoundError where there is nothing; OSError for too many links.
    """
    here, links = Path("/"), 0
    left = list(reversed(path.absolute().parts[1:]))
    yield Passed(here, here.lstat(), not left)
    while left:
        part = left.pop()
        if part == "..":
            here = here.parent
            continue
        found = here / part
        about = found.lstat()
        linked = stat.S_ISLNK(about.st_mode)
        yield Passed(found, about, not left and not linked)
        if not linked:
            here = found
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(found))
        here = Path("/") if target.is_absolute() else here
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def problem_of(path: Path) -> Problem | None:
    """Return why the file at `path` cannot be trusted, or None; None where it is not seen, too."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return next(filter(None, map(_problem, way_to(path))), None)
    return None


def problem_inside(path: Path) -> Problem | None:
    """Return why a file in a checked folder cannot be trusted; the path is checked for links only."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        about = path.lstat()
        return problem_of(path) if stat.S_ISLNK(about.st_mode) else _problem(Passed(path, about, last=True))
    return None


def check(path: Path) -> None:
    """Refuse a file or folder that another user could have made or changed. Raises: NotPrivate; OSError."""
    refuse([problem_of(path)])


def refuse(found: Iterable[Problem | None]) -> None:
    """Raises: NotPrivate when there is a problem: the first, and what to do about all of them."""
    problems = list({problem.field: problem for problem in found if problem is not None}.values())
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        hint = "; ".join(dict.fromkeys(problem.hint for problem in problems[:_NAMED_MAX]))
        raise NotPrivate(problems[0].message + more, hint=hint, problems=problems)


def _problem(passed: Passed) -> Problem | None:
    path, about = passed.path, passed.about
    mode = stat.S_IMODE(about.st_mode)
    shown = f"{path} (owner {_name(about.st_uid)}, mode {mode:04o})"
    if about.st_uid not in _trusted(last=passed.last):
        text = f"{shown} belongs to another user, and its contents would be executed as {_name(os.geteuid())}"
        hint = f"look at what is there, then: chown {_name(os.geteuid())} {shlex.quote(str(path))}"
        return Problem("not_private", str(path), text, hint=f"{hint}; or work as {_name(about.st_uid)}")
    if stat.S_ISLNK(about.st_mode) or not mode & _WRITABLE_BY_OTHERS:
        return None
    if not passed.last and (mode & stat.S_ISVTX or str(path) in _declared() or _only_by_trusted(path, about)):
        return None
    who = "everybody" if mode & stat.S_IWOTH else f"the group {_group(about.st_gid)}"
    text = f"{shown} can be written by {who}, and what it says would be done as {_name(os.geteuid())}"
    return Problem("not_private", str(path), text, hint=f"chmod go-w {shlex.quote(str(path))}")


def _declared() -> list[str]:
    """Return folders on the way that whoever started the process vouches for: mounts whose mode a platform sets.

    What is made in them is private all the same. Who owns them is checked as ever.
    """
    return os.environ.get(TRUSTED_FOLDERS, "").split(os.pathsep)


def _trusted(*, last: bool) -> set[int]:
    """Return the trusted users (uid). On the path, the owner of `/` is one, too: nothing is safe from it.

    That is root, but in a user namespace that does not know the machine's root.
    """
    return {0, os.geteuid()} if last else {0, os.geteuid(), Path("/").stat().st_uid}


def _only_by_trusted(path: Path, about: os.stat_result) -> bool:
    """Return whether a folder can be written by its group only, whose members are trusted: a user's own group.

    With an access list, the group bits of the mode are the most that any entry of the list grants.
    """
    if about.st_mode & stat.S_IWOTH or _has_access_list(path):
        return False
    trusted = _trusted(last=False)
    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(about.st_gid).gr_mem}
    except KeyError:
        return False
    return members | {each.pw_uid for each in pwd.getpwall() if each.pw_gid == about.st_gid} <= trusted


def _has_access_list(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return ACCESS_LIST in os.listxattr(path, follow_symlinks=False)
    return False


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


# Making them.


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Make a folder where there is none, and its missing parents; refuse one that is not ours.

    Args:
        mode: despite the umask. Parents made by root may be passed through: programs of accounts work below.
    Raises: NotPrivate; OSError.
    """
    missing = []
    for each in (folder, *folder.parents):
        if os.path.lexists(each):
            break
        missing.append(each)
    if missing:
        refuse(map(_problem, (_above(passed) for passed in way_to(missing[-1].parent))))
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir(0o700)
            each.chmod(mode if each == folder else passed_by_accounts())
    check(folder)


def _above(passed: Passed) -> Passed:
    """Return a folder as one on the way to something below it: others may write it if they cannot move that."""
    return Passed(passed.path, passed.about, last=False)


def passed_by_accounts() -> int:
    """Return the mode of folders above those of jobs: root's jobs are programs of other accounts."""
    return PASSED if os.geteuid() == 0 else 0o700


def write_whole(path: Path, data: bytes | str, mode: int = 0o600, *, synced: bool = True) -> None:
    """Write a file whole or not at all, with exactly this mode from the first moment on.

    Args:
        synced: on disk, with its name, when this returns.
    Raises: OSError; nothing is left then.
    """
    drop_left(path)
    descriptor, temporary = new_beside(path, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if synced:
        sync_folder(path.parent)


def new_beside(path: Path, mode: int = 0o600) -> tuple[int, Path]:
    """Open a new file beside `path`, to be renamed: it is created here, under a random name.

    Raises: OSError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode)
    os.fchmod(descriptor, mode)
    return descriptor, temporary


def drop_left(path: Path) -> None:
    """Remove temporary files of killed processes beside `path`; recent ones may be in use and stay."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > LEFT_AFTER_S:
                left.unlink()


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file that stays, such as a log or a lock; it is made where it is missing.

    Raises: NotPrivate when it is a link, no plain file, or another user's; OSError.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotPrivate(f"{path} is a link or a pipe, a plain file is expected", hint="remove it") from error
        raise
    about = os.fstat(descriptor)
    problem = _problem(Passed(path, about, last=True))
    if problem is None and stat.S_ISREG(about.st_mode):
        return descriptor
    os.close(descriptor)
    refuse([problem])
    raise NotPrivate(f"{path} is no plain file", hint="remove it")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
