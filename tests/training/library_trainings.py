"""Tiny trainings by Hugging Face's and Lightning's Trainer: undisturbed, stopped, resumed; for `test_libraries`.

    python library_trainings.py huggingface|lightning FOLDER

What happened goes to FOLDER/results.json. The libraries are imported once, and each run is forked from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from penstock import training

STEPS, ROWS, BATCH = 14, 40, 4
LONG = 100
"""Steps of the training whose gradients are measured."""


def steps() -> int:
    return LONG if "PENSTOCK_BATCH" in os.environ else STEPS


def passes(run: training.Session) -> int:
    return run.batch.accumulation + 1 if run.batch.known else 1


class Tiny(torch.nn.Module):
    """Learns a sum; dropout makes it depend on the generators."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        time.sleep(float(os.environ.get("STEP_S", "0")))
        found = self.layers(x).squeeze(-1)
        return {"loss": (found - labels).square().mean(), "logits": found}


def rows() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    data = torch.randn(ROWS, 6, generator=generator)
    return [{"x": row, "labels": row.sum()} for row in data]


def digest(model: Any) -> str:
    sums = hashlib.sha256()
    for tensor in model.state_dict().values():
        sums.update(tensor.numpy().tobytes())
    return sums.hexdigest()


def huggingface(folder: Path) -> str:
    from transformers import Trainer, TrainingArguments

    from penstock.training.huggingface import PenstockCallback

    settings: dict[str, Any] = {
        "output_dir": str(folder / "output"),
        "max_steps": steps(),
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.01,
        "logging_steps": 1,
        "save_strategy": os.environ.get("SAVE_STRATEGY", "no"),
        "save_steps": 4,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 5,
    }
    torch.manual_seed(1)
    model = Tiny()
    with training.session() as run:
        callback = PenstockCallback(run)
        arguments = TrainingArguments(gradient_accumulation_steps=passes(run), **settings)
        trainer = Trainer(model, arguments, train_dataset=rows(), callbacks=[callback])
        if "NO_RESUME" in os.environ:
            trainer.train()
        else:
            trainer.train(resume_from_checkpoint=callback.resume())
    return digest(model)


class Loader:
    """Batches in another order each epoch, from any position on."""

    def __init__(self) -> None:
        self.epoch, self.position = 0, 0

    def __len__(self) -> int:
        return ROWS // BATCH

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        data = rows()
        while self.position < len(self):
            batch = [data[index] for index in order[self.position * BATCH : (self.position + 1) * BATCH]]
            self.position += 1
            yield {name: torch.stack([row[name] for row in batch]) for name in ("x", "labels")}
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


def lightning(folder: Path) -> str:
    import warnings

    from lightning.pytorch import LightningModule, Trainer

    from penstock.training.lightning import PenstockCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.tiny = Tiny()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.tiny(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    module = Module()
    with training.session() as run:
        callback = PenstockCallback(run)
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=steps(),
            accumulate_grad_batches=passes(run),
            max_epochs=-1,
            callbacks=[callback],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(module, Loader(), ckpt_path=None if "NO_RESUME" in os.environ else callback.resume())
    return digest(module)


def start(work: Callable[[Path], str], folder: Path, checkpoints: str, attempt: int, **variables: str) -> int:
    """Run one training in a copy of this process; return the id of that."""
    (folder / checkpoints).mkdir(exist_ok=True)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.environ |= {
            "PENSTOCK_JOB_ID": "1",
            "PENSTOCK_ATTEMPT": str(attempt),
            "PENSTOCK_CHECKPOINT_DIR": str(folder / checkpoints),
            "PENSTOCK_REPORT_FILE": str(folder / f"{checkpoints}-{attempt}.report"),
            **variables,
        }
        (folder / f"{checkpoints}-{attempt}.digest").write_text(work(folder / f"{checkpoints}-{attempt}"))
        status = 0
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except BaseException as error:  # noqa: BLE001 - the status and the text tell; nothing of this copy may run on
        traceback.print_exc()
        (folder / f"{checkpoints}-{attempt}.error").write_text(f"{type(error).__name__}: {error}")
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(child: int, folder: Path, run: str) -> dict[str, Any]:
    """Wait for the end; return the status and what was left."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = {name: folder / f"{run}.{name}" for name in ("report", "digest", "error")}
    texts = {name: path.read_text() if path.exists() else "" for name, path in left.items()}
    return {**texts, "status": status, "report": [json.loads(line) for line in texts["report"].splitlines()]}


def stop_in_the_middle(child: int, report: Path) -> None:
    for _ in range(2000):
        if report.exists() and any(f'"step":{step},' in report.read_text() for step in range(3, STEPS)):
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)


def main() -> None:
    work, folder = {"huggingface": huggingface, "lightning": lightning}[sys.argv[1]], Path(sys.argv[2])
    torch.set_num_threads(1)
    __import__("transformers" if work is huggingface else "lightning.pytorch")
    results = {"undisturbed": ended(start(work, folder, "a", 1), folder, "a-1")}
    child = start(work, folder, "b", 1, STEP_S="0.1")
    stop_in_the_middle(child, folder / "b-1.report")
    results["stopped"] = ended(child, folder, "b-1")
    results["careless"] = ended(start(work, folder, "b", 2, NO_RESUME="1"), folder, "b-2")
    results["measured"] = ended(start(work, folder, "c", 1, PENSTOCK_BATCH=f"{BATCH},1"), folder, "c-1")
    results["resumed"] = ended(start(work, folder, "b", 3, SAVE_STRATEGY="steps"), folder, "b-3")
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
