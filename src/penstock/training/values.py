"""Turns a training state into files and back, without pickle.

A state is a dict of plain values, nested at will: None, bool, int, float, str, bytes, list, tuple, dict,
NumPy arrays and scalars, PyTorch tensors. The shape of it goes to `tree.json`; bytes and arrays go to files
of their own. A part that holds tensors and plain values only (a state_dict) becomes one `torch.save` file.
What comes back equals what went in, types included; dict subclasses come back as dicts.

NumPy and PyTorch are looked up among the modules that are already loaded: a state cannot hold an array
of a library that nobody imported.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from penstock.training.durable import Sink, Writer
from penstock.training.errors import UnsavableValue

TREE_NAME = "tree.json"
MAX_DEPTH = 64

State = dict[str, Any]
OpenBlob = Callable[[str], BinaryIO]


@dataclass(frozen=True, slots=True)
class EncodedBlob:
    """A file to be written: its name, and who writes it."""

    name: str
    writer: Writer


def encode_state(state: Mapping[str, Any]) -> list[EncodedBlob]:
    """Return the files that hold `state`, the tree last.

    Raises: UnsavableValue naming the place in the state and the type found there.
    """
    if not isinstance(state, Mapping):
        raise UnsavableValue(f"the state is a {type(state).__name__}; expected a dict of named values")
    encoder = _Encoder()
    # The top level is always split by name: one file for each named part, also when all of them are tensors.
    tree = json.dumps(encoder.container(dict(state), ()), allow_nan=False).encode("ascii")
    return [*encoder.blobs, EncodedBlob(TREE_NAME, _bytes_writer(tree))]


def decode_state(open_blob: OpenBlob) -> State:
    """Return the state whose files `open_blob` opens by name. Call it only after their checksums matched."""
    with open_blob(TREE_NAME) as file:
        tree = json.load(file)
    state: State = _decode(tree, open_blob)
    return state


def _bytes_writer(data: bytes) -> Writer:
    def write(sink: Sink) -> None:
        sink.write(data)

    return write


class _Encoder:
    def __init__(self) -> None:
        self.blobs: list[EncodedBlob] = []

    def node(self, value: Any, path: tuple[str, ...]) -> Any:
        """Return the JSON form of `value`, putting bulky parts aside as blobs."""
        if len(path) > MAX_DEPTH:
            raise UnsavableValue(
                f"the state is nested deeper than {MAX_DEPTH} at {_place(path[:4])}...; does it hold itself?"
            )
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if type(value) is bytes:
            return {"$bytes": self._blob(path, "bin", _bytes_writer(value))}
        if _torch_alone(value):
            return {"$torch": self._blob(path, "pt", _torch_writer(value))}
        numpy = sys.modules.get("numpy")
        # Exact types only: a masked array, for one, would silently lose its mask in an npy file.
        if numpy is not None and (type(value) in (numpy.ndarray, numpy.memmap) or isinstance(value, numpy.generic)):
            return self._array(numpy, value, path)
        return self.container(value, path)

    def _array(self, numpy: Any, value: Any, path: tuple[str, ...]) -> Any:
        if value.dtype.hasobject:
            raise UnsavableValue(
                f"{_place(path)} is a NumPy array of dtype {value.dtype}; expected one without Python objects"
            )
        tag = "$array" if isinstance(value, numpy.ndarray) else "$scalar"

        def write(sink: Sink) -> None:
            numpy.save(sink, value, allow_pickle=False)

        return {tag: self._blob(path, "npy", write)}

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
        return [key, self.node(item, (*path, str(key)))]

    def _blob(self, path: tuple[str, ...], suffix: str, writer: Writer) -> str:
        words = re.sub(r"[^A-Za-z0-9_-]+", "_", ".".join(path))[:100] or "value"
        name = f"{len(self.blobs):04d}-{words}.{suffix}"
        self.blobs.append(EncodedBlob(name, writer))
        return name


def _place(path: tuple[str, ...]) -> str:
    return "state" + "".join(f"[{part!r}]" for part in path)


def _torch_writer(value: Any) -> Writer:
    def write(sink: Sink) -> None:
        from penstock.training import torch as adapter

        adapter.write_value(value, sink)

    return write


def _torch_alone(value: Any) -> bool:
    """Whether `value` holds at least one tensor, and nothing that `torch.load(weights_only=True)` refuses."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return False
    counts = {"tensors": 0, "others": 0}
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending and not counts["others"]:
        found, depth = pending.pop()
        if isinstance(found, torch.Tensor):
            counts["tensors"] += 1
        elif isinstance(found, dict) and depth < MAX_DEPTH:
            counts["others"] += any(type(key) not in (str, int) for key in found)
            pending += [(item, depth + 1) for item in found.values()]
        elif type(found) in (list, tuple) and depth < MAX_DEPTH:
            pending += [(item, depth + 1) for item in found]
        elif not (found is None or type(found) in (bool, int, float, str, bytes)):
            counts["others"] += 1
    return counts["tensors"] > 0 and not counts["others"]


def _decode(node: Any, open_blob: OpenBlob) -> Any:
    if isinstance(node, list):
        return [_decode(item, open_blob) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        tag, argument = next(iter(node.items()))
        if tag.startswith("$"):
            return _decode_tag(tag, argument, open_blob)
    return {key: _decode(item, open_blob) for key, item in node.items()}


def _decode_tag(tag: str, argument: Any, open_blob: OpenBlob) -> Any:
    if tag == "$float":
        return float(argument)
    if tag == "$tuple":
        return tuple(_decode(item, open_blob) for item in argument)
    if tag == "$items":
        return {key: _decode(item, open_blob) for key, item in argument}
    with open_blob(argument) as file:
        if tag == "$bytes":
            return file.read()
        if tag == "$torch":
            from penstock.training import torch as adapter

            return adapter.read_value(file)
        import numpy

        array = numpy.load(file, allow_pickle=False)
        return array[()] if tag == "$scalar" else array
