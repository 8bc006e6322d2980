"""Saves a state: at once while training waits, or beside it once the state has been copied."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.training.errors import DirectoryBusy, PartsMissing
from penstock.training.ranks.layouts import Layout
from penstock.training.reports import Reporter
from penstock.training.storage.checkpoints import Checkpoints
from penstock.training.storage.manifest import Manifest

Capture = Callable[[], Mapping[str, Any]]
TROUBLE = (OSError, PartsMissing, DirectoryBusy)
"""Failures of a save that a disk or another rank causes; training goes on, and tries again."""

_log = logging.getLogger("penstock.training")


class Saver:
    """Saves the states of one rank. Its methods are for one thread at a time.

    Args:
        behind: copy the state and write it beside training, where the caller allows it.
    """

    def __init__(self, directory: Checkpoints, layout: Layout, reporter: Reporter, *, behind: bool) -> None:
        self.directory, self.layout = directory, layout
        self._reporter = reporter
        self._behind = behind
        self._saved: Manifest | None = None
        self._thread: threading.Thread | None = None
        self._under_way = -1
        self._failure: Exception | None = None

    @property
    def takes_part(self) -> bool:
        """Whether this rank writes anything."""
        return self.layout.saves(self.directory.place.rank)

    @property
    def busy(self) -> bool:
        """Whether a state is being written beside training."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def saved(self) -> Manifest | None:
        """The newest checkpoint that this process published, or resumed from."""
        return self._saved

    def resumed(self, manifest: Manifest) -> None:
        """Take note that training goes on from this checkpoint."""
        self._saved = manifest

    def prepare(self, capture: Capture) -> None:
        """Try, without writing, whether the state can be saved: better after one step than after ten minutes.

        Raises: UnsavableValue.
        """
        if self.takes_part:
            try:
                self.layout.prepare(capture(), behind=self._behind)
            except (MemoryError, OSError) as error:
                self._no_copies(error)

    def has(self, step: int) -> bool:
        """Whether the state of `step` is saved, or on its way."""
        return step == self._under_way if self.busy else self._saved is not None and self._saved.step == step

    def save(self, step: int, capture: Capture, why: str) -> Manifest:
        """Return when the state is on disk. A step that was saved by this process already is not saved again.

        Raises: FencedAttempt, UnsavableValue, and the errors in TROUBLE.
        """
        self.wait()
        if self._saved is not None and self._saved.step == step:
            if why not in ("interval", "final"):
                self._tell(self._saved, why, held_s=0.0, took_s=0.0)
            return self._saved
        return self.publish(
            why, lambda: self.layout.write(self.directory, step, self.layout.direct(self.directory, capture()))
        )

    def publish(self, why: str, write: Callable[[], Manifest]) -> Manifest:
        """Return the manifest that `write` published, and report it. Raises: the errors of `write`."""
        begun_s = time.monotonic()
        manifest = write()
        took_s = time.monotonic() - begun_s
        self._done(manifest, why, held_s=took_s, took_s=took_s)
        return manifest

    def save_behind(self, step: int, capture: Capture, why: str) -> None:
        """Return when the state is copied; later failures are logged and reported.

        Raises: FencedAttempt (also that of an earlier save), UnsavableValue; TROUBLE if it had to save at once.
        """
        self.wait()
        if not self._behind:
            self.save(step, capture, why)
            return
        begun_s = time.monotonic()
        try:
            staged = self.layout.stage(self.directory, capture())
        except (MemoryError, OSError) as error:  # mmap raises either
            self._no_copies(error)
            self.save(step, capture, why)
            return
        held_s = time.monotonic() - begun_s
        self._under_way = step
        self._thread = threading.Thread(
            target=self._write, args=(step, staged, why, begun_s, held_s), name="penstock-save", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return when no write is under way any more. Raises: FencedAttempt and its like, from that save."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _write(self, step: int, staged: Any, why: str, begun_s: float, held_s: float) -> None:
        try:
            manifest = self.layout.write(self.directory, step, staged)
        except (*TROUBLE, MemoryError) as error:
            self.failed(step, why, error)
        except Exception as error:  # noqa: BLE001 - raised in the training thread, at its next save or at the end
            self._failure = error
        else:
            self._done(manifest, why, held_s=held_s, took_s=time.monotonic() - begun_s)

    def failed(self, step: int, why: str, error: Exception) -> None:
        """Say that a save failed and that training goes on."""
        _log.warning("checkpoint failed", extra={"step": step, "error": str(error)})
        self._reporter.event("checkpoint_failed", step, why=why, problem=str(error))

    def _done(self, manifest: Manifest, why: str, *, held_s: float, took_s: float) -> None:
        self._saved = manifest
        self._tell(manifest, why, held_s=held_s, took_s=took_s)

    def _tell(self, manifest: Manifest, why: str, *, held_s: float, took_s: float) -> None:
        if self.directory.place.rank == 0 or not self.layout.together:
            self._reporter.event(
                "checkpoint",
                manifest.step,
                bytes=manifest.size_bytes,
                duration_ms=round(took_s * 1000),
                held_ms=round(held_s * 1000),
                why=why,
            )

    def _no_copies(self, error: Exception) -> None:
        _log.warning("no memory for a copy of the state: training waits for each save", extra={"error": str(error)})
        self._behind = False
