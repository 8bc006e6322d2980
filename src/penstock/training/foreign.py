"""A session within the training loop of another library, which saves by itself: the common part of its callbacks.

Used by `huggingface` and `lightning`; right for any library that calls back between steps and writes files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from penstock.training.errors import BadArgument
from penstock.training.ranks.consensus import Agrees, BorderAction
from penstock.training.session import Session
from penstock.training.storage.directory import on_disk


class ForeignLoop:
    """Decides at each border whether to save or stop, and publishes the files that the library wrote.

    Args:
        agree: how several ranks decide; default: `penstock.training.torch.Agreement`, in a process group.
    Raises: BadArgument where the session's checkpoints are at a URL.
    """

    def __init__(self, run: Session, agree: Agrees | None = None) -> None:
        if run.checkpoints is not None:
            on_disk(run.checkpoints, "a callback")
        self.run = run
        self._agree = agree

    def begin(self, step: int, stop: int | None) -> None:
        """Say that training begins at `step`, of `stop` steps if that is known; signals are the session's from here.

        Raises: ResumeNotCalled; BadArgument where the library did not resume from the checkpoint found.
        """
        run = self.run
        if run.resumed and run.step != step:
            raise BadArgument(
                f"training begins at step {step}; expected {run.step}, the step of the checkpoint that was found. "
                "Hand its path to the trainer."
            )
        run.step = step
        run.batch.fix()
        run.begin(stop)
        run.retake_signals()
        if self._agree is None:
            self._agree = _agreement()

    def border(self, step: int) -> BorderAction:
        """Return the action due now that `step` steps are completed: the same on all ranks."""
        self.run.step = step
        self.run.batch.done()
        return self.run.due(agree=self._agree)

    def watch(self, model: Any, optimizer: Any, *, scaler: Any = None) -> None:
        """Measure the gradients of `model`, which the library averages over all ranks, where a batch is known."""
        if self.run.batch.known:
            self.run.batch.watch(model, optimizer, scaler=scaler, averaged_by_library=True)

    def publish(self, folder: Path, action: BorderAction, *, linked: bool = False) -> None:
        """Publish the files in `folder` once all ranks have written theirs; see `Session.adopt`."""
        if self._agree is not None:
            self._agree.barrier()
        self.run.adopt(folder, action, linked=linked)

    def save(self, write: Callable[[Path], object], action: BorderAction) -> None:
        """Publish the files that `write`, called on every rank, puts into the given folder."""
        if self.run.checkpoints is None:
            return
        checkpoints = on_disk(self.run.checkpoints, "a callback")
        folder = checkpoints.work_folder(self.run.step, "library")
        try:
            folder.mkdir(exist_ok=True)
            write(folder)
        except OSError as error:
            self.run.failed(action, error)
        else:
            self.publish(folder, action, linked=True)
        finally:
            if self.run.environment.rank == 0:
                checkpoints.discard(folder)

    def leave(self) -> NoReturn:
        """Leave after a stop, when rank 0 has published. Raises: Preempted."""
        self.run.leave(agree=self._agree)


def _agreement() -> Agrees | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from penstock.training.torch import RankConsensus

    return RankConsensus() if torch.distributed.get_world_size() > 1 else None
