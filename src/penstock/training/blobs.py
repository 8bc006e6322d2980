"""The files of a checkpoint: written beside each other, not twice when unchanged, smaller where that pays, and read
only together with their checksum.
"""

from __future__ import annotations

import importlib
import mmap
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from penstock.training import durable
from penstock.training.contents import Piece, Window
from penstock.training.manifest import Blob, ManifestProblem

SHARED_BY = 2
"""So many checkpoints share one copy of unchanged data: the next writes it anew, so that no single bad sector can
take all that are kept."""
SHARE_MIN_BYTES = 4096
COMPRESS_MIN_BYTES = 64 * 2**10
SAMPLE_BYTES = 64 * 2**10
COMPRESS_BELOW_MILLI = 700
"""Compressed where a sample shrinks to less than this share: fp32 weights stay at 890, and cost 400 MB/s."""
ZSTD_LEVEL = 1
SUFFIX = ".zst"
MISSING_LIBRARY = "is compressed with zstd, and the package 'zstandard' is not installed: pip install zstandard"


@dataclass(frozen=True, slots=True)
class Ready:
    """A file to be written: its bytes, or the file of an earlier checkpoint that is known to hold the same."""

    name: str
    windows: tuple[Window, ...] = ()
    same: Blob | None = None
    fresh: bool = False
    """It has changed since the last checkpoint: no use in looking for it there."""


@dataclass(slots=True)
class Shelf:
    """What the newest checkpoint of a directory holds, for the next one to share.

    `stamps` are those of the live data when it was saved, by file name.
    """

    folder: Path | None = None
    by_content: dict[str, Blob] = field(default_factory=dict)
    stamps: dict[str, Any] = field(default_factory=dict)

    def fill(self, folder: Path, blobs: Iterable[Blob]) -> None:
        """Take the place of what was there with the files of the checkpoint in `folder`."""
        self.folder = folder
        self.by_content = {blob.content or blob.checksum: blob for blob in blobs}

    def clear(self) -> None:
        self.folder, self.by_content, self.stamps = None, {}, {}

    def lends(self, checksum: str) -> Blob | None:
        """Return the file with that content if one more checkpoint may share it."""
        blob = self.by_content.get(checksum)
        if blob is None or self.folder is None or blob.size_bytes < SHARE_MIN_BYTES:
            return None
        try:
            seen = os.stat(self.folder / blob.name)
        except OSError:
            return None
        return blob if seen.st_nlink < SHARED_BY and seen.st_size == blob.size_bytes else None


def ready(pieces: Iterable[Piece]) -> list[Ready]:
    """Return the pieces as they stand, uncopied: right only while nobody changes the state."""
    return [Ready(piece.name, tuple(piece.windows())) for piece in pieces]


def write_pieces(
    folder: Path, pieces: Iterable[Ready], shelf: Shelf, *, compress: bool, prefix: str = ""
) -> list[Blob]:
    """Write all `pieces` into `folder`, on disk when this returns; the names in the result get `prefix`.

    Raises: OSError.
    """
    tasks = [partial(_write, folder, piece, shelf, compress=compress, prefix=prefix) for piece in pieces]
    return durable.in_parallel(tasks)


def _write(folder: Path, piece: Ready, shelf: Shelf, *, compress: bool, prefix: str) -> Blob:
    size_bytes = sum(len(window) for window in piece.windows)
    same = piece.same
    content = ""
    if same is None and not piece.fresh and size_bytes >= SHARE_MIN_BYTES and shelf.by_content:
        content = durable.checksum(piece.windows)
        same = shelf.lends(content)
    if same is not None and shelf.folder is not None:
        name = f"{piece.name}{SUFFIX if same.encoding else ''}"
        if durable.link(shelf.folder / same.name, folder / name, names_max=SHARED_BY):
            return Blob(f"{prefix}{name}", same.size_bytes, same.checksum, same.encoding, same.content)
        if piece.same is not None:
            raise FileNotFoundError(f"{same.name} of {shelf.folder.name} was to be shared, and is not there any more")
    if compress and size_bytes >= COMPRESS_MIN_BYTES and (zstd := _zstd()) is not None and _pays(zstd, piece.windows):
        written = durable.write_file(folder / f"{piece.name}{SUFFIX}", _compressed(zstd, piece.windows, size_bytes))
        content = content or durable.checksum(piece.windows)
        return Blob(f"{prefix}{piece.name}{SUFFIX}", written.size_bytes, written.checksum, "zstd", content)
    written = durable.write_file(folder / piece.name, piece.windows)
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


def check_blob(folder: Path, blob: Blob) -> None:
    """Read a file and compare. Raises: ManifestProblem, OSError."""
    with _opened(folder, blob) as file:
        _compare(blob, iter(partial(file.read, durable.CHUNK_BYTES), b""))


def read_blob(folder: Path, blob: Blob) -> Window:
    """Return what a file holds, uncompressed, once it was compared. Raises: ManifestProblem, OSError."""
    with _opened(folder, blob) as file:
        memory = mmap.mmap(-1, blob.size_bytes) if blob.size_bytes else bytearray()
        raw = memoryview(memory)
        file.readinto(raw)
    _compare(blob, [raw])
    if not blob.encoding:
        return raw
    zstd = _zstd()
    if blob.encoding != "zstd" or zstd is None:
        raise ManifestProblem(f"{blob.name} {MISSING_LIBRARY}")
    return memoryview(bytearray(zstd.ZstdDecompressor().decompress(raw)))


def read_all(folder: Path, blobs: Iterable[Blob], *, wanted: str = "") -> Mapping[str, Window]:
    """Compare all files, and return what those hold whose names begin with `wanted`, by the rest of their names.

    Raises: ManifestProblem, OSError.
    """

    def one(blob: Blob) -> tuple[str, Window] | None:
        if not blob.name.startswith(wanted):
            check_blob(folder, blob)
            return None
        name = blob.name.removeprefix(wanted)
        return name.removesuffix(SUFFIX) if blob.encoding else name, read_blob(folder, blob)

    found = durable.in_parallel([partial(one, blob) for blob in blobs])
    return dict(entry for entry in found if entry is not None)


def _opened(folder: Path, blob: Blob) -> Any:
    """Open a file of the right size."""
    try:
        file = (folder / blob.name).open("rb", buffering=0)
    except FileNotFoundError:
        raise ManifestProblem(f"{blob.name} is missing") from None
    size_bytes = os.fstat(file.fileno()).st_size
    if size_bytes != blob.size_bytes:
        file.close()
        raise ManifestProblem(f"{blob.name} has {size_bytes} bytes; expected {blob.size_bytes}")
    return file


def _compare(blob: Blob, windows: Iterable[Window | bytes]) -> None:
    kind = blob.checksum.partition(":")[0]
    try:
        found = durable.checksum(windows, kind)
    except ValueError as error:
        raise ManifestProblem(f"{blob.name}: {error}") from None
    if found != blob.checksum:
        raise ManifestProblem(f"{blob.name} has checksum {found[:17]}...; expected {blob.checksum[:17]}...")
