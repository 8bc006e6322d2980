"""Copies contents that are adjacent in host memory together, in as few and as long runs as possible.

The C library writes past the caches only from a certain length on, three quarters of a large cache: tensors one by one
stay below it, and each line they are copied to is read first. 1 GB in tensors of 4 and 16 MiB took 1.9 times as long as
in one piece, with one core free; joined it takes as long.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial

from penstock.training.storage import durable
from penstock.training.storage.contents import Content, Window

ALIGN_BYTES = 64
JOIN_MIN_BYTES = 2**20
"""Contents below this size are copied one by one: gaps between them would add up."""
PART_BYTES = 2**27
"""Bytes that each thread gets at least where several copy a long run."""
SMALL_BYTES = 2**20
"""Less than this altogether is not worth a thread."""


def room_bytes(sizes: Sequence[int]) -> int:
    """Return how much memory contents of these sizes need at most, at any addresses."""
    return sum(_aligned(size) + (2 * mmap.PAGESIZE if size >= JOIN_MIN_BYTES else 0) for size in sizes)


def copy(contents: Sequence[Content], memory: Window) -> list[Window]:
    """Copy into `memory`, which has the `room_bytes` of their sizes; return the window of each of them."""
    spans, alone = [], []
    for index, content in enumerate(contents):
        address = content.address() if content.size_bytes >= JOIN_MIN_BYTES else None
        if address is None:
            alone.append(index)
        else:
            spans.append((address, address + content.size_bytes, index))
    places: dict[int, Window] = {}
    tasks: list[Callable[[], None]] = []
    offset = 0
    for first, end, members in joined(spans):
        for begin, stop, index in members:
            places[index] = memory[offset + begin - first : offset + stop - first]
        tasks += _parts(first, memory[offset : offset + end - first])
        offset += _aligned(end - first)
    for index in alone:
        places[index] = memory[offset : offset + contents[index].size_bytes]
        tasks.append(partial(contents[index].copy_to, places[index]))
        offset += _aligned(contents[index].size_bytes)
    if sum(content.size_bytes for content in contents) < SMALL_BYTES:
        for task in tasks:
            task()
    else:
        durable.in_parallel(tasks, min(durable.WRITERS, os.cpu_count() or 1))
    return [places[index] for index in range(len(contents))]


Span = tuple[int, int, int]
"""First address, the one after the last, and a number of the caller's."""


def joined(spans: Sequence[Span]) -> list[tuple[int, int, list[Span]]]:
    """Return runs (first, end, the spans within), in order of addresses.

    The gap between two spans of a run is within pages that one of them has bytes of: so it can be read as long as
    they can, no matter what owns it. It is copied along, and never used.
    """
    runs: list[tuple[int, int, list[Span]]] = []
    for span in sorted(spans):
        if runs and span[0] // mmap.PAGESIZE - (runs[-1][1] - 1) // mmap.PAGESIZE <= 1:
            first, end, members = runs.pop()
            runs.append((first, max(end, span[1]), [*members, span]))
        else:
            runs.append((span[0], span[1], [span]))
    return runs


def _parts(address: int, target: Window) -> list[Callable[[], None]]:
    """Return calls that copy a run, in equal parts."""
    count = max(1, len(target) // PART_BYTES)
    borders = [len(target) * number // count for number in range(count + 1)]
    return [partial(_move, address + borders[n], target[borders[n] : borders[n + 1]]) for n in range(count)]


def _move(address: int, target: Window) -> None:
    ctypes.memmove((ctypes.c_char * len(target)).from_buffer(target), address, len(target))  # lets other threads run


def _aligned(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES
