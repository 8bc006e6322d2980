"""Packs a folder: which files belong to its snapshot, with the hashes of their contents.

A file is read again only when its size, times, inode or mode have changed since it was last hashed.
"""

import contextlib
import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import InvalidInput
from penstock.core.model.quantities import format_size
from penstock.privatefiles import write_whole

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".penstockignore")
"""Of each folder, in the syntax of git; the later one decides."""
NEVER = (".git", ".hg", ".svn")
BY_DEFAULT = ("__pycache__/",)
"""Left out unless an ignore file says otherwise: caches, which would make another snapshot of each run."""
SETTLED_NS = 2 * 10**9
"""A file changed this shortly before it was read is read again next time: a later change may have the same times."""
LOOKED_MAX = 10 * fs.FILES_MAX
NAMED = 5
"""Of the largest files, in a refusal."""
LARGE_PART = 20
"""A file of at least this part of the limit is named in a refusal for its size."""
CACHE_VERSION = 1
TRIES = 3


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What tells whether a file has changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


class Cache(msgspec.Struct):
    """What was found in a folder last time."""

    version: int = CACHE_VERSION
    folder: str = ""
    files: fs.Files = ()
    """Of the last snapshot that a server has taken."""
    known: dict[str, tuple[Stamp, tuple[bytes, ...]]] = {}
    """Files that need not be read while their stamp is the same."""


class Packed(NamedTuple):
    """A folder as it is now."""

    folder: Path
    files: fs.Files
    data: bytes
    """`files`, encoded."""
    name: str
    cache: Cache


class _Entry(NamedTuple):
    path: str
    about: os.stat_result


def packed(folder: Path) -> Packed:
    """Return a folder as it is now, with the hashes of its files.

    Raises: InvalidInput when it cannot be packed: it is too large, has links that lead out of it, or keeps changing.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder, expected one to take a snapshot of")
    entries = sorted(_walk(folder), key=lambda one: one.path)
    if not entries:
        raise InvalidInput(f"{folder} has no files to take a snapshot of", hint="is all of it ignored?")
    _check_size(folder, entries)
    former = _load(folder)
    cache = Cache(folder=str(folder), files=former.files)
    files = tuple(_file(folder, one, former, cache) for one in entries)
    if problem := fs.problem_of(files):
        raise InvalidInput(f"{folder} {problem}", hint="name it in .penstockignore, or change it")
    data = fs.encoded(files)
    found = Packed(folder, files, data, fs.name_of(data), cache)
    if cache.known != former.known:
        save(found)
    return found


def read_chunk(folder: Path, one: fs.SnapshotFile, index: int) -> bytes:
    """Return one chunk of a packed file. Raises: Changed when it is not what was packed."""
    try:
        descriptor = os.open(folder / one.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, fs.CHUNK_BYTES, index * fs.CHUNK_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Changed(one.path) from error
    if fs.chunk_hash(data) != one.chunks[index]:
        raise Changed(one.path)
    return data


class Changed(Exception):
    """A file was changed while its folder was being sent."""


# Which files.


def _walk(folder: Path) -> Iterator[_Entry]:
    """Yield what belongs to the snapshot. Raises: InvalidInput."""
    seen = 0
    waiting: list[tuple[str, list[tuple[str, GitIgnoreSpec]]]] = [("", [("", _spec(BY_DEFAULT))])]
    while waiting:
        where, rules = waiting.pop()
        try:
            with os.scandir(folder / where) as found:
                inside = sorted(found, key=lambda one: one.name)
        except OSError as error:
            hint = "name it in .penstockignore, or make it readable"
            raise InvalidInput(f"{folder / where} cannot be read: {error.strerror}", hint=hint) from error
        names = {one.name for one in inside}
        rules = rules + [(where, _read(folder / where / name)) for name in IGNORE_FILES if name in names]
        for one in inside:
            path = where + one.name
            if one.name in NEVER:
                continue
            is_folder = one.is_dir(follow_symlinks=False)
            if _ignored(path + "/" if is_folder else path, rules):
                continue
            if is_folder:
                waiting.append((path + "/", rules))
                continue
            seen += 1
            if seen > LOOKED_MAX:
                text = f"{folder} has more than {LOOKED_MAX} files, expected at most {fs.FILES_MAX}"
                raise InvalidInput(text, hint="take a snapshot of a smaller folder, or name folders in .penstockignore")
            yield _Entry(path, _checked(folder, path, one.stat(follow_symlinks=False)))


def _checked(folder: Path, path: str, about: os.stat_result) -> os.stat_result:
    kind = about.st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        text = f"{folder / path} is neither a file nor a link, which is all that a snapshot may have"
        raise InvalidInput(text, hint=f"put {path} into .penstockignore")
    return about


def _spec(lines: tuple[str, ...] | list[str]) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _read(path: Path) -> "GitIgnoreSpec":
    try:
        return _spec(path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be used: {error}", hint="it has patterns as for git") from error


def _ignored(path: str, rules: "list[tuple[str, GitIgnoreSpec]]") -> bool:
    """Return whether the innermost file of patterns that says something about a path leaves it out."""
    if not path.isascii() and fs.path_problem(path.rstrip("/")):
        return False  # a name that patterns cannot be compared with: it is refused later
    for where, spec in reversed(rules):
        said = spec.check_file(path[len(where) :]).include
        if said is not None:
            return bool(said)
    return False


def _check_size(folder: Path, entries: list[_Entry]) -> None:
    """Raises: InvalidInput when there is too much, naming what takes most."""
    total = sum(one.about.st_size for one in entries)
    if len(entries) <= fs.FILES_MAX and total <= fs.BYTES_MAX:
        return
    hint = "put what the job does not need into .penstockignore (as .gitignore); data belong on storage of the nodes"
    if total > fs.BYTES_MAX:
        largest = sorted(entries, key=lambda one: -one.about.st_size)[:NAMED]
        named = ", ".join(f"{one.path} ({format_size(one.about.st_size)})" for one in largest)
        text = f"{folder} has {format_size(total)}, expected at most {format_size(fs.BYTES_MAX)}; largest: {named}"
        raise InvalidInput(text, hint=hint)
    counts = Counter(one.path.rpartition("/")[0] or "." for one in entries)
    named = ", ".join(f"{path} ({count})" for path, count in counts.most_common(NAMED))
    text = f"{folder} has {len(entries)} files, expected at most {fs.FILES_MAX}; folders with most: {named}"
    raise InvalidInput(text, hint=hint)


# What is in them.


def _file(folder: Path, entry: _Entry, former: Cache, cache: Cache) -> fs.SnapshotFile:
    path, about = entry
    if stat.S_ISLNK(about.st_mode):
        target = os.readlink(folder / path)
        if wrong := fs.link_problem(path, target):
            hint = f"put {path} into .penstockignore, or replace it by what it leads to"
            raise InvalidInput(f"{folder / path} leads to {target}: {wrong}", hint=hint)
        return fs.SnapshotFile(path, "link", target=target)
    stamp = _stamp(about)
    known = former.known.get(path)
    chunks = known[1] if known is not None and known[0] == stamp else None
    if chunks is None:
        begun_ns = time.time_ns()
        stamp, chunks, mode = _hashed(folder, path)
        if max(stamp.mtime_ns, stamp.ctime_ns) < begun_ns - SETTLED_NS:
            cache.known[path] = stamp, chunks
    else:
        mode = about.st_mode
        cache.known[path] = stamp, chunks
    return fs.SnapshotFile(path, "program" if mode & stat.S_IXUSR else "file", stamp.size, chunks)


def _stamp(about: os.stat_result) -> Stamp:
    return Stamp(about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)


def _hashed(folder: Path, path: str) -> tuple[Stamp, tuple[bytes, ...], int]:
    """Return stamp, hashes and mode of a file. Raises: InvalidInput when it cannot be read, or keeps changing."""
    try:
        for _ in range(TRIES):
            descriptor = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode):
                    break
                chunks = tuple(_hashes(file.fileno(), about.st_size))
                if _stamp(os.fstat(file.fileno())) == _stamp(about) and chunks:
                    return _stamp(about), chunks, about.st_mode
                if not about.st_size:
                    return _stamp(about), (), about.st_mode
    except OSError as error:
        hint = f"put {path} into .penstockignore, or make it readable"
        raise InvalidInput(f"{folder / path} cannot be read: {error.strerror}", hint=hint) from error
    hint = f"put {path} into .penstockignore, or submit when it is complete"
    raise InvalidInput(f"{folder / path} changes while it is read", hint=hint)


def _hashes(descriptor: int, size: int) -> Iterator[bytes]:
    for offset in range(0, size, fs.CHUNK_BYTES):
        yield hashlib.sha256(os.pread(descriptor, min(fs.CHUNK_BYTES, size - offset), offset)).digest()


# What is remembered.


def _place(folder: Path) -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return cache / "penstock" / "snapshots" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]


def _load(folder: Path) -> Cache:
    """Return what was noted about a folder; nothing where that cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RuntimeError):
        found = msgspec.msgpack.decode(_place(folder).read_bytes(), type=Cache)
        if found.version == CACHE_VERSION and found.folder == str(folder):
            return found
    return Cache()


def save(found: Packed) -> None:
    """Note what was found; without a place for it the next time takes longer, and nothing else."""
    with contextlib.suppress(OSError, RuntimeError):
        place = _place(found.folder)
        place.parent.mkdir(0o700, parents=True, exist_ok=True)
        write_whole(place, msgspec.msgpack.encode(found.cache), synced=False)
