"""Saves the state that surviving ranks still hold when another rank fails, or when training is stuck and has to stop.

At each border between two steps a shadow of the state is taken: small values are copied, large ones are referred to.
A rank that waits in a collective for one that is gone has not begun to change its weights since: the shadow is still
the state of that border, and can be saved from another thread while the main one is stuck in C. So no step is lost that
every rank had completed.

A shadow with large values is void as soon as an optimizer begins a step (a hook that PyTorch calls before any write),
when autograd's count of writes has moved, or when a sample of the data has. All three are asked before and after the
files are written. Just-in-time checkpointing: Gupta et al., EuroSys 2024; there for errors of the device, here for any.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from penstock.training.reports import Reporter
from penstock.training.storage import durable
from penstock.training.storage.blobs import Folder, Ready, Shelf, write_pieces
from penstock.training.storage.checkpoints import folder_name
from penstock.training.storage.contents import Content, FileContents, Fixed
from penstock.training.storage.directory import CheckpointDirectory
from penstock.training.storage.manifest import Manifest
from penstock.training.storage.values import TREE_NAME, encode_state

COPY_MAX_BYTES = 64 * 2**10
"""A content up to this size is copied at each border."""
COST_MAX_MILLI = 50
"""Shadows are given up where they take more than this share of training."""
COST_WINDOW_S = 5.0
TRIAL_BORDERS = 4
"""Number of borders in a row at which samples are compared with the counts of writes: writes through `.data` leave no
trace; again after every `TRIAL_EVERY`."""
TRIAL_EVERY = 64
TRIALS_LEAST = 2
"""Borders that are compared before anything is saved."""
DEVICE_WAIT_S = 10.0
"""How long a device may take to show whether it still holds the state: a collective that never ends keeps it busy."""
DEVICE_LEAST_BYTES_S = 2**29
"""All of the state comes from it at this rate at least."""
SHAPE_NAME = ".shape"
"""Rank 0 writes the shape of its state here: another rank's state is saved only if it has the same shape."""

Result = TypeVar("Result")

_log = logging.getLogger("penstock.training")


class Shadow:
    """The state at one border: valid until a value that it refers to changes."""

    def __init__(self, step: int, state: Mapping[str, Any]) -> None:
        self.step = step
        self._pieces = [_keep(piece) for piece in encode_state(state)]
        self._large = [c for piece in self._pieces for c in piece.contents if not isinstance(c, Fixed)]
        self._stamps = [content.stamp() for content in self._large]
        self._samples = [content.sample() for content in self._large]
        self._void = False
        self.read_limit_s = DEVICE_WAIT_S + sum(content.size_bytes for content in self._large) / DEVICE_LEAST_BYTES_S
        self.blind = None in self._stamps
        """It holds large data whose changes are not counted: NumPy arrays, tensors made in inference mode."""
        names = sorted((piece.name, piece.size_bytes) for piece in self._pieces if piece.name != TREE_NAME)
        self.shape = durable.checksum([repr((sorted(state), names)).encode()])
        """Equal for states that are made of the same names, files and sizes."""

    def void(self) -> None:
        """Large values are about to change."""
        self._void = self._void or bool(self._large)

    def valid(self) -> bool:
        """Whether the state of the border is still there."""
        if self._void or self.blind or [content.stamp() for content in self._large] != self._stamps:
            return False
        return [content.sample() for content in self._large] == self._samples and not self._void

    def files(self) -> list[Ready]:
        """Return the files that hold the state, as it lies in memory."""
        return [Ready(piece.name, tuple(piece.windows())) for piece in self._pieces]

    def samples(self) -> list[tuple[Hashable, bytes]]:
        """Return stamp and sample of each value that is referred to."""
        return list(zip(self._stamps, self._samples, strict=True))


def _keep(piece: FileContents) -> FileContents:
    return FileContents(piece.name, tuple(_kept(content) for content in piece.contents))


def _kept(content: Content) -> Content:
    if isinstance(content, Fixed) or content.size_bytes > COPY_MAX_BYTES:
        return content
    return Fixed(bytes(content.view()))


class Rescue:
    """Takes shadows, and saves the last one in need. One for a session; `lock` is held by the thread that saves.

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
        self._borders = 0
        self._on = True
        self._since_s = clock_s()
        self._cost_s = 0.0
        self._hook: Any = None

    def close(self) -> None:
        """Let go of the state."""
        self._on, self._shadow = False, None
        if self._hook is not None:
            self._hook.remove()

    def _void(self) -> None:
        shadow = self._shadow
        if shadow is not None:
            shadow.void()

    def border(self, step: int, capture: Callable[[], Mapping[str, Any]]) -> None:
        """Take the shadow of the state of `step`, in place of the last."""
        if not self._on:
            return
        begun_s = self._clock_s()
        if self._hook is None:
            self._hook = _before_optimizer_steps(self._void)
        try:
            shadow = Shadow(step, capture())
        except Exception as error:  # noqa: BLE001 - the program's own code, on a rank that need not be able to run it
            self._give_up(f"it cannot be captured on this rank: {error}")
            return
        self._shadow = shadow
        if self._directory.place.rank == 0 and not self._borders:
            durable.replace_file(self._directory.folder / SHAPE_NAME, shadow.shape.encode("ascii"))
        if shadow.blind:
            self._give_up("the state has large values whose changes cannot be detected")
        elif self._borders % TRIAL_EVERY < TRIAL_BORDERS:
            self._try(shadow, fresh=self._borders % TRIAL_EVERY == 0)
        self._borders += 1
        self._weigh(begun_s)

    def save(self) -> bool:
        """Publish the state of the last border if it is still there; return whether it is published.

        False also where another rank of this attempt is saving. The caller holds `lock`.
        """
        shadow = self._shadow
        if not self._on or self._borders < TRIALS_LEAST or shadow is None or shadow.step == 0:
            return False
        try:
            if not _in_time(shadow.valid, DEVICE_WAIT_S):
                return False
        except Exception as error:  # noqa: BLE001 - a device that is lost, for one
            self._failed(shadow, error)
            return False
        if shadow.step in self._directory.steps():
            return True
        claim = self._directory.folder / f".rescue-{folder_name(shadow.step)}-a{self._directory.fence.attempt}"
        try:
            if not self._alike(shadow):
                return False
            durable.create_folder(claim)
        except OSError:
            return False  # another rank of this attempt was first
        begun_s = self._clock_s()
        try:
            manifest = self._publish(shadow)
        except Exception as error:  # noqa: BLE001 - no error may hide why the program fails
            self._failed(shadow, error)
            with contextlib.suppress(OSError):
                durable.remove_folder(claim)
            return False
        took_ms = round((self._clock_s() - begun_s) * 1000)
        size = manifest.size_bytes
        self._reporter.event("checkpoint", shadow.step, bytes=size, duration_ms=took_ms, held_ms=0, why="rescue")
        return True

    def _alike(self, shadow: Shadow) -> bool:
        """Whether this rank's state has the shape of rank 0's, the only one saved otherwise."""
        return (self._directory.folder / SHAPE_NAME).read_text(encoding="ascii") == shadow.shape

    def _publish(self, shadow: Shadow) -> Manifest:
        directory = self._directory
        directory.fence.check()
        work = directory.work_folder(shadow.step)
        durable.create_folder(work)
        # A shelf of its own: that of the directory may be in use by the saving thread.
        files = _in_time(shadow.files, shadow.read_limit_s)
        blobs = write_pieces(Folder(work), files, Shelf(), compress=directory.compress)
        moved = partial(_in_time, lambda: not shadow.valid(), DEVICE_WAIT_S)
        return directory.publish(work, shadow.step, blobs, layout="whole", unless=moved)

    def _failed(self, shadow: Shadow, error: Exception) -> None:
        _log.warning("state could not be rescued", extra={"step": shadow.step, "error": str(error)})

    def _try(self, shadow: Shadow, *, fresh: bool) -> None:
        """Compare with the border before: data that changed under the same stamp makes stamps worthless."""
        before = {} if fresh else dict(self._samples)
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


def _before_optimizer_steps(call: Callable[[], None]) -> Any:
    """Have `call` made before any optimizer of PyTorch changes anything; return a handle to remove it, or None."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "optim"):
        return None
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    return register_optimizer_step_pre_hook(lambda *_: call())


def _in_time(read: Callable[[], Result], limit_s: float) -> Result:
    """Return the result of `read`, or give up waiting for it.

    A copy from a device waits for all work that was queued there before it, and so for ever behind a collective whose
    other ranks are gone; a thread that waited with it could not end this process any more.
    Raises: TimeoutError; what `read` raises.
    """
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(read())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            done.set_exception(error)

    threading.Thread(target=run, name="penstock-read", daemon=True).start()
    try:
        return done.result(limit_s)
    except TimeoutError:
        if done.done():
            raise
        text = f"the device did not hand over the state in {limit_s:.1f} s; is a collective stuck?"
        raise TimeoutError(text) from None


class Watch:
    """A thread that obeys a stop when the main thread cannot: it is stuck in a collective, or in one long step.

    Args:
        ends: of a pipe; a byte arrives with each signal, also while the main thread runs C code. Closed at the end.
        stop_signal: the number to wait for.
        patience_s: time that the main thread has to come to a border.
        leave: called after a rescue; does not return.
    """

    def __init__(
        self,
        rescue: Rescue,
        ends: tuple[int, int],
        stop_signal: int,
        patience_s: float,
        leave: Callable[[], None],
    ) -> None:
        self._rescue, self._stop_signal = rescue, stop_signal
        self._read_end, self._wake = ends
        self._patience_s, self._leave = patience_s, leave
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The main thread needs no help from here: it leaves, or has finished."""
        self._over.set()
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def _run(self) -> None:
        try:
            self._wait()
        finally:
            os.close(self._read_end)

    def _wait(self) -> None:
        while data := os.read(self._read_end, 64):
            if self._over.is_set():
                return
            if self._stop_signal in data and not self._over.wait(self._patience_s):
                self._obey()
                return

    def _obey(self) -> None:
        # The main thread may be stuck at a border, with the lock, in a copy from the device.
        if not self._rescue.lock.acquire(timeout=DEVICE_WAIT_S):
            _log.warning("the state cannot be rescued: the main thread is stuck while it looks at it")
            return
        try:
            if not self._over.is_set() and self._rescue.save():
                self._leave()
        finally:
            self._rescue.lock.release()
