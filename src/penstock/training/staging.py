"""Copies of a state in host memory, so that training goes on while they are written.

The memory is kept from save to save: to touch a page for the first time costs ten times as much as to copy it.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Sequence
from functools import partial

from penstock.training import durable, hostmemory
from penstock.training.blobs import Ready, Shelf
from penstock.training.contents import Content, Fixed, Piece, Window

ALIGN_BYTES = 64
PAGE_BYTES = 4096
SPARE_SHARE = 0.8
"""A copy may take this much of the memory that is left: training itself still grows."""
COPY_MIN_BYTES = 2**20
"""Copied by several threads from this size on."""


class Stage:
    """Host memory for one copy of a state."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def reserve(self, pieces: Sequence[Piece]) -> None:
        """Get the memory that these pieces need, every page of it touched. Raises: MemoryError, OSError."""
        need = _need(pieces)
        if self._memory is not None and len(self._memory) >= need:
            return
        self._memory = None
        if need:
            refuse_too_much(need)
            memory = mmap.mmap(-1, need)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                memory.madvise(mmap.MADV_HUGEPAGE)
            _touch(memory)
            self._memory = memory

    def copy(self, pieces: Sequence[Piece], shelf: Shelf) -> list[Ready]:
        """Return the pieces with contents that no longer change; valid until the next call.

        A piece whose data looks unchanged since the last save, and is by its checksum, is not copied: it will be
        shared with that checkpoint.
        Raises: MemoryError, OSError where there is no memory for it.
        """
        self.reserve(pieces)
        base = memoryview(self._memory) if self._memory is not None else memoryview(b"")
        tasks, first = [], 0
        for piece in pieces:
            targets = []
            for content in piece.contents:
                size = 0 if isinstance(content, Fixed) else content.size_bytes
                targets.append(base[first : first + size])
                first += _aligned(size)
            tasks.append(partial(_copy, piece, targets, shelf, shelf.stamps.get(piece.name)))
        shelf.stamps = {piece.name: stamp for piece in pieces if (stamp := piece.stamp()) is not None}
        small = sum(piece.size_bytes for piece in pieces) < COPY_MIN_BYTES
        return [task() for task in tasks] if small else durable.in_parallel(tasks)


def refuse_too_much(need_bytes: int) -> None:
    """Raises: MemoryError where the job's limit, or the machine, has no room for a copy of that size."""
    spare = hostmemory.spare_bytes()
    if spare is not None and need_bytes > spare * SPARE_SHARE:
        raise MemoryError(f"a copy takes {need_bytes} bytes, and {spare} are left before this process is killed for it")


def _copy(piece: Piece, targets: Sequence[Window], shelf: Shelf, before: Hashable) -> Ready:
    if before is not None and before == piece.stamp():
        # The stamp is a hint only (writes through `.data` leave it as it is): the checksum decides.
        same = shelf.lends(durable.checksum(piece.windows()))
        if same is not None:
            return Ready(piece.name, same=same)
    windows = tuple(_one(content, target) for content, target in zip(piece.contents, targets, strict=True))
    return Ready(piece.name, windows, fresh=before is not None)


def _one(content: Content, target: Window) -> Window:
    if isinstance(content, Fixed):
        return content.view()
    content.copy_to(target)
    return target


def _need(pieces: Sequence[Piece]) -> int:
    contents = (content for piece in pieces for content in piece.contents if not isinstance(content, Fixed))
    return sum(_aligned(content.size_bytes) for content in contents)


def _aligned(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


def _touch(memory: mmap.mmap) -> None:
    import numpy  # lets other threads run meanwhile

    numpy.frombuffer(memory, dtype=numpy.uint8)[::PAGE_BYTES] = 0
