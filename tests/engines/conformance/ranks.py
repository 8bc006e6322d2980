"""Runs all ranks of an example, as torchrun would: `python ranks.py RANKS PORT EXAMPLE OPTION...`.

PyTorch takes longer to load than they train: it is loaded once, and the ranks are forked from there.
"""

import os
import runpy
import sys

import numpy as np  # noqa: F401 - loaded for the ranks
import sklearn.datasets  # noqa: F401
import torch._dynamo  # what the first optimizer loads
import torch.distributed
import torch.nn.parallel  # noqa: F401

import penstock.training.torch  # noqa: F401


def main() -> None:
    ranks, port, example, *options = sys.argv[1:]
    for rank in range(int(ranks)):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": ranks}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            sys.argv = [example, *options]
            runpy.run_path(example, run_name="__main__")
            sys.stdout.flush()
            os._exit(0)  # to unload PyTorch would take as long as the training
    ended = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(int(ranks))]
    assert ended == [0] * int(ranks), ended


if __name__ == "__main__":
    main()
