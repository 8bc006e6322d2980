"""Snapshots of folders as they go over HTTP."""

import msgspec

from penstock.api.types import PagedList
from penstock.core.model.folder_snapshots import SnapshotFile


class NewSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A snapshot that jobs shall start in; without `files` it is asked whether the server has it."""

    snapshot: str
    """Its name: SHA-256 of the encoded list of its files, in hexadecimal digits."""
    files: tuple[SnapshotFile, ...] = ()
    """All its files by path, ascending; with `base` those that are new or differ."""
    base: str = ""
    """Name of another snapshot of yours that the server has."""
    removed: tuple[str, ...] = ()
    """Paths of `base` that it does not have."""


class SnapshotAnswer(msgspec.Struct, frozen=True):
    """What the server has of a snapshot."""

    snapshot: str
    complete: bool
    """All of it: jobs may start in it."""
    files_known: bool
    """False: the server has neither the snapshot nor `base`, and needs the whole list of files."""
    missing: tuple[bytes, ...] = ()
    """SHA-256 of the chunks to send, in the order of the files."""


class ChunksAnswer(msgspec.Struct, frozen=True):
    """What was sent."""

    chunks: int
    new_bytes: int
    """Of these, what the server did not have."""


class SnapshotView(msgspec.Struct, frozen=True):
    """A snapshot that the server keeps for the caller."""

    name: str
    files: int
    """Files and links; 0: not counted, a former version kept it."""
    bytes: int
    """Of its files; contents that several snapshots have are kept once."""
    used_ms: int
    """When it was last sent, asked for or named by a submit (unix ms)."""
    jobs: int
    """Live jobs, and jobs of schedules, that start in it: it stays for them."""


class SnapshotList(PagedList, frozen=True):
    snapshots: list[SnapshotView]
