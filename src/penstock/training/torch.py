"""PyTorch for `penstock.training`: tensors in checkpoints, and ranks that stop at the same step.

Imported only by programs that use PyTorch. Tensors are loaded with `weights_only=True`, onto the CPU.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
import torch.distributed as distributed

from penstock.training.durable import Sink
from penstock.training.errors import BadArgument, RanksDisagree
from penstock.training.session import Wish


def capture(**objects: Any) -> dict[str, Any]:
    """Return the `state_dict()` of each object by its name: models, optimizers, schedulers, samplers."""
    return {name: thing.state_dict() for name, thing in objects.items()}


def restore(state: Mapping[str, Any], **objects: Any) -> None:
    """Load into each object what `capture` saved under its name.

    Raises: BadArgument if the state lacks a name; whatever `load_state_dict` raises if shapes differ.
    """
    for name, thing in objects.items():
        if name not in state:
            raise BadArgument(f"the checkpoint has no {name!r}; it has {sorted(state)}")
        thing.load_state_dict(state[name])


class Agreement:
    """Makes all ranks of the default process group act on a wish at the same step.

    Without it a rank that got SIGTERM would leave, and the others hang in their next collective.

    Args:
        every: look for a common wish every so many steps (>= 1). One small all-reduce each time: a fraction
            of a millisecond on one machine; a stop is then delayed by up to `every` steps.
    """

    def __init__(self, *, every: int = 1) -> None:
        if every < 1:
            raise BadArgument(f"every is {every}; expected at least 1")
        self._every = every
        self._first = True

    def decide(self, wish: Wish, step: int) -> Wish:
        """Return the strongest wish of all ranks. Collective. Raises: RanksDisagree if their steps differ."""
        if step % self._every and not self._first:
            return Wish.NOTHING
        self._first = False
        numbers = torch.tensor([int(wish), step, -step], dtype=torch.int64, device=_device())
        distributed.all_reduce(numbers, op=distributed.ReduceOp.MAX)
        strongest, highest, lowest = (int(number) for number in numbers.tolist())
        if highest != -lowest:
            raise RanksDisagree(
                f"this rank is at step {step}, others are between {-lowest} and {highest}; expected "
                "one step. Do all ranks see the same checkpoint directory?"
            )
        return Wish(strongest)

    def barrier(self) -> None:
        """Return when every rank has come here: nobody leaves while rank 0 is still saving."""
        distributed.all_reduce(torch.zeros(1, device=_device()))


def _device() -> torch.device:
    if distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def write_value(value: Any, sink: Sink) -> None:
    """Write a state_dict or tensor as `torch.save` does."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    with buffer.getbuffer() as view:
        sink.write(view)


def read_value(file: BinaryIO) -> Any:
    """Return what `write_value` wrote, on the CPU. Runs no code from the file."""
    return torch.load(file, map_location="cpu", weights_only=True)
