"""A directory of checkpoints: writes them so that a crash leaves the old ones, reads only whole ones.

Layout: `step-000000123/` (published, never changed again), `attempt` (the fence), `.lock`, and names with a
leading dot for everything that is not yet or no longer a checkpoint. A checkpoint appears by one rename of a
folder whose files, names and manifest are on disk already; it goes away by a rename to a dotted name first.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock.training.errors import BadArgument, StateMoved, WorldSizeMismatch
from penstock.training.storage import durable
from penstock.training.storage.blobs import SHARED_BY, Folder, Ready, Shelf, write_pieces
from penstock.training.storage.checkpoints import (
    DEFAULT_KEEP,
    Checkpoints,
    Files,
    Place,
    Skipped,
    folder_name,
    part_name,
)
from penstock.training.storage.fence import Fence
from penstock.training.storage.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Blob,
    Layout,
    Manifest,
    encode_manifest,
)

FILES_NAME = "files"
_PUBLISHED = re.compile(r"step-(\d{9,12})")
_LEFTOVER = re.compile(r"\.(writing|deleting|damaged|parts|rescue)-step-\d+-a(\d+)(-.*)?")

_log = logging.getLogger("penstock.training")


class CheckpointDirectory(Checkpoints):
    """The checkpoints of one job in `folder`, which is made if it is missing.

    Args:
        keep: how many of the newest checkpoints to keep (>= 1).
        compress: where a sample of a file shrinks well, and the package zstandard is there.
    """

    def __init__(
        self, folder: Path, place: Place | None = None, *, keep: int = DEFAULT_KEEP, compress: bool = True
    ) -> None:
        fence = Fence(folder, place.attempt if place else None, self._highest_attempt)
        super().__init__(place, fence, Shelf(lending=keep > SHARED_BY), keep=keep, compress=compress)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def where(self) -> str:
        return str(self.folder)

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of `step`, whether or not it is there. Raises: BadArgument."""
        return self.folder / folder_name(step)

    def steps(self) -> list[int]:
        names = (_PUBLISHED.fullmatch(name) for name in os.listdir(self.folder))
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def write_files(self, step: int, pieces: Iterable[Ready], *, layout: Layout = "whole") -> Manifest:
        with self._filling(step) as work:
            written = write_pieces(Folder(work), pieces, self.shelf, compress=self.compress)
            return self.publish(work, step, written, layout=layout)

    def adopt(self, step: int, folder: Path, *, linked: bool = False) -> Manifest:
        """Publish the files in `folder` and below, which another library wrote, as the checkpoint of `step`.

        They are copied, so `folder` may change afterwards. `read_files` gives them back. Else like `write`.

        Args:
            linked: hard links instead of copies where that is possible: only for files that are never written to
                again; they may be deleted or replaced.
        Raises: BadArgument where there is no file; FencedAttempt, DirectoryBusy, OSError.
        """
        names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        if not names:
            raise BadArgument(f"{folder} holds no files; expected a folder with what is to be published")
        with self._filling(step) as work:
            target = work / FILES_NAME
            folders = sorted({target / parent for name in names for parent in name.parents})
            for one in folders:
                one.mkdir(parents=True, exist_ok=True)
            tasks = [partial(durable.take_over, folder / name, target / name, linked=linked) for name in names]
            written = durable.in_parallel(tasks)
            for one in folders:
                durable.sync_folder(one)
            blobs = [
                Blob(f"{FILES_NAME}/{n.as_posix()}", w.size_bytes, w.checksum)
                for n, w in zip(names, written, strict=True)
            ]
            return self.publish(work, step, blobs, layout="foreign")

    def read_files(self, step: int) -> Files:
        """Return the folder that `adopt` filled for `step`, once every file in it was compared.

        Raises: DamagedCheckpoint; BadArgument for a checkpoint of another kind.
        """
        manifest = self.manifest(step)
        if manifest.layout != "foreign":
            raise BadArgument(
                f"checkpoint of step {step} has layout {manifest.layout!r}; expected 'foreign', as adopt() writes it. "
                "Resume with what wrote it."
            )
        self.verify_blobs(step, manifest.blobs)
        return Files(manifest, self.path(step) / FILES_NAME)

    def newest_foreign(self) -> tuple[Files | None, list[Skipped]]:
        """Return the newest whole checkpoint that `adopt` published, and the newer ones that are not whole."""
        return self.newest_valid(self.read_files)

    @contextmanager
    def _filling(self, step: int) -> Iterator[Path]:
        """Give the body a new work folder to fill and publish."""
        self.fence.check()
        work = self.work_folder(step)
        try:
            durable.create_folder(work)
            yield work
        except OSError as error:
            self.shelf.clear()
            self._explain(error)
            _remove_quietly(work)
            raise

    def work_folder(self, step: int, name: str = "") -> Path:
        """Return a path to be made a folder and filled for `publish`; a crash leaves it to be cleared.

        Args:
            name: distinguishes it from others of that step; default: a random one.
        """
        return self.folder / f".writing-{folder_name(step)}-a{self.fence.attempt}-{name or secrets.token_hex(4)}"

    def discard(self, work: Path) -> None:
        """Delete a work folder that is not published; a newer attempt clears files that cannot be deleted."""
        _remove_quietly(work)

    def publish(
        self, work: Path, step: int, blobs: Iterable[Blob], *, layout: Layout, unless: Callable[[], bool] | None = None
    ) -> Manifest:
        """Give the folder `work`, whose blobs are on disk, a manifest and its final name.

        Args:
            unless: called under the lock, last of all; True gives the folder up (`StateMoved`).
        Raises: FencedAttempt, DirectoryBusy, StateMoved, OSError.
        """
        manifest = self._new_manifest(step, layout, blobs)
        durable.write_bytes(work / MANIFEST_NAME, encode_manifest(manifest))
        durable.sync_folder(work)
        target = self.path(step)
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
            self.shelf.fill(str(target), manifest.blobs)
        self._let_go(step)
        return manifest

    def _prefix(self, manifest: Manifest) -> str:
        if manifest.layout != "parts":
            return super()._prefix(manifest)
        if manifest.world_size != self.place.world_size:
            raise WorldSizeMismatch(
                f"checkpoint of step {manifest.step} has the parts of {manifest.world_size} ranks; "
                f"expected {self.place.world_size}, the world size now. "
                f"Start with {manifest.world_size} replicas."
            )
        return f"{part_name(self.place.rank)}/"

    def _source(self, step: int) -> Folder:
        return Folder(self.path(step))

    def _raw_manifest(self, step: int) -> bytes:
        with open(self.path(step) / MANIFEST_NAME, "rb", opener=durable.at_once) as file:
            return file.read(MAX_MANIFEST_BYTES + 1)

    def _sized(self, step: int, blobs: Iterable[Blob]) -> bool:
        folder = self.path(step)
        return all((folder / blob.name).stat().st_size == blob.size_bytes for blob in blobs)

    def _let_go(self, newest: int) -> None:
        """Delete checkpoints beyond retention. Errors here cost disk space, never a checkpoint."""
        for step in self._surplus(newest):
            try:
                with self.fence.held():
                    gone = self._rename_away("deleting", step)
            except OSError as error:
                _log.warning("old checkpoint stays", extra={"step": step, "error": str(error)})
                return
            _remove_quietly(gone)

    def _rename_away(self, why: str, step: int) -> Path:
        name = f".{why}-{folder_name(step)}-a{self.fence.attempt}-{secrets.token_hex(4)}"
        durable.move(self.path(step), self.folder / name)
        return self.folder / name

    def _clear_leftovers(self) -> None:
        for name in os.listdir(self.folder):
            found = _LEFTOVER.fullmatch(name)
            live_parts = found and found[1] == "parts" and int(found[2]) >= self.fence.attempt
            if found and not live_parts and int(found[2]) <= self.fence.attempt:
                _remove_quietly(self.folder / name)


def on_disk(checkpoints: Checkpoints, what: str) -> CheckpointDirectory:
    """Return them as a directory. Raises: BadArgument naming `what`, where they are at a URL."""
    if not isinstance(checkpoints, CheckpointDirectory):
        raise BadArgument(
            f"{what} cannot be used with {checkpoints.where}; expected a directory that all ranks share. "
            "At a URL, rank 0 alone saves its state (layout=Whole())."
        )
    return checkpoints


def _remove_quietly(folder: Path) -> None:
    try:
        durable.remove_folder(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("folder could not be removed", extra={"folder": str(folder), "error": str(error)})
