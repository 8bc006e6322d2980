"""Turns a training state into files and back, without pickle.

A state is a dict of plain values, nested at will: None, bool, int, float, str, bytes, list, tuple, dict,
NumPy arrays and scalars, PyTorch tensors. Its shape and small values go to `tree.json`; bytes and arrays
go to files of their own, tensors to safetensors files: a big one has its own, so that an unchanged one need
not be written again; small ones share. Decoded values equal the encoded ones, types included; dict subclasses come
back as dicts, parameters as tensors.

NumPy and PyTorch are looked up among the modules that are already loaded: a state cannot hold an array
of a library that is not imported.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from penstock.training.errors import UnsavableValue
from penstock.training.storage.contents import (
    FileContents,
    Fixed,
    NamedTensor,
    Window,
    npy_bytes,
    npy_contents,
    read_safetensors,
    safetensors_contents,
)

TREE_NAME = "tree.json"
MAX_DEPTH = 64
INLINE_MAX_BYTES = 16 * 2**10
"""Arrays up to this size go into the tree itself."""
OWN_FILE_MIN_BYTES = 2**20
"""A tensor of this size has a file of its own."""
PACK_MAX_BYTES = 64 * 2**20
DECIMAL_MAX_BITS = 2048
"""Longer integers are written as hexadecimal text: Python refuses decimals above a set number of digits, 640 at
the least."""

State = dict[str, Any]
ReadBlob = Callable[[str], Window]
PutTensor = Callable[[Any, str], None]
"""Takes a tensor, and its place in the state: keys and indices, joined by dots."""


def encode_state(state: Mapping[str, Any], *, put_tensor: PutTensor | None = None) -> list[FileContents]:
    """Return the files that hold `state`, the tree last. Arrays and tensors are referred to, not copied.

    Args:
        put_tensor: is given all tensors, which then are in none of the files; it raises for two in one place.
    Raises: UnsavableValue naming the place in the state and the type found there.
    """
    if not isinstance(state, Mapping):
        raise UnsavableValue(f"the state is a {type(state).__name__}; expected a dict of named values")
    encoder = _Encoder(put_tensor)
    tree = json.dumps(encoder.container(dict(state), ()), allow_nan=False).encode("ascii")
    return [*encoder.finish(), FileContents(TREE_NAME, (Fixed(tree),))]


def decode_state(read_blob: ReadBlob, *, get_tensor: Callable[[str], Any] | None = None) -> State:
    """Return the state whose files `read_blob` reads by name, once their checksums matched.

    Arrays and tensors may lie in the memory that it returns.

    Args:
        get_tensor: returns the tensor of a place that `put_tensor` was given.
    """
    decoder = _Decoder(read_blob, get_tensor)
    state: State = decoder.value(json.loads(bytes(read_blob(TREE_NAME))))
    return state


class _Encoder:
    def __init__(self, put_tensor: PutTensor | None) -> None:
        self._put_tensor = put_tensor
        self._pieces: list[FileContents] = []
        self._pack: list[NamedTensor] = []
        self._pack_bytes = 0
        self._packs = 0
        self._names: set[str] = {"__metadata__"}
        self._tensors: dict[Any, Any] = {}
        """By a tensor's memory: weights that are tied are written once."""

    def finish(self) -> list[FileContents]:
        """Return all files but the tree."""
        self._close_pack()
        return self._pieces

    def node(self, value: Any, path: tuple[str, ...]) -> Any:
        """Return the JSON form of `value`, putting bulky parts aside."""
        if len(path) > MAX_DEPTH:
            raise UnsavableValue(
                f"the state is nested deeper than {MAX_DEPTH} at {_place(path[:4])}...; does it hold itself?"
            )
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            found = _integer(value)
            return found if found is value else {"$int": found}
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if type(value) is bytes:
            return {"$bytes": self._piece(path, "bin", Fixed(value))}
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        # Exact types only: a masked array, for one, would silently lose its mask in an npy file.
        if numpy is not None and (type(value) in (numpy.ndarray, numpy.memmap) or isinstance(value, numpy.generic)):
            return self._array(numpy, value, path)
        return self.container(value, path)

    def _array(self, numpy: Any, value: Any, path: tuple[str, ...]) -> Any:
        if value.dtype.hasobject:
            raise UnsavableValue(
                f"{_place(path)} is a NumPy array of dtype {value.dtype}; expected one without Python objects"
            )
        whole = isinstance(value, numpy.ndarray)
        if value.nbytes <= INLINE_MAX_BYTES:
            text = base64.b64encode(npy_bytes(value)).decode("ascii")
            return {"$npy" if whole else "$npy_scalar": text}
        return {"$array" if whole else "$scalar": self._piece(path, "npy", *npy_contents(numpy.asanyarray(value)))}

    def _tensor(self, value: Any, path: tuple[str, ...]) -> Any:
        from penstock.training import torch as adapter

        if self._put_tensor is not None:
            self._put_tensor(value, ".".join(path))
            return {"$elsewhere": ".".join(path)}
        problem = adapter.unsavable(value)
        if problem:
            raise UnsavableValue(f"{_place(path)} is {problem}")
        entry = adapter.named_tensor(value, self._unique(".".join(path)))
        if entry is None:
            return {"$torch": self._piece(path, "pt", Fixed(adapter.tensor_bytes(value)))}
        identity = (entry.content.stamp(), entry.dtype, tuple(entry.shape))
        known = self._tensors.get(identity)
        if known is not None and entry.content.size_bytes:
            return known
        if entry.content.size_bytes >= OWN_FILE_MIN_BYTES:
            name = self._piece(path, "safetensors", *safetensors_contents([entry]))
        else:
            name = self._packed(entry)
        node = {"$tensor": [name, entry.name]}
        if identity[0] is not None:
            self._tensors[identity] = node
        return node

    def _unique(self, name: str) -> str:
        """Return the name, or one like it that no other tensor of this state has."""
        found, number = name, 2
        while found in self._names:
            found, number = f"{name}#{number}", number + 1
        self._names.add(found)
        return found

    def _packed(self, entry: NamedTensor) -> str:
        if self._pack_bytes + entry.content.size_bytes > PACK_MAX_BYTES:
            self._close_pack()
        self._pack.append(entry)
        self._pack_bytes += entry.content.size_bytes
        return f"pack-{self._packs:04d}.safetensors"

    def _close_pack(self) -> None:
        if self._pack:
            self._pieces.append(FileContents(f"pack-{self._packs:04d}.safetensors", safetensors_contents(self._pack)))
            self._pack, self._pack_bytes, self._packs = [], 0, self._packs + 1

    def container(self, value: Any, path: tuple[str, ...]) -> Any:
        """Return the JSON form of a list, tuple or dict, each item put through `node`."""
        if type(value) in (list, tuple):
            items = [self.node(item, (*path, str(index))) for index, item in enumerate(value)]
            return items if type(value) is list else {"$tuple": items}
        if isinstance(value, dict):
            if all(type(key) is str and not key.startswith("$") for key in value):
                return {key: self.node(item, (*path, key)) for key, item in value.items()}
            return {"$items": [self._item(key, item, path) for key, item in value.items()]}
        raise UnsavableValue(
            f"{_place(path)} is a {type(value).__module__}.{type(value).__qualname__}; expected None, bool, "
            "int, float, str, bytes, list, tuple, dict, a NumPy array or a PyTorch tensor"
        )

    def _item(self, key: Any, item: Any, path: tuple[str, ...]) -> list[Any]:
        if type(key) not in (str, int):
            raise UnsavableValue(
                f"{_place(path)} has a key of type {type(key).__name__} ({key!r}); expected str or int"
            )
        return [self.node(key, path), self.node(item, (*path, str(_integer(key) if type(key) is int else key)))]

    def _piece(self, path: tuple[str, ...], suffix: str, *contents: Any) -> str:
        words = re.sub(r"[^A-Za-z0-9_-]+", "_", ".".join(path))[:100] or "value"
        name = f"{len(self._pieces):04d}-{words}.{suffix}"
        self._pieces.append(FileContents(name, contents))
        return name


def _integer(value: int) -> int | str:
    """Return `value`, or the text of it where that is long."""
    return value if value.bit_length() <= DECIMAL_MAX_BITS else hex(value)


def _place(path: tuple[str, ...]) -> str:
    return "state" + "".join(f"[{part!r}]" for part in path)


class _Decoder:
    def __init__(self, read_blob: ReadBlob, get_tensor: Callable[[str], Any] | None) -> None:
        self._read, self._get_tensor = read_blob, get_tensor
        self._tensors: dict[str, dict[str, Any]] = {}
        self._given: set[tuple[str, str]] = set()

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            tag, argument = next(iter(node.items()))
            if tag.startswith("$"):
                return self._tagged(tag, argument)
        return {key: self.value(item) for key, item in node.items()}

    def _tagged(self, tag: str, argument: Any) -> Any:
        if tag == "$float":
            return float(argument)
        if tag == "$int":
            return int(argument, 16)
        if tag == "$tuple":
            return tuple(self.value(item) for item in argument)
        if tag == "$items":
            return {self.value(key): self.value(item) for key, item in argument}
        if tag == "$tensor":
            return self._tensor(*argument)
        if tag == "$elsewhere" and self._get_tensor is not None:
            return self._get_tensor(argument)
        if tag in ("$npy", "$npy_scalar"):
            return _load_array(base64.b64decode(argument), scalar=tag == "$npy_scalar")
        raw = self._read(argument)
        if tag == "$bytes":
            return bytes(raw)
        if tag == "$torch":
            from penstock.training import torch as adapter

            return adapter.read_value(BytesIO(raw))
        return _load_array(raw, scalar=tag == "$scalar")

    def _tensor(self, file: str, name: str) -> Any:
        """Return a tensor; the second use of the same bytes gets a copy of its own."""
        from penstock.training import torch as adapter

        if file not in self._tensors:
            self._tensors[file] = read_safetensors(self._read(file), adapter.build_tensor)
        found = self._tensors[file][name]
        if (file, name) in self._given:
            return found.clone()
        self._given.add((file, name))
        return found


def _load_array(raw: Any, *, scalar: bool) -> Any:
    import numpy

    array = numpy.load(BytesIO(raw), allow_pickle=False)
    return array[()] if scalar else array
