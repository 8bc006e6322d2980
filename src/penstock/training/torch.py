"""PyTorch for `penstock.training`: tensors in checkpoints, and ranks that stop at the same step.

Imported only by programs that use PyTorch. Tensors are loaded onto the CPU, without pickle.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.distributed as distributed

from penstock.training.errors import BadArgument, RanksDisagree
from penstock.training.ranks.consensus import BorderAction
from penstock.training.storage.contents import NamedTensor, Window


def capture(**objects: Any) -> dict[str, Any]:
    """Return the `state_dict()` of each object by its name: models, optimizers, schedulers, samplers."""
    return {name: thing.state_dict() for name, thing in objects.items()}


def restore(state: Mapping[str, Any], **objects: Any) -> None:
    """Load into each object what `capture` saved under its name.

    Raises: BadArgument if the state lacks a name; the errors of `load_state_dict` if shapes differ.
    """
    for name, thing in objects.items():
        if name not in state:
            raise BadArgument(f"the checkpoint has no {name!r}; it has {sorted(state)}")
        thing.load_state_dict(state[name])


class RankConsensus:
    """Makes all ranks of the default process group act on a wish at the same step.

    Without it a rank that got SIGTERM would leave, and the others hang in their next collective.

    Args:
        every: agree on an action every `every` steps (>= 1). One small all-reduce each time: a fraction
            of a millisecond on one machine; a stop is then delayed by up to `every` steps.
    """

    def __init__(self, *, every: int = 1) -> None:
        if every < 1:
            raise BadArgument(f"every is {every}; expected at least 1")
        self._every = every
        self._first = True

    def decide(self, action: BorderAction, step: int) -> BorderAction:
        """Return the strongest wish of all ranks. Collective. Raises: RanksDisagree if their steps differ."""
        if step % self._every and not self._first:
            return BorderAction.NOTHING
        self._first = False
        numbers = torch.tensor([int(action), step, -step], dtype=torch.int64, device=collective_device())
        distributed.all_reduce(numbers, op=distributed.ReduceOp.MAX)
        strongest, highest, lowest = (int(number) for number in numbers.tolist())
        if highest != -lowest:
            raise RanksDisagree(
                f"this rank is at step {step}, others are between {-lowest} and {highest}; expected "
                "one step. Do all ranks see the same checkpoint directory?"
            )
        return BorderAction(strongest)

    def share(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the numbers of rank 0 on every rank. Collective."""
        shared = torch.tensor(list(numbers), dtype=torch.int64, device=collective_device())
        distributed.broadcast(shared, 0)
        return [int(number) for number in shared.tolist()]

    def barrier(self) -> None:
        """Return when every rank has come here: no rank leaves while rank 0 is still saving."""
        distributed.all_reduce(torch.zeros(1, device=collective_device()))


def collective_device() -> torch.device:
    """Return where tensors lie that the default process group exchanges."""
    if distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


# Tensors in checkpoints.

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_BY_WORD = {word: dtype for dtype, word in _DTYPES.items()}


SAMPLES = 64


@dataclass(frozen=True, slots=True)
class TensorContent:
    """The elements of a strided tensor in row-major order."""

    tensor: Any

    @property
    def size_bytes(self) -> int:
        return int(self.tensor.numel() * self.tensor.element_size())

    def view(self) -> Window:
        """Return the bytes in place for a contiguous CPU tensor, else a copy."""
        return memoryview(_flat(self.tensor).numpy()) if self.size_bytes else memoryview(b"")

    def copy_to(self, target: Window) -> None:
        """Copy with the library that does it fastest: numpy between host buffers, torch from a device."""
        if not self.size_bytes:
            return
        into = np.frombuffer(target, dtype=np.uint8)
        if self.address() is not None:
            np.copyto(into, _flat(self.tensor).numpy())
        else:
            torch.from_numpy(into).view(self.tensor.dtype).view(self.tensor.shape).copy_(self.tensor.detach())

    def address(self) -> int | None:
        plain = self.tensor.device.type == "cpu" and self.tensor.is_contiguous()
        return int(self.tensor.data_ptr()) if plain else None

    def stamp(self) -> Hashable | None:
        """Return place, shape and autograd's count of in-place changes. Writes through `.data` are not counted."""
        if self.tensor.is_inference():
            return None
        return self.tensor.data_ptr(), self.tensor._version, tuple(self.tensor.shape), self.tensor.stride()

    def sample(self) -> bytes:
        """Return up to `SAMPLES` elements, evenly spread."""
        flat = self.tensor.detach().reshape(-1)
        return bytes(_flat(flat[:: max(1, len(flat) // SAMPLES)][:SAMPLES]).numpy())


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)


def unsavable(tensor: torch.Tensor) -> str:
    """Return the kind of a tensor that no single rank can save, else ''."""
    sharding = sys.modules.get("torch.distributed.tensor")  # a second and a half to import, so not by us
    if sharding is not None and isinstance(tensor, sharding.DTensor):
        return (
            "a DTensor, of which this rank holds a part; expected plain tensors, or "
            "training.session(layout=penstock.training.distributed.Sharded())"
        )
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a tensor of type {type(tensor).__qualname__}; expected a plain one, such as .as_subclass(torch.Tensor)"
    return ""


def named_tensor(tensor: torch.Tensor, name: str) -> NamedTensor | None:
    """Return the tensor as an entry of a safetensors file; None for a kind that the format lacks."""
    word = _DTYPES.get(tensor.dtype)
    plain = tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta"
    # A tensor with conjugate or negative bit, or of a subclass with its own memory, has other bytes than its values.
    plain = plain and type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not tensor.is_neg()
    return NamedTensor(name, word, tuple(tensor.shape), TensorContent(tensor)) if word and plain else None


def build_tensor(dtype: str, shape: list[int], raw: Window) -> torch.Tensor:
    """Return the tensor with these bytes; it lies in them where they may be written to."""
    if not len(raw):
        return torch.empty(shape, dtype=_BY_WORD[dtype])
    window = raw if not raw.readonly else memoryview(bytearray(raw))
    flat = torch.frombuffer(window, dtype=torch.uint8)
    if flat.data_ptr() % _BY_WORD[dtype].itemsize:
        flat = flat.clone()  # a view as another type needs aligned memory
    return flat.view(_BY_WORD[dtype]).view(shape)


def tensor_bytes(value: torch.Tensor) -> bytes:
    """Return the `torch.save` bytes of a tensor that safetensors cannot hold: sparse, quantized, complex."""
    buffer = io.BytesIO()
    torch.save(value.detach(), buffer)
    return buffer.getvalue()


def read_value(file: BinaryIO) -> Any:
    """Return the value that `torch.save` wrote, on the CPU. Runs no code from the file."""
    return torch.load(file, map_location="cpu", weights_only=True)
