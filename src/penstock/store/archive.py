"""A backup: one zip file with the log as rows, finished jobs, the newest snapshot, and a manifest with checksums.

It does not depend on the kind of its store, so it can be restored into any other. The file appears under its name once
it is whole and synced.
"""

import contextlib
import hashlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from penstock.core.model.errors import InvalidInput, StoreError
from penstock.core.model.ids import Epoch
from penstock.core.state.state import Image
from penstock.store import encoding
from penstock.store.copying import LogCopy, NotEmpty, Restoring
from penstock.store.encoding import EventRow, FinishedRow

FORMAT = 2
"""2: records may name the record that has their spec."""
MANIFEST, EVENTS, FINISHED, SNAPSHOT = "manifest.json", "events.rows", "finished.rows", "snapshot"
ROW_MAX_BYTES = 256 * 2**20
_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
R = TypeVar("R", EventRow, FinishedRow)


class Member(msgspec.Struct, frozen=True):
    """One part of an archive."""

    sha256: str
    bytes: int
    rows: int = 0


class ArchiveManifest(msgspec.Struct, frozen=True):
    """The contents of an archive; `members` by name."""

    format: int
    program: str
    made_ms: int
    epoch: Epoch
    last_seq: int
    members: dict[str, Member]


class _Digesting:
    """Passes bytes on and counts them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._sha256 = file, hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._note(data)

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._note(data)
        return data

    def _note(self, data: bytes) -> None:
        self._sha256.update(data)
        self.bytes += len(data)

    def member(self, rows: int = 0) -> Member:
        return Member(self._sha256.hexdigest(), self.bytes, rows)


def write_archive(path: Path, log: LogCopy, *, program: str, made_ms: int) -> ArchiveManifest:
    """Write the log into a new file that only its owner can read.

    Raises: NotEmpty when `path` exists; StoreError when records are missing, or the file cannot be written.
    """
    if path.exists():
        raise NotEmpty(f"{path} exists already", hint="name another file")
    temporary = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                manifest = _fill(archive, log, program, made_ms)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename it never replaces a file made meanwhile
        _sync(path.parent)
    except FileExistsError as error:
        raise NotEmpty(f"{path} exists already", hint="name another file") from error
    except OSError as error:
        raise StoreError(f"the backup {path} could not be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return manifest


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(archive: zipfile.ZipFile, log: LogCopy, program: str, made_ms: int) -> ArchiveManifest:
    members = {EVENTS: _write_rows(archive, EVENTS, gapless(log.events()))}
    members[FINISHED] = _write_rows(archive, FINISHED, log.finished())
    image = log.snapshot()
    if image is not None:
        with archive.open(SNAPSHOT, "w", force_zip64=True) as file:
            sink = _Digesting(file)
            sink.write(encoding.encode_image(image))
        members[SNAPSHOT] = sink.member()
    manifest = ArchiveManifest(FORMAT, program, made_ms, log.epoch, members[EVENTS].rows, members)
    archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    return manifest


def _write_rows(archive: zipfile.ZipFile, name: str, rows: Iterable[tuple[object, ...]]) -> Member:
    count = 0
    with archive.open(name, "w", force_zip64=True) as file:
        sink = _Digesting(file)
        for row in rows:
            body = _encode(row)
            sink.write(_LENGTH.pack(len(body)) + body)
            count += 1
    return sink.member(count)


def gapless(rows: Iterable[EventRow]) -> Iterator[EventRow]:
    """Yield consecutive records from the first on. Raises: StoreError at a gap."""
    expected = 1
    for row in rows:
        if row.seq != expected:
            raise StoreError(f"the log is not whole: record {expected} is expected, and {row.seq} comes there")
        yield row
        expected += 1


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Raises: InvalidInput when the file is no archive, or is damaged where it is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, msgspec.MsgspecError) as error:
        text = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{path} cannot be read as a backup: {text}") from error


def read_manifest(archive: zipfile.ZipFile) -> ArchiveManifest:
    """Raises: InvalidInput when the archive is of a newer program; KeyError or MsgspecError when it is none."""
    manifest = msgspec.json.decode(archive.read(MANIFEST), type=ArchiveManifest)
    if manifest.format > FORMAT:
        raise InvalidInput(
            f"the backup has format {manifest.format}, this program knows up to {FORMAT}",
            hint=f"use the newer program that wrote it ({manifest.program})",
        )
    return manifest


def restore_archive(path: Path, target: Restoring) -> ArchiveManifest:
    """Fill `target` from an archive, comparing every checksum and count; callers discard `target` when this fails.

    Raises: InvalidInput when the archive is damaged; StoreError.
    """
    with open_archive(path) as archive:
        manifest = read_manifest(archive)
        target.add_events(gapless(_read_rows(archive, manifest, EVENTS, EventRow)))
        target.add_finished(_read_rows(archive, manifest, FINISHED, FinishedRow))
        target.finish(manifest.epoch, _read_snapshot(archive, manifest))
    return manifest


def _read_rows(archive: zipfile.ZipFile, manifest: ArchiveManifest, name: str, kind: type[R]) -> Iterator[R]:
    count = 0
    decode = msgspec.msgpack.Decoder(kind).decode
    with archive.open(name) as file:
        source = _Digesting(file)
        while head := source.read(_LENGTH.size):
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else ROW_MAX_BYTES + 1
            body = source.read(length) if length <= ROW_MAX_BYTES else b""
            if len(body) != length:
                raise InvalidInput(f"{name} of the backup ends in the middle of a row")
            yield decode(body)
            count += 1
    _compare(manifest, name, source.member(count))


def _read_snapshot(archive: zipfile.ZipFile, manifest: ArchiveManifest) -> Image | None:
    if SNAPSHOT not in manifest.members:
        return None
    with archive.open(SNAPSHOT) as file:
        source = _Digesting(file)
        body = source.read(-1)
    _compare(manifest, SNAPSHOT, source.member())
    return encoding.image_of(encoding.digest_of(body), body)


def _compare(manifest: ArchiveManifest, name: str, found: Member) -> None:
    if manifest.members.get(name) != found:
        raise InvalidInput(f"{name} of the backup is not what its manifest says: it was damaged or changed")
