"""The contents of a state apart from its shape: runs of bytes, in host or device memory.

A content knows its size before it is read, can be copied elsewhere, and can be looked at without a copy where it
lies contiguous in host memory. Saving needs nothing else, so it never builds a file in memory first.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Window = memoryview
"""A contiguous run of bytes (format B, one dimension)."""


class Content(Protocol):
    """Bytes that may change once training goes on."""

    @property
    def size_bytes(self) -> int: ...

    def view(self) -> Window:
        """Return the bytes: in place where they are contiguous in host memory, else a copy."""
        ...

    def copy_to(self, target: Window) -> None:
        """Copy the bytes into `target`, which has just this size."""
        ...

    def address(self) -> int | None:
        """Return where the bytes lie in host memory, one after the other; None where they do not."""
        ...

    def stamp(self) -> Hashable | None:
        """Return a value that stays equal until a visible change of the bytes; None where changes are invisible."""
        ...

    def sample(self) -> bytes:
        """Return a few of the bytes, always the same ones: they show a change that the stamp missed."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes that never change."""

    data: bytes | Window

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def view(self) -> Window:
        return memoryview(self.data)

    def copy_to(self, target: Window) -> None:
        target[:] = self.data

    def address(self) -> int | None:
        return None

    def stamp(self) -> Hashable | None:
        return None

    def sample(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class NumpyContent:
    """The elements of an array in memory order."""

    array: Any

    @property
    def size_bytes(self) -> int:
        return int(self.array.nbytes)

    def view(self) -> Window:
        import numpy

        flat: Any = self.array if self._contiguous() else numpy.ascontiguousarray(self.array)
        flat = flat.reshape(-1, order="A").view(numpy.uint8)
        return memoryview(flat) if flat.nbytes else memoryview(b"")

    def copy_to(self, target: Window) -> None:
        import numpy

        if self.size_bytes:
            numpy.copyto(numpy.frombuffer(target, dtype=numpy.uint8), numpy.frombuffer(self.view(), dtype=numpy.uint8))

    def address(self) -> int | None:
        return int(self.array.__array_interface__["data"][0]) if self._contiguous() else None

    def stamp(self) -> Hashable | None:
        return None

    def sample(self) -> bytes:
        return b""

    def _contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous or self.array.flags.f_contiguous)


@dataclass(frozen=True, slots=True)
class FileContents:
    """One file to be: its name, and its contents one after the other."""

    name: str
    contents: tuple[Content, ...]

    @property
    def size_bytes(self) -> int:
        return sum(content.size_bytes for content in self.contents)

    def windows(self) -> Iterable[Window]:
        """Yield the bytes in order."""
        for content in self.contents:
            yield content.view()

    def stamp(self) -> tuple[Hashable, ...] | None:
        """Return the stamps of all that can change; None if one of them has none."""
        stamps = [content.stamp() for content in self.contents if not isinstance(content, Fixed)]
        return None if not stamps or None in stamps else tuple(stamps)


def npy_bytes(array: Any) -> bytes:
    """Return an npy file that holds `array`."""
    import numpy

    sink = io.BytesIO()
    numpy.save(sink, array, allow_pickle=False)
    return sink.getvalue()


def npy_contents(array: Any) -> tuple[Content, ...]:
    """Return the contents of an npy file: header, then the elements in memory order, not copied yet.

    Source: the npy format, versions 1.0 and 2.0 (numpy.lib.format).
    """
    import numpy.lib.format as npy

    fields = npy.header_data_from_array_1_0(array)
    for write in (npy.write_array_header_1_0, npy.write_array_header_2_0):
        sink = io.BytesIO()
        try:
            write(sink, fields)
        except ValueError:  # too long, or names of fields that this version cannot spell
            continue
        return Fixed(sink.getvalue()), NumpyContent(array)
    return (Fixed(npy_bytes(array)),)


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """One entry of a safetensors file: its name there, dtype in safetensors' words, shape and bytes."""

    name: str
    dtype: str
    shape: Sequence[int]
    content: Content


def safetensors_contents(tensors: Sequence[NamedTensor]) -> tuple[Content, ...]:
    """Return the contents of a safetensors file: length of the header, header, then the tensors back to back.

    Source: the format's description at https://github.com/huggingface/safetensors (header padded to 8 bytes).
    """
    header: dict[str, Any] = {}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.content.size_bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return (Fixed(len(text).to_bytes(8, "little") + text), *(tensor.content for tensor in tensors))


def read_safetensors(raw: Window, build: Callable[[str, list[int], Window], Any]) -> dict[str, Any]:
    """Return what `build(dtype, shape, bytes)` makes of each tensor in the file `raw`, by name.

    Raises: ValueError where the file is not one; call it only after its checksum matched.
    """
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(bytes(raw[8 : 8 + length]))
    body = raw[8 + length :]
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            found[name] = build(entry["dtype"], entry["shape"], body[first:end])
    return found
