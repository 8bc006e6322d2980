"""A directory of checkpoints: writes them so that a crash leaves the old ones, reads only what is whole.

Layout: `step-000000123/` (published, never changed again), `attempt` (the fence), `.lock`, and names with a
leading dot for everything that is not yet or no longer a checkpoint. A checkpoint appears by one rename of a
folder whose files, names and manifest are on disk already; it goes away by a rename to a dotted name first.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.training import durable
from penstock.training.blobs import Ready, Shelf, check_blob, read_all, ready, write_pieces
from penstock.training.errors import BadArgument, DamagedCheckpoint, FencedAttempt, StateMoved, WorldSizeMismatch
from penstock.training.fence import Fence
from penstock.training.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Blob,
    Layout,
    Manifest,
    ManifestProblem,
    decode_manifest,
    encode_manifest,
)
from penstock.training.values import State, decode_state, encode_state

DEFAULT_KEEP = 3
MAX_STEP = 10**12
_PUBLISHED = re.compile(r"step-(\d{9,12})")
_LEFTOVER = re.compile(r"\.(writing|deleting|damaged|parts|rescue)-step-\d+-a(\d+)(-.*)?")

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
class Place:
    """Who this process is among all that use the directory: job id, rank of world size, attempt number."""

    job: str | None = None
    attempt: int | None = None
    rank: int = 0
    world_size: int = 1


def folder_name(step: int) -> str:
    """Return the name of the checkpoint of `step`. Raises: BadArgument if `step` is out of range."""
    if not 0 <= step < MAX_STEP:
        raise BadArgument(f"step is {step}; expected 0 to {MAX_STEP - 1}")
    return f"step-{step:09d}"


class CheckpointDirectory:
    """The checkpoints of one job in `folder`, which is made if it is missing.

    Args:
        keep: how many of the newest checkpoints to keep (>= 1).
        compress: where a sample of a file shrinks well, and the package zstandard is there.
    """

    def __init__(
        self, folder: Path, place: Place | None = None, *, keep: int = DEFAULT_KEEP, compress: bool = True
    ) -> None:
        if keep < 1:
            raise BadArgument(f"keep is {keep}; expected at least 1")
        self.folder = folder
        self.place = place or Place()
        self._keep = keep
        self.compress = compress
        self.shelf = Shelf()
        """What the newest checkpoint holds that this process wrote or read."""
        self._damaged: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self.fence = Fence(folder, self.place.attempt, self._highest_attempt)

    def open(self) -> None:
        """Claim the directory for this attempt; rank 0 clears what dead attempts left half done.

        Raises: FencedAttempt, DirectoryBusy, OSError.
        """
        self.fence.claim()
        if self.place.rank == 0:
            self._clear_leftovers()

    def steps(self) -> list[int]:
        """Return the steps of all published checkpoints, valid or not, newest first."""
        names = (_PUBLISHED.fullmatch(name) for name in os.listdir(self.folder))
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def verify(self, step: int) -> Manifest:
        """Read every byte of the checkpoint of `step` and compare. Raises: DamagedCheckpoint."""
        folder = self.folder / folder_name(step)
        try:
            manifest = self._manifest(step)
            for blob in manifest.blobs:
                check_blob(folder, blob)
        except ManifestProblem as problem:
            raise DamagedCheckpoint(step, str(problem)) from None
        except OSError as error:
            raise DamagedCheckpoint(step, f"cannot be read: {error}") from None
        return manifest

    def read(self, step: int) -> Found:
        """Return the checkpoint of `step` for this rank. Raises: DamagedCheckpoint, WorldSizeMismatch, BadArgument."""
        folder = self.folder / folder_name(step)
        try:
            manifest = self._manifest(step)
            prefix = self._prefix(manifest)
            files = read_all(folder, manifest.blobs, wanted=prefix)
            found = Found(manifest, decode_state(files.__getitem__))
        except ManifestProblem as problem:
            raise DamagedCheckpoint(step, str(problem)) from None
        except OSError as error:
            raise DamagedCheckpoint(step, f"cannot be read: {error}") from None
        self.shelf.fill(folder, (blob for blob in manifest.blobs if blob.name.startswith(prefix)))
        return found

    def _prefix(self, manifest: Manifest) -> str:
        """Return what the names of this rank's files begin with."""
        if manifest.layout in ("dcp", "foreign"):
            raise BadArgument(
                f"checkpoint of step {manifest.step} has layout {manifest.layout!r}, which is not a state of plain "
                "values; read it with what wrote it"
            )
        if manifest.layout == "whole":
            return ""
        if manifest.world_size != self.place.world_size:
            raise WorldSizeMismatch(
                f"checkpoint of step {manifest.step} has the parts of {manifest.world_size} ranks; "
                f"expected {self.place.world_size}, the world size now. "
                f"Start with {manifest.world_size} replicas."
            )
        return f"{part_name(self.place.rank)}/"

    def newest_valid(self, read: Callable[[int], Found] | None = None) -> tuple[Found | None, list[Skipped]]:
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

    def write_files(self, step: int, pieces: Iterable[Ready], *, layout: Layout = "whole") -> Manifest:
        """Like `write`, for a state that was turned into files already."""
        self.fence.check()
        work = self.work_folder(step)
        try:
            durable.create_folder(work)
            written = write_pieces(work, pieces, self.shelf, compress=self.compress)
            return self.publish(work, step, written, layout=layout)
        except OSError as error:
            self.shelf.clear()
            self._explain(error)
            _remove_quietly(work)
            raise

    def work_folder(self, step: int) -> Path:
        """Return a path to be made a folder and filled for `publish`; a crash leaves it to be cleared."""
        return self.folder / f".writing-{folder_name(step)}-a{self.fence.attempt}-{secrets.token_hex(4)}"

    def publish(
        self, work: Path, step: int, blobs: Iterable[Blob], *, layout: Layout, unless: Callable[[], bool] | None = None
    ) -> Manifest:
        """Give the folder `work`, whose blobs are on disk, a manifest and its final name.

        Args:
            unless: asked under the lock, last of all; True gives the folder up (`StateMoved`).
        Raises: FencedAttempt, DirectoryBusy, StateMoved, OSError.
        """
        manifest = Manifest(
            job=self.place.job,
            attempt=self.fence.attempt,
            step=step,
            world_size=self.place.world_size,
            layout=layout,
            created_ms=time.time_ns() // 1_000_000,
            blobs=tuple(blobs),
        )
        durable.write_bytes(work / MANIFEST_NAME, encode_manifest(manifest))
        durable.sync_folder(work)
        target = self.folder / folder_name(step)
        kept = self._whole_already(step)
        if kept is not None:
            _remove_quietly(work)
            return kept
        with self.fence.held():
            if unless is not None and unless():
                _remove_quietly(work)
                raise StateMoved(step)
            if target.exists():
                self._rename_away("damaged", step)
            durable.move(work, target)
        self._damaged.discard(step)
        if layout == "whole":
            self.shelf.fill(target, manifest.blobs)
        self._let_go(step)
        return manifest

    def _whole_already(self, step: int) -> Manifest | None:
        """Look before taking the lock: verifying a big checkpoint takes longer than others wait for a lock."""
        if not (self.folder / folder_name(step)).exists():
            return None
        self.fence.check()
        try:
            return self.verify(step)
        except DamagedCheckpoint as error:
            _log.warning("damaged checkpoint replaced", extra={"step": step, "problem": error.problem})
            return None

    def _let_go(self, newest: int) -> None:
        """Delete what retention does not keep. Trouble here costs disk space, never a checkpoint."""
        kept = [newest]
        for step in self.steps():
            if len(kept) < self._keep and step != newest and self._looks_whole(step):
                kept.append(step)
        if len(kept) < self._keep:
            return
        oldest_kept = min(kept)
        for step in self.steps():
            if step < oldest_kept:
                try:
                    with self.fence.held():
                        gone = self._rename_away("deleting", step)
                except OSError as error:
                    _log.warning("old checkpoint stays", extra={"step": step, "error": str(error)})
                    return
                _remove_quietly(gone)

    def _looks_whole(self, step: int) -> bool:
        """Manifest and sizes only: hashing all that is kept, at every save, would cost minutes of reading."""
        if step in self._damaged:
            return False
        folder = self.folder / folder_name(step)
        try:
            blobs = self._manifest(step).blobs
            return all((folder / blob.name).stat().st_size == blob.size_bytes for blob in blobs)
        except (ManifestProblem, OSError):
            return False

    def _manifest(self, step: int) -> Manifest:
        with (self.folder / folder_name(step) / MANIFEST_NAME).open("rb") as file:
            raw = file.read(MAX_MANIFEST_BYTES + 1)
        if len(raw) > MAX_MANIFEST_BYTES:
            raise ManifestProblem(f"{MANIFEST_NAME} is longer than {MAX_MANIFEST_BYTES} bytes")
        manifest = decode_manifest(raw)
        if manifest.step != step:
            raise ManifestProblem(f"{MANIFEST_NAME} is of step {manifest.step}; expected {step}, as the folder says")
        return manifest

    def _highest_attempt(self) -> int:
        attempts = [0]
        for step in self.steps():
            try:
                attempts.append(self._manifest(step).attempt)
            except (ManifestProblem, OSError) as error:
                _log.info("manifest passed over", extra={"step": step, "problem": str(error)})
        return max(attempts)

    def _rename_away(self, why: str, step: int) -> Path:
        name = f".{why}-{folder_name(step)}-a{self.fence.attempt}-{secrets.token_hex(4)}"
        durable.move(self.folder / folder_name(step), self.folder / name)
        return self.folder / name

    def _clear_leftovers(self) -> None:
        for name in os.listdir(self.folder):
            found = _LEFTOVER.fullmatch(name)
            live_parts = found and found[1] == "parts" and int(found[2]) >= self.fence.attempt
            if found and not live_parts and int(found[2]) <= self.fence.attempt:
                _remove_quietly(self.folder / name)

    def _explain(self, error: OSError) -> None:
        """A newer attempt clears our half-written folder: then the fence is the cause, not the disk."""
        try:
            self.fence.check()
        except FencedAttempt as fenced:
            raise fenced from error


def part_name(rank: int) -> str:
    """Return the name of the folder that holds the part of `rank` in a sharded checkpoint."""
    return f"rank-{rank:04d}"


def _remove_quietly(folder: Path) -> None:
    try:
        durable.remove_folder(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("folder could not be removed", extra={"folder": str(folder), "error": str(error)})
