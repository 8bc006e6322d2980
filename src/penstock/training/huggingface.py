"""Hugging Face's Trainer within a session: stops and saves on request, resumes from valid checkpoints.

    from penstock.training.huggingface import PenstockCallback

    with training.session() as run:
        callback = PenstockCallback(run)
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
        trainer.train(resume_from_checkpoint=callback.resume())

Imported only by programs that use transformers; tried with 4.47 and 5.23.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.training_args import ParallelMode

from penstock.training.foreign import ForeignLoop
from penstock.training.ranks.consensus import Agrees, BorderAction
from penstock.training.session import Session

_WHOLE = (ParallelMode.NOT_PARALLEL, ParallelMode.DISTRIBUTED)


class PenstockCallback(TrainerCallback):  # type: ignore[misc]
    """Obeys requests to save and to stop after the step under way, and publishes all that Trainer saves.

    Trainer's own strategy goes on saving to its `output_dir`; each of its saves is published as well, as a copy that is
    verified before it is used. `save_strategy="no"` leaves the saving to the interval and the scheduler. After a stop
    the program leaves with status 143 when `train` is through. With several ranks all of them need the callback.
    Trainer's losses are means since it last logged: set `logging_steps` to what should be seen.

    Where the session has a batch, hand it to `TrainingArguments(per_device_train_batch_size=run.batch.local,
    gradient_accumulation_steps=run.batch.accumulation + 1)`: it stays so for the attempt. Gradients are measured
    except with FSDP, DeepSpeed and fp16, whose scaler callbacks are not given.

    Args:
        run: an open session with a directory, or without any.
        agree: see `ForeignLoop`.
    Raises: BadArgument where the session's checkpoints are at a URL.
    """

    def __init__(self, run: Session, agree: Agrees | None = None) -> None:
        self._loop = ForeignLoop(run, agree)
        self._loss: float | None = None
        self._wish = BorderAction.NOTHING
        self._leaving = False

    def resume(self) -> str | None:
        """Return the folder for `resume_from_checkpoint`, every file of it verified; None if there is none."""
        folder = self._loop.run.resume_files()
        return None if folder is None else str(folder)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._loop.begin(state.global_step, state.max_steps)
        model, optimizer = given.get("model"), given.get("optimizer")
        whole = args.parallel_mode in _WHOLE and not (args.fsdp or args.deepspeed or args.fp16)
        if whole and model is not None and optimizer is not None:
            self._loop.watch(model, getattr(optimizer, "optimizer", optimizer))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self._loss = logs["loss"]
            self._loop.run.report(step=state.global_step, loss=self._loss)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        samples = args.train_batch_size * args.gradient_accumulation_steps
        self._loop.run.report(step=state.global_step, loss=self._loss, samples=samples)
        self._wish = self._loop.border(state.global_step)
        if self._wish is not BorderAction.NOTHING:
            control.should_save = True
        if self._wish is BorderAction.STOP:
            control.should_training_stop = self._leaving = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loop.publish(Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}", self._wish)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._leaving:
            self._loop.leave()
