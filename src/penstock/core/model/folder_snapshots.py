"""A snapshot of a submitter's folder: the list of its files with the hashes of their contents, and its name.

The name is the hash of the list, and each content is cut into chunks that are named by their hashes; so who has the
name can check everything that comes after it, wherever it comes from.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from penstock.core.model.errors import InvalidInput

CHUNK_BYTES = 2**20
"""Of each chunk of a file but its last one."""
FILES_MAX = 20_000
"""Files and links of one snapshot."""
BYTES_MAX = 2**30
"""Of all files of one snapshot."""
PATH_MAX_BYTES = 1_024
DEPTH_MAX = 64
"""Folders on the way to a file."""
TARGET_MAX_BYTES = 1_024
"""Of where a link leads."""
HASH_BYTES = 32
NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)
"""A snapshot's name."""

FileKind = Literal["file", "program", "link"]


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One file of a snapshot; `path` is relative to the folder, with `/` between its parts."""

    path: str
    kind: FileKind
    """A `program` is a file that may be executed."""
    size: int = 0
    """In bytes."""
    chunks: tuple[bytes, ...] = ()
    """SHA-256 of each `CHUNK_BYTES` of its content."""
    target: str = ""
    """Where a link leads, relative to its folder."""


Files = tuple[SnapshotFile, ...]
"""By path, ascending; no path twice."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Files] = msgspec.msgpack.Decoder(Files)


def chunk_hash(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def encoded(files: Files) -> bytes:
    """Return the list of a snapshot's files as it is kept and hashed."""
    return _encoder.encode(files)


def name_of(data: bytes) -> str:
    """Return the name of the snapshot whose encoded list this is."""
    return hashlib.sha256(data).hexdigest()


def decoded(data: bytes) -> Files:
    """Return the files of an encoded list. Raises: InvalidInput when it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not a list of files: {error}") from error


def chunks_of(files: Iterable[SnapshotFile]) -> tuple[bytes, ...]:
    """Return the hashes of all chunks, each once, in the order of the files."""
    return tuple(dict.fromkeys(chunk for one in files for chunk in one.chunks))


def sizes_of(one: SnapshotFile) -> Iterator[int]:
    """Yield the size (bytes) of each chunk of a file."""
    for index in range(len(one.chunks)):
        yield min(CHUNK_BYTES, one.size - index * CHUNK_BYTES)


def total_bytes(files: Iterable[SnapshotFile]) -> int:
    return sum(one.size for one in files)


def changed(files: Files, former: Files) -> tuple[Files, tuple[str, ...]]:
    """Return which files are new or differ from a former list, and the paths that are no longer there."""
    known = {one.path: one for one in former}
    now = {one.path for one in files}
    return tuple(one for one in files if known.get(one.path) != one), tuple(path for path in known if path not in now)


def applied(former: Files, files: Iterable[SnapshotFile], removed: Iterable[str]) -> Files:
    """Return a former list with changes: what `changed` gave."""
    found = {one.path: one for one in former}
    for path in removed:
        found.pop(path, None)
    found |= {one.path: one for one in files}
    return tuple(found[path] for path in sorted(found))


def problem_of(files: Sequence[SnapshotFile]) -> str:
    """Return what keeps a list from being a snapshot, or '': too much, a path that leads elsewhere, a wrong size."""
    if len(files) > FILES_MAX:
        return f"has {len(files)} files, expected at most {FILES_MAX}"
    if (total := total_bytes(files)) > BYTES_MAX:
        return f"has {total} bytes, expected at most {BYTES_MAX}"
    last = ""
    leaves: set[str] = set()
    for one in files:
        if one.path <= last:
            return f"has {_short(one.path)} after {_short(last)}, expected each path once, in ascending order"
        if wrong := path_problem(one.path) or _content_problem(one):
            return f"has {_short(one.path)}: {wrong}"
        last = one.path
        leaves.add(one.path)
    for one in files:
        parent = one.path.rpartition("/")[0]
        while parent:
            if parent in leaves:
                return f"has {_short(one.path)} below {_short(parent)}, which is no folder"
            parent = parent.rpartition("/")[0]
    return ""


def path_problem(path: str) -> str:
    """Return why a path cannot be one of a snapshot, or ''."""
    parts = path.split("/")
    if len(parts) > DEPTH_MAX or _too_long(path, PATH_MAX_BYTES):
        return f"a path may have {PATH_MAX_BYTES} bytes of UTF-8 and {DEPTH_MAX} parts"
    if "" in parts or "." in parts or ".." in parts or "\0" in path:
        return "a path is relative, without '.' and '..'"
    return ""


def link_problem(path: str, target: str) -> str:
    """Return why a link may not be in a snapshot, or ''.

    What is after leading `..` may itself pass links, but never goes up again: so no chain of links leaves the folder.
    """
    if not target or _too_long(target, TARGET_MAX_BYTES) or "\0" in target:
        return f"a link leads to a path of 1 to {TARGET_MAX_BYTES} bytes of UTF-8"
    if target.startswith("/"):
        return "the link is absolute: on another machine it would lead out of the folder"
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    if ups > path.count("/"):
        return "the link leads out of the folder"
    return "the link goes up after it went down" if ".." in parts[ups:] else ""


def _content_problem(one: SnapshotFile) -> str:
    if one.kind == "link":
        return link_problem(one.path, one.target) or ("a link has no content" if one.size or one.chunks else "")
    if one.size < 0 or len(one.chunks) != -(-one.size // CHUNK_BYTES):
        return f"{one.size} bytes and {len(one.chunks)} chunks of up to {CHUNK_BYTES} do not go together"
    if any(len(chunk) != HASH_BYTES for chunk in one.chunks):
        return f"a hash has {HASH_BYTES} bytes"
    return "only a link has a target" if one.target else ""


def _too_long(text: str, most_bytes: int) -> bool:
    """Return whether a text has more bytes of UTF-8, or none: it is no text."""
    if text.isascii():
        return len(text) > most_bytes
    try:
        return len(text.encode()) > most_bytes
    except UnicodeEncodeError:
        return True


def _short(path: str) -> str:
    return repr(path if len(path) <= 80 else path[:77] + "...")
