"""A DDP training that hangs on purpose: one rank is stopped, gets no data, or does not come to a collective."""

import argparse
import os
import signal
import time
from collections.abc import Iterator

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from penstock import training
from penstock.training.torch import RankConsensus, capture, restore


class Rows(Dataset[torch.Tensor]):
    """Rows of noise; the one at `never` does not come."""

    def __init__(self, never: int) -> None:
        self._never = never

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        while index == self._never:
            time.sleep(3600)
        return torch.ones(8)


def batches(never: int, workers: int) -> Iterator[torch.Tensor]:
    yield from DataLoader(Rows(never), batch_size=4, num_workers=workers)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("none", "stop", "data", "data-worker", "missing", "spin"))
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-ms", type=float, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with training.session() as run:
        distributed.init_process_group("gloo")
        attempt = run.environment.attempt or 1
        bad = distributed.get_rank() == options.rank and attempt == 1 and options.how != "none"
        never = options.at * 4 if bad and options.how.startswith("data") else -1
        model = nn.Linear(8, 1)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        state = run.resume(None)
        if state is not None:
            restore(state, model=model, optimizer=optimizer)
        rows = run.data(batches(never, workers=2 if options.how == "data-worker" else 0))
        for step in run.steps(
            options.steps, capture=lambda: capture(model=model, optimizer=optimizer), agree=RankConsensus()
        ):
            batch = next(rows)
            if bad and step == options.at:
                print(f"hangs at {time.time():.3f}", flush=True)
                if options.how == "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif options.how == "missing":
                    time.sleep(3600)
                elif options.how == "spin":
                    while True:
                        pass
            optimizer.zero_grad()
            loss = parallel(batch).square().mean()
            loss.backward()
            optimizer.step()
            run.report(loss=float(loss.detach()), samples=4)
            time.sleep(options.step_ms / 1000)


if __name__ == "__main__":
    main()
