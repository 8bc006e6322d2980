"""The common part of all places for checkpoints: which is the newest valid one, which may go, how one is read.

Where the files lie, and how they appear all at once, is for `directory` (a folder) and `remote` (a URL).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from penstock.training.errors import BadArgument, DamagedCheckpoint, FencedAttempt
from penstock.training.storage import durable
from penstock.training.storage.blobs import BlobSource, Ready, Shelf, check_blob, read_all, ready
from penstock.training.storage.fence import AttemptRecord
from penstock.training.storage.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Blob,
    Layout,
    Manifest,
    ManifestProblem,
    decode_manifest,
)
from penstock.training.storage.values import State, decode_state, encode_state

DEFAULT_KEEP = 3
MAX_STEP = 10**12
Read = TypeVar("Read")

_log = logging.getLogger("penstock.training")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that was passed over, and why."""

    step: int
    problem: str


@dataclass(frozen=True, slots=True)
class Found:
    """The newest valid checkpoint."""

    manifest: Manifest
    state: State


@dataclass(frozen=True, slots=True)
class Files:
    """The newest valid checkpoint that another library wrote: its files are in `folder`."""

    manifest: Manifest
    folder: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Identity of this process among all users of the directory: job id, rank of world size, attempt number."""

    job: str | None = None
    attempt: int | None = None
    rank: int = 0
    world_size: int = 1


def folder_name(step: int) -> str:
    """Return the name of the checkpoint of `step`. Raises: BadArgument if `step` is out of range."""
    if not 0 <= step < MAX_STEP:
        raise BadArgument(f"step is {step}; expected 0 to {MAX_STEP - 1}")
    return f"step-{step:09d}"


class Checkpoints(ABC):
    """The checkpoints of one job, as one process of it sees them.

    Args:
        keep: how many of the newest checkpoints to keep (>= 1).
        compress: where a sample of a file shrinks well, and the package zstandard is there.
        fence: keeps older attempts from publishing.
        shelf: files of the newest checkpoint that this process wrote or read.
    """

    def __init__(self, place: Place | None, fence: AttemptRecord, shelf: Shelf, *, keep: int, compress: bool) -> None:
        if keep < 1:
            raise BadArgument(f"keep is {keep}; expected at least 1")
        self.place = place or Place()
        self.fence = fence
        self.shelf = shelf
        self.compress = compress
        self._keep = keep
        self._damaged: set[int] = set()

    @property
    @abstractmethod
    def where(self) -> str:
        """The path or URL, for people."""

    @abstractmethod
    def steps(self) -> list[int]:
        """Return the steps of all published checkpoints, valid or not, newest first."""

    @abstractmethod
    def write_files(self, step: int, pieces: Iterable[Ready]) -> Manifest:
        """Like `write`, for a state that was turned into files already."""

    @abstractmethod
    def _source(self, step: int) -> BlobSource:
        """Return where the files of a checkpoint are read from."""

    @abstractmethod
    def _raw_manifest(self, step: int) -> bytes:
        """Return the manifest as it lies there, a byte more than allowed at most. Raises: OSError."""

    @abstractmethod
    def _sized(self, step: int, blobs: Iterable[Blob]) -> bool:
        """Whether all files have the right size. Raises: OSError."""

    @abstractmethod
    def _clear_leftovers(self) -> None:
        """Delete what dead attempts left half done."""

    def open(self) -> None:
        """Claim the checkpoints for this attempt; rank 0 clears what dead attempts left half done.

        Raises: FencedAttempt, DirectoryBusy, OSError.
        """
        self.fence.claim()
        if self.place.rank == 0:
            self._clear_leftovers()

    def manifest(self, step: int) -> Manifest:
        """Return what the checkpoint of `step` should consist of. Raises: DamagedCheckpoint."""
        with _named(step):
            return self._manifest(step)

    def verify(self, step: int) -> Manifest:
        """Read every byte of the checkpoint of `step` and compare. Raises: DamagedCheckpoint."""
        manifest = self.manifest(step)
        self.verify_blobs(step, manifest.blobs)
        return manifest

    def verify_blobs(self, step: int, blobs: Iterable[Blob]) -> None:
        """Read these files of the checkpoint of `step` and compare. Raises: DamagedCheckpoint."""
        with _named(step):
            source = self._source(step)
            durable.in_parallel([partial(check_blob, source, blob) for blob in blobs])

    def read(self, step: int) -> Found:
        """Return the checkpoint of `step` for this rank. Raises: DamagedCheckpoint, WorldSizeMismatch, BadArgument."""
        with _named(step):
            manifest = self._manifest(step)
            prefix = self._prefix(manifest)
            source = self._source(step)
            files = read_all(source, manifest.blobs, wanted=prefix)
            found = Found(manifest, decode_state(files.__getitem__))
        self.shelf.fill(source.folder, (blob for blob in manifest.blobs if blob.name.startswith(prefix)))
        return found

    @overload
    def newest_valid(self) -> tuple[Found | None, list[Skipped]]: ...

    @overload
    def newest_valid(self, read: Callable[[int], Read]) -> tuple[Read | None, list[Skipped]]: ...

    def newest_valid(self, read: Callable[[int], Any] | None = None) -> tuple[Any, list[Skipped]]:
        """Return the newest checkpoint that is whole, and the newer ones that are not, newest first.

        Args:
            read: how to read the checkpoint of a step; default: `read`.
        """
        skipped: list[Skipped] = []
        for step in self.steps():
            try:
                return (read or self.read)(step), skipped
            except DamagedCheckpoint as error:
                self._damaged.add(step)
                skipped.append(Skipped(step, error.problem))
        return None, skipped

    def write(self, step: int, state: Mapping[str, Any]) -> Manifest:
        """Publish `state` as the checkpoint of `step`, return its manifest, then let go of the oldest ones.

        A whole checkpoint of the same step is kept as it is. When this raises, the older ones are untouched.
        Raises: FencedAttempt, DirectoryBusy, UnsavableValue, OSError.
        """
        return self.write_files(step, ready(encode_state(state)))

    def _prefix(self, manifest: Manifest) -> str:
        """Return the prefix of the names of this rank's files."""
        if manifest.layout in ("dcp", "foreign"):
            raise BadArgument(
                f"checkpoint of step {manifest.step} has layout {manifest.layout!r}, which is not a state of plain "
                "values; read it with what wrote it"
            )
        return ""

    def _manifest(self, step: int) -> Manifest:
        raw = self._raw_manifest(step)
        if len(raw) > MAX_MANIFEST_BYTES:
            raise ManifestProblem(f"{MANIFEST_NAME} is longer than {MAX_MANIFEST_BYTES} bytes")
        manifest = decode_manifest(raw)
        if manifest.step != step:
            raise ManifestProblem(f"{MANIFEST_NAME} is of step {manifest.step}; expected {step}, as the folder says")
        return manifest

    def _new_manifest(self, step: int, layout: Layout, blobs: Iterable[Blob]) -> Manifest:
        return Manifest(
            job=self.place.job,
            attempt=self.fence.attempt,
            step=step,
            world_size=self.place.world_size,
            layout=layout,
            created_ms=time.time_ns() // 1_000_000,
            blobs=tuple(blobs),
        )

    def _whole_already(self, step: int) -> Manifest | None:
        """Look before taking the lock: verifying a big checkpoint takes longer than others wait for a lock."""
        if step not in self.steps():
            return None
        self.fence.check()
        try:
            return self.verify(step)
        except DamagedCheckpoint as error:
            _log.warning("damaged checkpoint replaced", extra={"step": step, "problem": error.problem})
            return None

    def _surplus(self, newest: int) -> list[int]:
        """Return the steps that retention does not keep, now that `newest` is published."""
        kept = [newest]
        steps = self.steps()
        for step in steps:
            if len(kept) < self._keep and step != newest and self._looks_whole(step):
                kept.append(step)
        return [step for step in steps if step < min(kept)] if len(kept) >= self._keep else []

    def _looks_whole(self, step: int) -> bool:
        """Manifest and sizes only: hashing all that is kept, at every save, would cost minutes of reading."""
        if step in self._damaged:
            return False
        try:
            return self._sized(step, self._manifest(step).blobs)
        except (ManifestProblem, OSError):
            return False

    def _highest_attempt(self) -> int:
        attempts = [0]
        for step in self.steps():
            try:
                attempts.append(self._manifest(step).attempt)
            except (ManifestProblem, OSError) as error:
                _log.info("manifest passed over", extra={"step": step, "problem": str(error)})
        return max(attempts)

    def _explain(self, error: OSError) -> None:
        """A newer attempt clears our half-written files: then the fence is the cause, not the disk."""
        try:
            self.fence.check()
        except FencedAttempt as fenced:
            raise fenced from error


def part_name(rank: int) -> str:
    """Return the name of the folder that holds the part of `rank` in a sharded checkpoint."""
    return f"rank-{rank:04d}"


@contextmanager
def _named(step: int) -> Iterator[None]:
    """Say of which step a damage is."""
    try:
        yield
    except ManifestProblem as problem:
        raise DamagedCheckpoint(step, str(problem)) from None
    except OSError as error:
        raise DamagedCheckpoint(step, f"cannot be read: {error}") from None
