"""What a checkpoint costs: how long training is held, how fast the disk is used, what an unchanged state costs.

1 GB of fp32 tensors shaped like a transformer with Adam's moments, on a local disk. In the same run: one copy within
memory, the disk's sequential write rate, `torch.save`, and PyTorch's `torch.distributed.checkpoint.async_save`.
Each figure is the median of several runs, interleaved, because disks and machines have moods.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as distributed
import torch.distributed.checkpoint as dcp

from bench.harness import result
from penstock.training.ranks.layouts import Whole
from penstock.training.reports import Reporter
from penstock.training.saver import Saver
from penstock.training.storage.directory import CheckpointDirectory

MiB = 2**20


def state_of(size_bytes: int) -> dict[str, dict[str, torch.Tensor]]:
    """Return weights and both moments: matrices of 4 MiB and 16 MiB, and small vectors."""
    state: dict[str, dict[str, torch.Tensor]] = {"model": {}, "first": {}, "second": {}}
    generator = torch.Generator().manual_seed(0)
    layer = 0
    while size_bytes > 0:
        for group in state.values():
            for name, shape in (("in", (1024, 1024)), ("out", (4096, 1024)), ("bias", (1024,))):
                tensor = torch.randn(shape, generator=generator)
                group[f"layers.{layer}.{name}"] = tensor
                size_bytes -= tensor.nbytes
        layer += 1
    return state


def size_of(state: dict[str, dict[str, torch.Tensor]]) -> int:
    return sum(tensor.nbytes for group in state.values() for tensor in group.values())


def change(state: dict[str, dict[str, torch.Tensor]]) -> None:
    for group in state.values():
        for tensor in group.values():
            tensor.add_(1e-3)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class MemoryCopy:
    """One copy by one thread, in one piece, between two buffers in huge pages that are there already.

    That is as fast as one core copies: the C library writes past the caches then, which it does not for the pieces of 4
    and 16 MiB that the state is made of; one after the other they take 1.6 to 1.9 times as long here.
    """

    def __init__(self, size_bytes: int) -> None:
        self._source, self._target = np.ones(size_bytes, dtype=np.uint8), np.ones(size_bytes, dtype=np.uint8)

    def seconds(self) -> float:
        return timed(lambda: np.copyto(self._target, self._source))


def disk_s(folder: Path, size_bytes: int) -> float:
    """Return the time of a sequential write of so many bytes in chunks of 16 MiB, synced."""
    chunk = os.urandom(16 * MiB)
    path = folder / "sequential"

    def write() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for first in range(0, size_bytes, len(chunk)):
            os.write(descriptor, memoryview(chunk)[: min(len(chunk), size_bytes - first)])
        os.fsync(descriptor)
        os.close(descriptor)

    took = timed(write)
    path.unlink()
    return took


def torch_save_s(folder: Path, state: object) -> float:
    path = folder / "state.pt"

    def write() -> None:
        with path.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    took = timed(write)
    path.unlink()
    return took


def dcp_async(folder: Path, state: dict[str, dict[str, torch.Tensor]]) -> tuple[float, float]:
    """Return how long async_save holds its caller, and when it is done (s)."""
    target = folder / "dcp"
    begun = time.perf_counter()
    future = dcp.async_save(state, checkpoint_id=target)
    held = time.perf_counter() - begun
    future.result()
    took = time.perf_counter() - begun
    shutil.rmtree(target)
    return held, took


class Ours:
    """One directory, saved to again and again."""

    def __init__(self, folder: Path, state: dict[str, dict[str, torch.Tensor]]) -> None:
        self._folder, self._state, self._step = folder / "penstock", state, 0
        self._directory = CheckpointDirectory(self._folder, keep=3)
        self._directory.open()
        self._saver = Saver(self._directory, Whole(), Reporter(None), behind=True)
        self.prepare_s = timed(lambda: self._saver.prepare(lambda: state))

    def save(self) -> tuple[float, float]:
        """Return how long training is held, and when the checkpoint is published (s)."""
        self._step += 1
        begun = time.perf_counter()
        self._saver.save_behind(self._step, lambda: self._state, "interval")
        held = time.perf_counter() - begun
        self._saver.wait()
        return held, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="size of the state")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: a new folder here")
    parser.add_argument("--quick", action="store_true", help="a quarter of the size, three runs")
    options = parser.parse_args()
    size, runs = (2**28, 3) if options.quick else (int(options.gb * 2**30), options.runs)
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    state = state_of(size)
    size = size_of(state)
    with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd()) as name:
        measure(Path(name), state, size, runs)
    distributed.destroy_process_group()


def measure(folder: Path, state: dict[str, dict[str, torch.Tensor]], size: int, runs: int) -> None:
    copy = MemoryCopy(size)
    ours = Ours(folder, state)
    held, took, again, disk, plain, peer_held, peer_took, copied = ([] for _ in range(8))
    for _ in range(runs):
        disk.append(disk_s(folder, size))
        change(state)
        copied.append(copy.seconds())
        one = ours.save()
        copied.append(copy.seconds())
        held.append(one[0])
        took.append(one[1])
        again.append(ours.save()[1])
        disk.append(disk_s(folder, size))
        plain.append(torch_save_s(folder, state))
        other = dcp_async(folder, state)
        peer_held.append(other[0])
        peer_took.append(other[1])
    middle = statistics.median
    result(
        "hold_over_memcpy", middle(held) / middle(copied), "ratio", "lower", 1.3,
        {"name": "one copy within memory, s", "value": middle(copied)},
    )  # fmt: skip
    first = {"name": "later saves, s", "value": middle(held[1:])}
    result("first_hold_over_later", held[0] / middle(held[1:]), "ratio", "lower", None, first)
    result("prepare_held_s", ours.prepare_s, "s", "lower", None)
    share = middle(disk) / middle(took)
    result("write_share_of_disk", share, "ratio", "higher", 0.8, {"name": "sequential write, s", "value": middle(disk)})
    peer = {"name": "torch.distributed.checkpoint.async_save, s", "value": middle(peer_held)}
    result("async_save_ratio", middle(held) / middle(peer_held), "ratio", "lower", 1.0, peer)
    result("second_save_over_first", middle(again) / middle(took), "ratio", "lower", 0.1)
    for metric, values in (
        ("held_s", held), ("took_s", took), ("unchanged_took_s", again), ("disk_s", disk), ("torch_save_s", plain),
        ("dcp_async_held_s", peer_held), ("dcp_async_took_s", peer_took),
    ):  # fmt: skip
        spread = {"name": f"least and most of {len(values)}, {size} bytes", "value": [min(values), max(values)]}
        result(metric, middle(values), "s", "lower", None, spread)


if __name__ == "__main__":
    main()
