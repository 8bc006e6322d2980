"""Lightning's Trainer within a session: stops and saves on request, resumes from valid checkpoints.

    from penstock.training.lightning import PenstockCallback

    with training.session() as run:
        callback = PenstockCallback(run)
        trainer = Trainer(max_steps=10_000, callbacks=[callback], enable_checkpointing=False)
        trainer.fit(model, loader, ckpt_path=callback.resume())

Imported only by programs that use lightning; tried with 2.4 and 2.6.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from penstock.training.foreign import ForeignLoop
from penstock.training.randomness import random_state, restore_random_state
from penstock.training.ranks.consensus import Agrees, BorderAction
from penstock.training.session import Session
from penstock.training.storage.values import decode_state, encode_state

CHECKPOINT_NAME = "lightning.ckpt"


class PenstockCallback(Callback):  # type: ignore[misc]
    """Saves through Trainer, and obeys a stop, after the optimizer's step under way; then status 143.

    Lightning resumes within an epoch where the data loader has `state_dict` and `load_state_dict`; other loaders begin
    the epoch's data over (it warns of that). The global generators are saved and restored as well, for a single rank.
    SIGTERM is handled by the session: Lightning's own handler would end the program without a checkpoint.
    With several ranks all of them need the callback.

    Where the session has a batch, hand it to the loader (`batch_size=run.batch.local`) and to
    `Trainer(accumulate_grad_batches=run.batch.accumulation + 1)`: it stays so for the attempt. Gradients are measured
    on one device and with DDP.

    Args:
        run: an open session with a directory, or without any.
        agree: see `ForeignLoop`.
    Raises: BadArgument where the session's checkpoints are at a URL.
    """

    def __init__(self, run: Session, agree: Agrees | None = None) -> None:
        self._loop = ForeignLoop(run, agree)
        self._step = 0
        self._random: Mapping[str, Any] | None = None

    def resume(self) -> str | None:
        """Return the file for `ckpt_path`, verified; None if there is none."""
        folder = self._loop.run.resume_files()
        return None if folder is None else str(folder / CHECKPOINT_NAME)

    def state_dict(self) -> dict[str, Any]:
        """Return the generators as text, which Lightning reads back without trusting the file."""
        files = {piece.name: b"".join(piece.windows()) for piece in encode_state(random_state())}
        return {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        files = {name: memoryview(bytearray(base64.b64decode(text))) for name, text in state_dict.items()}
        self._random = decode_state(files.__getitem__)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        self._loop.begin(self._step, trainer.max_steps if trainer.max_steps > 0 else None)
        if isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy) and trainer.optimizers:
            self._loop.watch(pl_module, trainer.optimizers[0], scaler=getattr(trainer.precision_plugin, "scaler", None))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._random is not None and trainer.world_size == 1:
            restore_random_state(self._random)
        self._random = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self._step:
            return  # gradients are still being accumulated, and no checkpoint holds those
        self._step = trainer.global_step
        self._loop.run.report(step=self._step, loss=_loss(outputs), samples=_rows(batch))
        action = self._loop.border(self._step)
        if action is not BorderAction.NOTHING:
            self._save(trainer, action)
        if action is BorderAction.STOP:
            self._loop.leave()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._save(trainer, BorderAction.NOTHING)

    def _save(self, trainer: Any, action: BorderAction) -> None:
        self._loop.save(lambda folder: trainer.save_checkpoint(folder / CHECKPOINT_NAME), action)


def _loss(outputs: Any) -> float | None:
    """Return the loss that `training_step` returned, in one of the ways it may."""
    found = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return None if found is None else float(found)


def _rows(batch: Any) -> int | None:
    """Return the length of the first value in the batch that has one."""
    while isinstance(batch, list | tuple | Mapping) and len(batch):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return len(batch) if hasattr(batch, "__len__") and getattr(batch, "ndim", True) else None
