"""Saves what the surviving ranks still hold when another rank fails, or when training is stuck and has to leave.

At each border between two steps a shadow of the state is taken: what is small is copied, of what is large only the
stamp is kept that autograd changes with every write in place. A rank that waits in a collective for one that is gone
has not touched its weights since: as long as the stamps are the same, the state of the border is still there, and it
can be saved from another thread while the main one is stuck in C. So no step is lost that every rank had completed.
Just-in-time checkpointing: Gupta et al., EuroSys 2024; there for errors of the device, here for any.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from penstock.training import durable
from penstock.training.blobs import Ready, write_pieces
from penstock.training.contents import Content, Fixed, Piece
from penstock.training.directory import CheckpointDirectory, folder_name
from penstock.training.errors import TrainingError
from penstock.training.manifest import Manifest
from penstock.training.reports import Reporter
from penstock.training.values import encode_state

COPY_MAX_BYTES = 64 * 2**10
"""A content up to this size is copied at each border."""
COST_MAX_MILLI = 50
"""Shadows are given up where they take more than this share of training."""
COST_WINDOW_S = 5.0
TRIAL_BORDERS = 4
"""At so many borders a sample of the data is compared with what the stamps say."""

_log = logging.getLogger("penstock.training")


class Shadow:
    """The state at one border: valid as long as what it refers to has not changed."""

    def __init__(self, step: int, state: Mapping[str, Any]) -> None:
        self.step = step
        self._pieces = [_keep(piece) for piece in encode_state(state)]
        self._large = [c for piece in self._pieces for c in piece.contents if not isinstance(c, Fixed)]
        self._stamps = [content.stamp() for content in self._large]
        self.blind = None in self._stamps
        """It holds large data that nothing tells changes of: NumPy arrays, tensors made in inference mode."""

    def valid(self) -> bool:
        """Whether the state of the border is still there."""
        return not self.blind and [content.stamp() for content in self._large] == self._stamps

    def files(self) -> list[Ready]:
        """Return the files that hold the state, as it lies in memory."""
        return [Ready(piece.name, tuple(piece.windows())) for piece in self._pieces]

    def samples(self) -> list[tuple[Hashable, bytes]]:
        """Return stamp and sample of all that is referred to."""
        return list(zip(self._stamps, (content.sample() for content in self._large), strict=True))


def _keep(piece: Piece) -> Piece:
    return Piece(piece.name, tuple(_kept(content) for content in piece.contents))


def _kept(content: Content) -> Content:
    if isinstance(content, Fixed) or content.size_bytes > COPY_MAX_BYTES:
        return content
    return Fixed(bytes(content.view()))


class Rescue:
    """Takes shadows, and saves the last one in need. One for a session; `lock` is held by whoever saves.

    Args:
        clock_s: monotonic seconds.
    """

    def __init__(
        self, directory: CheckpointDirectory, reporter: Reporter, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.lock = threading.Lock()
        self._directory, self._reporter, self._clock_s = directory, reporter, clock_s
        self._shadow: Shadow | None = None
        self._samples: list[tuple[Hashable, bytes]] = []
        self._trials = 0
        self._on = True
        self._since_s = clock_s()
        self._cost_s = 0.0

    def border(self, step: int, capture: Callable[[], Mapping[str, Any]]) -> None:
        """Take the shadow of the state of `step`, in place of the last."""
        if not self._on:
            return
        begun_s = self._clock_s()
        shadow = Shadow(step, capture())
        self._shadow = shadow
        if shadow.blind:
            self._give_up("the state has large values whose changes nobody can tell")
        elif self._trials < TRIAL_BORDERS:
            self._trials += 1
            self._try(shadow)
        self._weigh(begun_s)

    def save(self) -> bool:
        """Publish the state of the last border if it is still there; return whether it is published.

        False also where another rank of this attempt is at it. Whoever calls holds `lock`.
        """
        shadow = self._shadow
        if not self._on or shadow is None or shadow.step == 0 or not shadow.valid():
            return False
        if shadow.step in self._directory.steps():
            return True
        try:
            claim = self._directory.folder / f".rescue-{folder_name(shadow.step)}-a{self._directory.fence.attempt}"
            durable.create_folder(claim)
        except OSError:
            return False  # another rank of this attempt was first
        begun_s = self._clock_s()
        try:
            manifest = self._publish(shadow)
        except (TrainingError, OSError) as error:
            _log.warning("state could not be rescued", extra={"step": shadow.step, "error": str(error)})
            return False
        took_ms = round((self._clock_s() - begun_s) * 1000)
        size = manifest.size_bytes
        self._reporter.event("checkpoint", shadow.step, bytes=size, duration_ms=took_ms, held_ms=0, why="rescue")
        return True

    def _publish(self, shadow: Shadow) -> Manifest:
        directory = self._directory
        directory.fence.check()
        work = directory.work_folder(shadow.step)
        durable.create_folder(work)
        blobs = write_pieces(work, shadow.files(), directory.shelf, compress=directory.compress)
        return directory.publish(work, shadow.step, blobs, layout="whole", unless=lambda: not shadow.valid())

    def _try(self, shadow: Shadow) -> None:
        """Compare with the border before: data that changed under the same stamp makes stamps worthless."""
        before = dict(self._samples)
        self._samples = shadow.samples()
        if any(before.get(stamp, sample) != sample for stamp, sample in self._samples):
            self._give_up("its tensors are written to through .data, which leaves no trace")

    def _weigh(self, begun_s: float) -> None:
        now_s = self._clock_s()
        self._cost_s += now_s - begun_s
        over_s = now_s - self._since_s
        if over_s < COST_WINDOW_S:
            return
        if self._cost_s * 1000 > over_s * COST_MAX_MILLI:
            self._give_up(f"capturing it takes {self._cost_s / over_s:.0%} of the time")
        self._since_s, self._cost_s = now_s, 0.0

    def _give_up(self, why: str) -> None:
        self._on, self._shadow = False, None
        _log.info("the state cannot be rescued if a rank fails", extra={"why": why})


class Watch:
    """A thread that obeys a stop when the main thread cannot: it is stuck in a collective, or in one long step.

    Args:
        read_end: a byte arrives here with each signal, also while the main thread runs C code.
        stop_signal: the number to wait for.
        patience_s: how long the main thread has to come to a border by itself.
        leave: called after a rescue; does not return.
    """

    def __init__(
        self, rescue: Rescue, read_end: int, stop_signal: int, patience_s: float, leave: Callable[[], None]
    ) -> None:
        self._rescue, self._read_end, self._stop_signal = rescue, read_end, stop_signal
        self._patience_s, self._leave = patience_s, leave
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The main thread goes on by itself from here: it leaves, or has finished."""
        self._over.set()

    def _run(self) -> None:
        while data := os.read(self._read_end, 64):
            if self._over.is_set():
                return
            if self._stop_signal in data and not self._over.wait(self._patience_s):
                with self._rescue.lock:
                    if not self._over.is_set() and self._rescue.save():
                        self._leave()
                return
