"""Train with PyTorch DDP at whatever number of ranks there is: 2 now, 4 later, the same training.

Started by Penstock with `replicas: 2..4`, or by torchrun with any number of processes:

    torchrun --nproc-per-node 2 examples/elastic_ddp.py --steps 300 --dir checkpoints

The batch of all ranks together stays the same, so the loss does not depend on how many there are (beyond rounding).
A preemption, a change of size and a rank that is killed lose no step that all ranks had completed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from penstock import training
from penstock.training.torch import RankConsensus, capture, restore

ROWS, FEATURES = 2048, 32


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Elastic DDP training on made-up data.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=48, help="rows of all ranks together")
    parser.add_argument("--rows-max", type=int, default=16, help="rows that one rank works on at once")
    parser.add_argument("--step-ms", type=float, default=0.0, help="sleep at each step, to make it last")
    parser.add_argument("--dir", help="checkpoint directory when not run by Penstock")
    parser.add_argument("--interval-s", type=float, help="seconds between checkpoints; default: the agent's")
    return parser.parse_args()


def made_up_data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (ROWS, FEATURES) and targets (ROWS, 1) of a function that is not linear."""
    draw = np.random.default_rng(seed)
    inputs = draw.standard_normal((ROWS, FEATURES)).astype(np.float32)
    targets = np.sin(inputs @ draw.standard_normal((FEATURES, 1)).astype(np.float32))
    return torch.from_numpy(inputs), torch.from_numpy(targets)


class Trainer:
    """Model, optimizer and schedule of one rank; they are alike on all ranks."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        self.inputs, self.targets = made_up_data(options.seed)
        self.batch = training.GlobalBatch(options.batch, options.rows_max, options.seed)
        self.model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))
        # DDP puts gradients into other buckets after its first step, which changes the order of sums among more than
        # two ranks. With this it does not, so that a resumed training equals, bit for bit, one that was left alone.
        self.parallel = DistributedDataParallel(self.model, find_unused_parameters=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=options.steps)

    def state(self) -> dict[str, Any]:
        return capture(model=self.model, optimizer=self.optimizer, schedule=self.schedule)

    def load(self, state: Mapping[str, Any]) -> None:
        restore(state, model=self.model, optimizer=self.optimizer, schedule=self.schedule)

    def train_step(self, step: int) -> float:
        """Do one step on this rank's share of the batch and return the share of the loss."""
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        self.optimizer.zero_grad()
        total = 0.0
        for part in self.batch.rounds(step, ROWS, rank=rank, world_size=ranks):
            with nullcontext() if part.last else self.parallel.no_sync():
                found = self.parallel(self.inputs[part.rows])
                loss = nn.functional.mse_loss(found, self.targets[part.rows]) * part.weight
                loss.backward()
                total += float(loss.detach())
        self.optimizer.step()
        self.schedule.step()
        return total

    @torch.no_grad()
    def loss(self) -> float:
        """Return the loss over all rows."""
        return float(nn.functional.mse_loss(self.model(self.inputs), self.targets))

    def digest(self) -> str:
        """Return the SHA-256 of all weights, in the order of the model."""
        digest = hashlib.sha256()
        for weight in self.model.state_dict().values():
            digest.update(weight.contiguous().numpy().tobytes())
        return digest.hexdigest()


def join_group() -> None:
    """Join the ranks that the environment names; alone if it names none."""
    for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, alone)
    distributed.init_process_group("gloo", init_method="env://")


def main() -> None:
    options = parse_arguments()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    with training.session(options.dir, interval_s=options.interval_s, clean_up=False) as run:
        join_group()
        trainer = Trainer(options)
        state = run.resume(None)
        if state is not None:
            trainer.load(state)
        if run.environment.rank == 0:
            print(f"starting at step {run.step} of {options.steps} with {run.environment.world_size} ranks", flush=True)
        for step in run.steps(options.steps, capture=trainer.state, agree=RankConsensus()):
            loss = trainer.train_step(step)
            run.report(loss=loss, samples=options.batch // run.environment.world_size)
            time.sleep(options.step_ms / 1000)
        if run.environment.rank == 0:
            print(f"final loss: {trainer.loss():.17g}")
            print(f"final digest: {trainer.digest()}")
    del trainer  # before the group: where DDP held it last, the end would wait for a thread of Gloo for ever
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
