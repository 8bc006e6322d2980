"""Train a small network on handwritten digits with PyTorch DDP; all ranks stop together and resume together.

Start it with the variables that torchrun and Penstock set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or
plainly for a single process:

    torchrun --nproc-per-node 2 examples/digits_ddp.py --steps 500 --dir checkpoints

Rank 0 saves model, optimizer, data order and generators. Resumed at the same world size, training ends with
the same bits as without interruption; compare `final digest`. (Layers that draw random numbers on each rank,
such as dropout, would need the generators of every rank: `training.session(sharded=True)`.)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from penstock import training
from penstock.training.torch import RankConsensus, capture, restore

TEST_ROWS = 360


class Trainer:
    """Model, optimizer and data order of one rank; the order is the same on all ranks, the rows are not."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, *, seed: int, hidden: int, batch: int) -> None:
        torch.manual_seed(seed)
        self.images, self.labels, self.batch = images, labels, batch
        self.model = nn.Sequential(nn.Linear(images.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, 10))
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.shuffle = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(len(images), generator=self.shuffle)

    def state(self) -> dict[str, Any]:
        return {
            **capture(model=self.model, optimizer=self.optimizer),
            "order": self.order,
            "random": training.random_state(shuffle=self.shuffle),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        restore(state, model=self.model, optimizer=self.optimizer)
        self.order = state["order"]
        training.restore_random_state(state["random"], shuffle=self.shuffle)

    def train_step(self, step: int) -> float:
        """Do one step on this rank's share of the next batch and return its loss."""
        batches = len(self.images) // self.batch
        position = step % batches
        if position == 0 and step > 0:
            self.order = torch.randperm(len(self.images), generator=self.shuffle)
        rows = self.order[position * self.batch : (position + 1) * self.batch]
        rows = rows[distributed.get_rank() :: distributed.get_world_size()]
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.parallel(self.images[rows]), self.labels[rows])
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        return float((self.model(images).argmax(dim=1) == labels).float().mean())

    def digest(self) -> str:
        """Return the SHA-256 of all weights, in the order of the model."""
        digest = hashlib.sha256()
        for weight in self.model.state_dict().values():
            digest.update(weight.contiguous().numpy().tobytes())
        return digest.hexdigest()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="DDP training on handwritten digits; survives preemption.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=0.0, help="sleep at each step, to make it last")
    parser.add_argument("--batch", type=int, default=64, help="rows of all ranks together")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--dir", help="checkpoint directory when not run by Penstock")
    parser.add_argument("--interval-s", type=float, help="seconds between checkpoints; default: the agent's")
    return parser.parse_args()


def join_group() -> None:
    """Join the ranks that the environment names; alone if it names none."""
    for name, alone in (
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "0"),
    ):
        os.environ.setdefault(name, alone)
    distributed.init_process_group("gloo", init_method="env://")


def main() -> None:
    options = parse_arguments()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    data, answers = load_digits(return_X_y=True)
    images = torch.from_numpy((data / 16.0).astype(np.float32))
    labels = torch.from_numpy(answers.astype(np.int64))
    with training.session(options.dir, interval_s=options.interval_s) as run:
        join_group()
        trainer = Trainer(
            images[:-TEST_ROWS],
            labels[:-TEST_ROWS],
            seed=options.seed,
            hidden=options.hidden,
            batch=options.batch,
        )
        state = run.resume(None)
        if state is not None:
            trainer.load(state)
        speaks = run.environment.rank == 0
        if speaks:
            print(f"starting at step {run.step} of {options.steps}", flush=True)
        for step in run.steps(options.steps, capture=trainer.state, agree=RankConsensus()):
            loss = trainer.train_step(step)
            run.report(loss=loss, samples=options.batch // distributed.get_world_size())
            time.sleep(options.step_ms / 1000)
        if speaks:
            print(f"test accuracy: {trainer.accuracy(images[-TEST_ROWS:], labels[-TEST_ROWS:]):.4f}")
            print(f"final digest: {trainer.digest()}")
    del trainer  # before the group: where DDP held it last, the end would wait for a thread of Gloo for ever
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
