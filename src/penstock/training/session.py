"""The session: a training script's handle while it runs under Penstock, or without it.

One idea carries it: everything happens at the border between two steps. There the state is whole, so there it
is saved, there a stop is obeyed, and a step number always means *steps completed by this state*.

    before step k: wish = stop asked? save asked? interval over?    (several ranks: the strongest of all)
        stop  -> save, leave with status 143
        save  -> save, go on
    after the last step: save, and at the end of the `with` block say "done"
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from penstock.training.batching.batch import Batch
from penstock.training.environment import Environment, read_environment
from penstock.training.errors import BadArgument, Preempted, ResumeNotCalled
from penstock.training.locate import open_checkpoints
from penstock.training.memory_limit import keep_limit
from penstock.training.ranks.consensus import REASONS, RELEASE_S, Agrees, BorderAction
from penstock.training.ranks.layouts import Layout, Parts, Whole
from penstock.training.ranks.rescue import Rescue, Watch
from penstock.training.ranks.shards import DEFAULT_PARTS_WAIT_S
from penstock.training.reports import Reporter
from penstock.training.saver import TROUBLE, Capture, Saver
from penstock.training.signals import Wishes, leave_at_once
from penstock.training.storage.checkpoints import DEFAULT_KEEP, Checkpoints, Files, Found
from penstock.training.storage.directory import CheckpointDirectory, on_disk
from penstock.training.storage.manifest import Manifest
from penstock.training.storage.values import State
from penstock.training.telling import Telling

Default = TypeVar("Default")
Resumed = TypeVar("Resumed", Found, Files)
PATIENCE_MAX_S = 5.0
"""How long a stop waits for the main thread to come to a border before the state is saved from beside it."""

_log = logging.getLogger("penstock.training")


def session(
    directory: str | os.PathLike[str] | None = None,
    *,
    interval_s: float | None = None,
    keep: int = DEFAULT_KEEP,
    sharded: bool = False,
    layout: Layout | None = None,
    parts_wait_s: float = DEFAULT_PARTS_WAIT_S,
    behind: bool = True,
    rescue: bool | None = None,
    compress: bool = True,
    handle_signals: bool = True,
    clean_up: bool = True,
    batch: int | None = None,
) -> Session:
    """Return a session to be used in a `with` statement; the environment is read here.

    Args:
        directory: where checkpoints go outside Penstock: a folder, or a URL that fsspec knows, such as
            `s3://bucket/run`. `PENSTOCK_CHECKPOINT_DIR` wins over it, and `PENSTOCK_CHECKPOINT_URL` over both;
            without any of them, nothing is saved and everything else works.
        interval_s: seconds between automatic checkpoints (> 0); default: what the agent says, or 600.
        keep: newest checkpoints to keep (>= 1).
        sharded: every rank saves its own part. Otherwise rank 0 alone saves, which is right for plain DDP.
        layout: how ranks make one checkpoint, where neither of both is right: see `penstock.training.distributed`.
        parts_wait_s: how long rank 0 waits for the parts of the others, in seconds.
        behind: training is held only while the state is copied within host memory, which must hold it twice;
            False: until it is on disk.
        rescue: when a rank fails, a surviving one saves the state of the last border, where that is still
            there: `capture` is called at every border. Default: with several ranks whose states are alike, in a
            folder.
        compress: files that shrink well, if the package zstandard is installed.
        handle_signals: False leaves the signals alone; call `request_stop` yourself.
        clean_up: False ends the process as soon as a stop was obeyed: no `finally`, no `atexit`; PyTorch takes 0.6 s.
        batch: samples of all ranks in an update that the learning rate is for (>= 1); see `Session.batch`.
    Raises: BadEnvironment, BadArgument.
    """
    environment = read_environment(os.environ)
    if interval_s is not None and not interval_s > 0:
        raise BadArgument(f"interval_s is {interval_s}; expected a number of seconds above 0")
    if sharded and layout is not None:
        raise BadArgument("sharded=True and layout= are both given; expected one of them")
    checkpoints = open_checkpoints(environment, directory, keep=keep, compress=compress)
    layout = layout or (Parts(parts_wait_s) if sharded else Whole())
    if checkpoints is not None and (layout.together or rescue):
        on_disk(checkpoints, "rescue=True" if rescue else f"a state of many parts ({type(layout).__name__})")
    return Session(
        environment,
        checkpoints,
        layout,
        interval_s=environment.checkpoint_interval_s if interval_s is None else interval_s,
        behind=behind,
        rescue=environment.world_size > 1 if rescue is None else rescue,
        handle_signals=handle_signals,
        clean_up=clean_up,
        batch=batch,
    )


class Session(Telling):
    """See `session`, which makes one. Not safe for use from several threads.

    `step` is the number of steps completed; `resumed` says whether they came from a checkpoint.
    """

    def __init__(
        self,
        environment: Environment,
        checkpoints: Checkpoints | None,
        layout: Layout,
        *,
        interval_s: float,
        behind: bool,
        rescue: bool,
        handle_signals: bool,
        clean_up: bool = True,
        batch: int | None = None,
    ) -> None:
        self.environment = environment
        self.checkpoints = checkpoints
        self.resumed = False
        self._interval_s = interval_s
        self._handle_signals, self._clean_up = handle_signals, clean_up
        self._wishes = Wishes()
        super().__init__(Reporter(environment.report_file, rank=environment.rank), Batch(environment, batch))
        self._agreed = False
        keep_limit()
        self._layout = layout
        self._saver = None if checkpoints is None else Saver(checkpoints, layout, self._reporter, behind=behind)
        self._rescue = None
        if rescue and isinstance(checkpoints, CheckpointDirectory) and not layout.together:
            self._rescue = Rescue(checkpoints, self._reporter)
        self._watch: Watch | None = None
        self._resume_called = False
        self._prepared = False
        self._last_save_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._handle_signals:
            say = None if self.checkpoints is None else self._reporter.listens
            self._wishes.install(stop=signal.SIGTERM, save=self.environment.checkpoint_signal, say=say)
        try:
            if self.checkpoints is not None:
                self.checkpoints.open()
        except BaseException:
            self._wishes.restore()
            raise
        if self._rescue is not None and self._handle_signals:
            self._start_watch(self._rescue)
        return self

    def _start_watch(self, rescue: Rescue) -> None:
        ends = self._wishes.open_pipe()
        if ends is not None:
            patience_s = min(PATIENCE_MAX_S, self.environment.grace_s / 3)
            self._watch = Watch(rescue, ends, signal.SIGTERM, patience_s, leave_at_once)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Report "done" if the block ended normally: then the job is complete, even if a stop was asked.

        When it ends with an error, the state of the last border is saved if it is still there.
        Raises: FencedAttempt, from a save beside training, if nothing else went wrong.
        """
        try:
            self._end(kind)
        finally:
            self._wishes.restore()
            self._reporter.close()
            if self._agreed:
                time.sleep(RELEASE_S)

    def _end(self, kind: type[BaseException] | None) -> None:
        if self._watch is not None:
            self._watch.end()
        if kind is not None and issubclass(kind, Exception) and self._rescue is not None:
            with self._rescue.lock:
                self._rescue.save()
        if self._rescue is not None:
            self._rescue.close()
        try:
            if self._saver is not None:
                self._saver.wait()
        except Exception as error:
            if kind is None:
                raise
            _log.warning("an asynchronous save failed too", extra={"error": str(error)})
        if kind is None:
            self._reporter.event("done", self.step)

    @property
    def stop_requested(self) -> bool:
        """Whether this replica was asked to stop. The next border obeys; no need to look at it."""
        return self._wishes.stop

    def request_stop(self) -> None:
        """Stop at the next border, as on SIGTERM."""
        self._wishes.stop = True

    def request_checkpoint(self) -> None:
        """Save at the next border, as on the checkpoint signal."""
        self._wishes.save = True

    def resume(self, default: Default, *, into: Mapping[str, Any] | None = None) -> State | Default:
        """Return the state of the newest valid checkpoint, or `default` if there is none.

        Damaged checkpoints are passed over; the report and the log say which, and why. Sets `step`.

        Args:
            into: the state as it is now, for layouts that load into it.
        Raises: WorldSizeMismatch for a checkpoint in parts of another world size.
        """
        found = self._resume(lambda checkpoints, step: self._layout.read(checkpoints, step, into))
        return default if found is None else found.state

    def resume_files(self) -> Path | None:
        """Return the folder of the newest valid checkpoint that `adopt` published; None if there is none.

        Every file in it was compared first; change nothing there. Else like `resume`.
        Raises: BadArgument where the checkpoints are of another kind, or at a URL.
        """
        found = self._resume(lambda checkpoints, step: on_disk(checkpoints, "adopt()").read_files(step))
        return None if found is None else found.folder

    def _resume(self, read: Callable[[Checkpoints, int], Resumed]) -> Resumed | None:
        self._resume_called = True
        if self._saver is None or self.checkpoints is None:
            return None
        found, skipped = self.checkpoints.newest_valid(partial(read, self.checkpoints))
        for one in skipped:
            _log.warning("damaged checkpoint skipped", extra={"step": one.step, "problem": one.problem})
        self._last_save_s = time.monotonic()
        if found is not None:
            self.step, self.resumed = found.manifest.step, True
            self._saver.resumed(found.manifest)
            _log.info("resumed", extra={"step": self.step, "skipped": len(skipped)})
        if found is not None or skipped or (self.environment.attempt or 0) > 1:
            notes = [{"step": one.step, "problem": one.problem} for one in skipped]
            self._reporter.event("resumed", self.step, skipped=notes)
        return found

    def steps(
        self,
        stop: int | None = None,
        *,
        samples: int | None = None,
        scaled_steps: float | None = None,
        capture: Capture | None = None,
        agree: Agrees | None = None,
        final: bool = True,
    ) -> Iterator[int]:
        """Yield the step numbers that are left to do: from `step` to `stop` - 1, or until enough is done.

        Args:
            stop, samples, scaled_steps: one of them. A training whose batch may change ends by samples, those of all
                ranks and updates, or by updates of the base batch that it is worth: see `Batch`.
            capture: returns the state to save, called at borders only. Without it nothing is saved automatically.
            agree: needed with several ranks that must stop together.
            final: save once more after the last step.
        Raises: Preempted (a SystemExit with status 143) at a border after a stop was asked; ResumeNotCalled;
            FencedAttempt; UnsavableValue, after the first step at the latest. A save that fails otherwise
            is logged and reported, and tried again at the next interval.
        """
        if [stop, samples, scaled_steps].count(None) != 2:
            raise BadArgument(
                f"stop, samples, scaled_steps are {stop}, {samples}, {scaled_steps}; expected one of them"
            )
        self.begin(stop)
        if self._layout.together and self.environment.world_size > 1 and capture and agree is None:
            raise BadArgument("sharded=True needs agree=: all ranks must save their parts at the same step")
        by_batch = partial(self.batch.updates_left, samples=samples, scaled_steps=scaled_steps)
        left = by_batch if stop is None else lambda: stop - self.step
        return self._steps(left, capture, agree, final)

    def begin(self, stop: int | None = None) -> None:
        """Check whether training may start here: for a loop of your own, before its first step; `steps` calls it.

        Args:
            stop: steps of the whole training, where that is known.
        Raises: ResumeNotCalled.
        """
        self._reporter.total = stop
        if not self._resume_called and self.checkpoints is not None and self.checkpoints.steps():
            raise ResumeNotCalled(
                f"{self.checkpoints.where} holds checkpoints up to step {self.checkpoints.steps()[0]}, but "
                "resume() was not called; expected a call before the first step. "
                "Use an empty directory to start over."
            )

    def _steps(
        self, left: Callable[[], int], capture: Capture | None, agree: Agrees | None, final: bool
    ) -> Iterator[int]:
        while left() > 0:
            self.border(capture, agree=agree)
            self._reporter.total = self.step + left()
            self._within_step = True
            self.batch.begun()
            try:
                yield self.step
            finally:
                self._within_step = False
            self.batch.done()
            self.step += 1
        if final and capture is not None:
            self._finally(capture)

    def border(self, capture: Capture | None = None, *, agree: Agrees | None = None) -> None:
        """Save or stop if due between two steps. `steps` calls it; a loop of your own sets `step` and calls it.

        Raises: Preempted, FencedAttempt.
        """
        if capture is not None and self._saver is not None and self.step and not self._prepared:
            self._prepared = True
            self._saver.prepare(capture)
        with self._rescue.lock if self._rescue is not None else nullcontext():
            if self._rescue is not None and capture is not None:
                self._rescue.border(self.step, capture)
        action = self.due(agree=agree)
        if action is BorderAction.NOTHING:
            return
        untouched = self.step == 0 and not self.resumed
        if capture is not None and not (action is BorderAction.STOP and untouched):
            self._try_save(capture, action)
        if action is BorderAction.STOP:
            self.leave(agree=agree)

    def due(self, *, agree: Agrees | None = None) -> BorderAction:
        """Return the action due at this border, and take it as answered: for a loop with its own saving (`adopt`)."""
        share = getattr(agree, "share", None)
        action = self._due_action()
        if action is BorderAction.NOTHING and self.batch.ordered(alone=share is None):
            action = BorderAction.BATCH
        if agree is not None:
            self._agreed = True
            with self._meters.waiting("communication"):
                action = agree.decide(action, self.step)
        self.batch.border(self._meters.waited_s("communication"))
        if action is BorderAction.BATCH:
            self.batch.change(share)
            return BorderAction.NOTHING
        if action is BorderAction.NOTHING:
            return action
        self._last_save_s = time.monotonic()
        if action is BorderAction.REQUEST:
            self._wishes.save = False
        if action is BorderAction.STOP and self._watch is not None:
            self._watch.end()
        return action

    def leave(self, *, agree: Agrees | None = None) -> NoReturn:
        """Leave this process after a stop, when all ranks have come here. Raises: Preempted."""
        if agree is not None:
            agree.barrier()
        _log.info("leaving after a stop request", extra={"step": self.step})
        if not self._clean_up:
            self.__exit__(Preempted, None, None)
            leave_at_once()
        raise Preempted(self.step)

    def checkpoint(self, save: Capture, *, step: int | None = None) -> Manifest | None:
        """Save now; return the manifest, or None if this process does not save (no directory, not rank 0).

        A step that this session has saved already is not saved again.

        Args:
            step: steps completed by the state that `save` returns. Default: `step`, which inside the body of
                `steps` counts the step under way, as at its end.
        Raises: FencedAttempt, DirectoryBusy, UnsavableValue, PartsMissing, OSError.
        """
        self._last_save_s = time.monotonic()
        if self._saver is None or not self._saver.takes_part:
            return None
        return self._saver.save(self._completed(step), save, "request")

    def adopt(
        self, folder: str | os.PathLike[str], action: BorderAction = BorderAction.NOTHING, *, linked: bool = False
    ) -> Manifest | None:
        """Publish the files in `folder`, which another library wrote, as the checkpoint of `step`: see `resume_files`.

        Returns None if this process does not save, or could not: that is logged and reported, and training goes on.

        Args:
            wish: what `due` returned; goes into the report.
            linked: see `CheckpointDirectory.adopt`.
        Raises: FencedAttempt; BadArgument where checkpoints are at a URL, or no file is there.
        """
        self._last_save_s = time.monotonic()
        if self._saver is None or self.checkpoints is None or self.environment.rank != 0:
            return None
        adopt = partial(on_disk(self.checkpoints, "adopt()").adopt, self.step, Path(folder), linked=linked)
        try:
            return self._saver.publish(REASONS[action], adopt)
        except TROUBLE as error:
            self.failed(action, error)
            return None

    def failed(self, action: BorderAction, error: Exception) -> None:
        """Log and report that the state of `step` could not be saved, and that training goes on."""
        if self._saver is not None:
            self._saver.failed(self.step, REASONS[action], error)

    def retake_signals(self) -> None:
        """Handle the signals again that a library has taken over since the session began."""
        self._wishes.retake()

    def _due_action(self) -> BorderAction:
        if self._wishes.stop:
            return BorderAction.STOP
        if self._wishes.save:
            return BorderAction.REQUEST
        over = time.monotonic() - self._last_save_s >= self._interval_s
        return BorderAction.INTERVAL if over else BorderAction.NOTHING

    def _try_save(self, capture: Capture, action: BorderAction) -> None:
        """Save, but let training live on if the disk does not: a full disk at 3 a.m. must not end the job."""
        saver = self._saver
        if saver is None or not saver.takes_part:
            return
        if action is BorderAction.INTERVAL and (saver.has(self.step) or (saver.busy and not self._layout.together)):
            return  # a disk that is slower than the interval must not hold training
        why = REASONS[action]
        try:
            if action is BorderAction.STOP:
                saver.save(self.step, capture, why)
            elif not saver.has(self.step):
                saver.save_behind(self.step, capture, why)
            else:
                saver.save(self.step, capture, why)
        except TROUBLE as error:
            saver.failed(self.step, why, error)

    def _finally(self, capture: Capture) -> None:
        """Save after the last step. Raises: the errors of a save."""
        if self._saver is not None and self._saver.takes_part:
            self._saver.save(self.step, capture, "final")
