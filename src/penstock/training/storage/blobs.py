"""The files of a checkpoint: written beside each other, not twice when unchanged, smaller where that pays, and read
only together with their checksum.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.training.storage import durable, hostmemory
from penstock.training.storage.contents import FileContents, Window
from penstock.training.storage.manifest import Blob, ManifestProblem

SHARED_BY = 2
"""Number of checkpoints that share one copy of unchanged data: the next writes it anew, so that no single bad sector
can destroy all that are kept."""
SHARE_MIN_BYTES = 4096
COMPRESS_MIN_BYTES = 64 * 2**10
SAMPLE_BYTES = 64 * 2**10
COMPRESS_BELOW_MILLI = 700
"""Compressed where a sample shrinks to less than this share: fp32 weights stay at 890, and cost 400 MB/s."""
ZSTD_LEVEL = 1
SUFFIX = ".zst"
MISSING_LIBRARY = "is compressed with zstd, and the package 'zstandard' is not installed: pip install zstandard"


class Loan(NamedTuple):
    """A file of an earlier checkpoint, to be shared."""

    path: str
    blob: Blob


@dataclass(frozen=True, slots=True)
class Ready:
    """A file to be written: its bytes, or the file of an earlier checkpoint that is known to hold the same."""

    name: str
    windows: tuple[Window, ...] = ()
    same: Loan | None = None
    fresh: bool = False
    """It has changed since the last checkpoint: no use in looking for it there."""


class BlobSource(Protocol):
    """Where the files of a checkpoint are read from."""

    @property
    def folder(self) -> str:
        """Return the path that the names of files are relative to."""
        ...

    def opened(self, blob: Blob) -> Any:
        """Return a file of the right size, open for reading. Raises: ManifestProblem, OSError."""
        ...


class Sink(Protocol):
    """Where the files of a new checkpoint go."""

    def put(self, name: str, windows: Iterable[Window | bytes]) -> durable.Written:
        """Write a file, complete and durable when this returns. Raises: OSError."""
        ...

    def share(self, source: str, name: str) -> bool:
        """Make the file at the path `source` a file of this one as well; False where that cannot be done here."""
        ...


class Folder:
    """A folder as source or sink."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = str(path)

    def opened(self, blob: Blob) -> Any:
        try:
            file = open(self.path / blob.name, "rb", buffering=0, opener=durable.at_once)  # noqa: SIM115 - the caller's
        except FileNotFoundError:
            raise ManifestProblem(f"{blob.name} is missing") from None
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes != blob.size_bytes:
            file.close()
            raise wrong_size(blob, size_bytes)
        return file

    def put(self, name: str, windows: Iterable[Window | bytes]) -> durable.Written:
        return durable.write_file(self.path / name, windows)

    def share(self, source: str, name: str) -> bool:
        return durable.link(Path(source), self.path / name, names_max=SHARED_BY)


@dataclass(slots=True)
class Shelf:
    """Files of the newest checkpoint, for the next one to share.

    `stamps` are those of the live data when it was saved, by file name.
    """

    lending: bool = True
    """Whether files are shared at all: with too few checkpoints kept, one bad file would be in all of them."""
    stamps: dict[str, Any] = field(default_factory=dict)
    _held: tuple[str, dict[str, Blob]] = field(init=False)
    """Folder, and its files by content: replaced together, for another thread may be reading."""

    def __post_init__(self) -> None:
        self._held = ("", {})

    @property
    def empty(self) -> bool:
        return not self._held[1]

    def fill(self, folder: str, blobs: Iterable[Blob]) -> None:
        """Replace the contents with the files of the checkpoint in `folder`."""
        self._held = (folder, {blob.content or blob.checksum: blob for blob in blobs})

    def clear(self) -> None:
        self._held, self.stamps = ("", {}), {}

    def lends(self, checksum: str) -> Loan | None:
        """Return the file with that content if one more checkpoint may share it."""
        folder, by_content = self._held
        blob = by_content.get(checksum)
        if blob is None or not self.lending or blob.size_bytes < SHARE_MIN_BYTES:
            return None
        loan = Loan(f"{folder}/{blob.name}", blob)
        return loan if self._spare(loan.path, blob) else None

    def _spare(self, path: str, blob: Blob) -> bool:
        try:
            seen = os.stat(path)
        except OSError:
            return False
        return seen.st_nlink < SHARED_BY and seen.st_size == blob.size_bytes


def ready(pieces: Iterable[FileContents]) -> list[Ready]:
    """Return the pieces as they stand, uncopied: right only while the state does not change."""
    return [Ready(piece.name, tuple(piece.windows())) for piece in pieces]


def write_pieces(sink: Sink, pieces: Iterable[Ready], shelf: Shelf, *, compress: bool, prefix: str = "") -> list[Blob]:
    """Write all `pieces`, done when this returns; the names in the result get `prefix`.

    Raises: OSError.
    """
    tasks = [partial(_write, sink, piece, shelf, compress=compress, prefix=prefix) for piece in pieces]
    return durable.in_parallel(tasks)


def _write(sink: Sink, piece: Ready, shelf: Shelf, *, compress: bool, prefix: str) -> Blob:
    size_bytes = sum(len(window) for window in piece.windows)
    same = piece.same
    content = ""
    if same is None and not piece.fresh and size_bytes >= SHARE_MIN_BYTES and not shelf.empty:
        content = durable.checksum(piece.windows)
        same = shelf.lends(content)
    if same is not None:
        blob = same.blob
        name = f"{piece.name}{SUFFIX if blob.encoding else ''}"
        if sink.share(same.path, name):
            return Blob(f"{prefix}{name}", blob.size_bytes, blob.checksum, blob.encoding, blob.content)
    if piece.same is not None:
        raise FileNotFoundError(f"{piece.same.path} was to be shared, and is not there any more")
    if compress and size_bytes >= COMPRESS_MIN_BYTES and (zstd := _zstd()) is not None and _pays(zstd, piece.windows):
        written = sink.put(f"{piece.name}{SUFFIX}", _compressed(zstd, piece.windows, size_bytes))
        content = content or durable.checksum(piece.windows)
        return Blob(f"{prefix}{piece.name}{SUFFIX}", written.size_bytes, written.checksum, "zstd", content)
    written = sink.put(piece.name, piece.windows)
    return Blob(f"{prefix}{piece.name}", written.size_bytes, written.checksum)


def _zstd() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        return None


def _pays(zstd: Any, windows: Iterable[Window]) -> bool:
    """Try on a piece from the middle of the largest run of bytes."""
    largest = max(windows, key=len)
    middle = max(0, len(largest) // 2 - SAMPLE_BYTES // 2)
    sample = largest[middle : middle + SAMPLE_BYTES]
    return len(zstd.ZstdCompressor(level=ZSTD_LEVEL).compress(sample)) * 1000 < len(sample) * COMPRESS_BELOW_MILLI


def _compressed(zstd: Any, windows: Iterable[Window], size_bytes: int) -> Iterable[bytes]:
    stream = zstd.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=size_bytes)
    for window in windows:
        for first in range(0, len(window), durable.CHUNK_BYTES):
            if chunk := stream.compress(window[first : first + durable.CHUNK_BYTES]):
                yield chunk
    yield stream.flush()


def check_blob(source: BlobSource, blob: Blob) -> None:
    """Read a file and compare. Raises: ManifestProblem, OSError."""
    with source.opened(blob) as file:
        _compare(blob, iter(partial(file.read, durable.CHUNK_BYTES), b""))


def read_blob(source: BlobSource, blob: Blob) -> Window:
    """Return the contents of a file, uncompressed, once its checksum matched. Raises: ManifestProblem, OSError."""
    memory = hostmemory.fresh(blob.size_bytes) if blob.size_bytes else bytearray()
    raw = memoryview(memory)
    with source.opened(blob) as file:
        _fill(raw, file)
    _compare(blob, [raw])
    if not blob.encoding:
        return raw
    zstd = _zstd()
    if blob.encoding != "zstd" or zstd is None:
        raise ManifestProblem(f"{blob.name} {MISSING_LIBRARY}")
    return memoryview(bytearray(zstd.ZstdDecompressor().decompress(raw)))


def _fill(memory: Window, file: Any) -> None:
    """Read until the memory is full or the file ends: one call reads 2 GiB at most, from any file."""
    while len(memory) and (count := file.readinto(memory)):
        memory = memory[count:]


def read_all(source: BlobSource, blobs: Iterable[Blob], *, wanted: str = "") -> Mapping[str, Window]:
    """Check all files; return contents of those whose names begin with `wanted`, by the rest of the name.

    Raises: ManifestProblem, OSError.
    """

    def one(blob: Blob) -> tuple[str, Window] | None:
        if not blob.name.startswith(wanted):
            check_blob(source, blob)
            return None
        name = blob.name.removeprefix(wanted)
        return name.removesuffix(SUFFIX) if blob.encoding else name, read_blob(source, blob)

    found = durable.in_parallel([partial(one, blob) for blob in blobs])
    return dict(entry for entry in found if entry is not None)


def wrong_size(blob: Blob, size_bytes: int) -> ManifestProblem:
    return ManifestProblem(f"{blob.name} has {size_bytes} bytes; expected {blob.size_bytes}")


def _compare(blob: Blob, windows: Iterable[Window | bytes]) -> None:
    kind = blob.checksum.partition(":")[0]
    try:
        found = durable.checksum(windows, kind)
    except ValueError as error:
        raise ManifestProblem(f"{blob.name}: {error}") from None
    if found != blob.checksum:
        raise ManifestProblem(f"{blob.name} has checksum {found[:17]}...; expected {blob.checksum[:17]}...")
