"""Train with PyTorch DDP at the batch that the scheduler chooses: it grows as the gradients allow, and with the ranks.

Started by Penstock with `replicas: 1..4` and a range of batches (`batch: {min: 32, max: 256, per_device_max: 64}`), or
by torchrun with any number of processes, at the batch of `--batch`:

    torchrun --nproc-per-node 2 examples/elastic_batch.py --updates 500 --dir checkpoints

`--batch` is the one that `--rate` was found for. The program reports how long its steps take and how noisy its
gradients are; from this the scheduler knows what a larger batch would gain. The order of the rows depends on nothing
but the seed, so that every epoch has each row once at any batch; the end comes when all updates are worth as much as
`--updates` of the base batch, by AdaScale.
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

ROWS, UNSEEN, SIDE, KINDS = 1792, 1024, 8, 10
NOISE = 2.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="DDP training on made-up digits, at a batch that changes.")
    parser.add_argument("--updates", type=float, default=600, help="of the base batch, that all updates are worth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32, help="rows of all ranks together that --rate was found for")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate at that batch")
    parser.add_argument("--rule", default="adascale", help="how it follows the batch: linear, square_root, adascale")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--pass-ms", type=float, default=0.0, help="sleep for each pass, as if a device computed")
    parser.add_argument("--row-ms", type=float, default=0.0, help="and for each row of it")
    parser.add_argument("--dir", help="checkpoint directory when not run by Penstock")
    parser.add_argument("--interval-s", type=float, help="seconds between checkpoints; default: the agent's")
    return parser.parse_args()


def made_up_digits(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (ROWS + UNSEEN, SIDE * SIDE) of KINDS shapes under much noise, and their kinds."""
    draw = np.random.default_rng(seed)
    shapes = draw.standard_normal((KINDS, SIDE * SIDE))
    kinds = draw.integers(0, KINDS, ROWS + UNSEEN)
    images = shapes[kinds] + NOISE * draw.standard_normal((len(kinds), SIDE * SIDE))
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(kinds)


class Trainer:
    """Model and optimizer of one rank; they are alike on all ranks."""

    def __init__(self, options: argparse.Namespace, batch: training.Batch) -> None:
        torch.manual_seed(options.seed)
        self.images, self.kinds = made_up_digits(options.seed)
        self.order = training.SampleOrder(ROWS, options.seed)
        self.batch, self.rate, self.rule = batch, options.rate, options.rule
        self.pass_s, self.row_s = options.pass_ms / 1000, options.row_ms / 1000
        self.model = nn.Sequential(nn.Linear(SIDE * SIDE, options.hidden), nn.Tanh(), nn.Linear(options.hidden, KINDS))
        # DDP puts gradients into other buckets after its first step, which changes the order of sums among more than
        # two ranks. With this it does not, so that a resumed training equals, bit for bit, one that was left alone.
        self.parallel = DistributedDataParallel(self.model, find_unused_parameters=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.rate, momentum=0.9)
        batch.watch(self.parallel, self.optimizer)

    def state(self) -> dict[str, Any]:
        return capture(model=self.model, optimizer=self.optimizer, batch=self.batch)

    def load(self, state: Mapping[str, Any]) -> None:
        restore(state, model=self.model, optimizer=self.optimizer, batch=self.batch)

    def train_step(self) -> float:
        """Do one update on this rank's share of the batch and return the share of the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * self.batch.learning_rate_factor(self.rule)
        self.optimizer.zero_grad()
        total = 0.0
        for part in self.batch.rounds(self.order):
            with nullcontext() if part.last else self.parallel.no_sync():
                found = self.parallel(self.images[part.rows])
                loss = nn.functional.cross_entropy(found, self.kinds[part.rows]) * part.weight
                time.sleep(self.pass_s + self.row_s * len(part.rows))
                loss.backward()
                total += float(loss.detach())
        self.optimizer.step()
        return total

    @torch.no_grad()
    def loss(self) -> float:
        """Return the loss over the rows that it has not seen."""
        return float(nn.functional.cross_entropy(self.model(self.images[ROWS:]), self.kinds[ROWS:]))

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
    with training.session(options.dir, interval_s=options.interval_s, batch=options.batch, clean_up=False) as run:
        join_group()
        trainer = Trainer(options, run.batch)
        state = run.resume(None)
        if state is not None:
            trainer.load(state)
        batch, first = run.batch, run.environment.rank == 0
        if first:
            print(f"starting at row {batch.samples} with {batch.ranks} ranks, batch {batch.total}", flush=True)
        for _ in run.steps(scaled_steps=options.updates, capture=trainer.state, agree=RankConsensus()):
            loss = trainer.train_step()
            run.report(loss=loss, samples=batch.share.samples, worth=batch.scaled_steps)
        if first:
            print(f"final rows: {batch.samples} in {batch.updates} updates, worth {batch.scaled_steps:.1f}")
            print(f"final loss: {trainer.loss():.17g}")
            print(f"final digest: {trainer.digest()}")
    del trainer  # before the group: where DDP held it last, the end would wait for a thread of Gloo for ever
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
