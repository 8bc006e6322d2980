"""Copies of a state in host memory, so that training goes on while they are written.

The memory is kept from save to save: to touch a page for the first time costs ten times as much as to copy it.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from penstock.training.storage import copying as runs
from penstock.training.storage import durable, hostmemory
from penstock.training.storage.blobs import Loan, Ready, Shelf
from penstock.training.storage.contents import Content, FileContents, Fixed

PAGE_BYTES = 4096
_NEVER = object()
SPARE_SHARE = 0.8
"""A copy may take this share of the memory that is left: training itself still grows."""


class Stage:
    """Host memory for one copy of a state."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._reserve = Beside("penstock-reserve")

    def reserve(self, pieces: Sequence[FileContents]) -> None:
        """Begin to get the memory that these pieces need; `copy` waits for it. Raises: MemoryError."""
        need = self._lacking(pieces)
        if need:
            self._reserve.begin(partial(self._get, need))

    def _lacking(self, pieces: Sequence[FileContents]) -> int:
        """Return how many bytes to get, none being reserved any more. Raises: MemoryError."""
        self._reserve.wait()
        need = _need(pieces)
        if need <= (0 if self._memory is None else len(self._memory)):
            return 0
        self._memory = None
        refuse_too_much(need)
        return need

    def _get(self, need: int) -> None:
        memory = hostmemory.fresh(need)
        hostmemory.keep_from_forks(memory)
        _touch(memory)
        self._memory = memory

    def copy(self, pieces: Sequence[FileContents], shelf: Shelf) -> list[Ready]:
        """Return the pieces with contents that no longer change; valid until the next call.

        A piece whose data looks unchanged since the last save, and is by its checksum, is not copied: it will be
        shared with that checkpoint.
        Raises: MemoryError, OSError where there is no memory for it.
        """
        need = self._lacking(pieces)
        if need:
            self._get(need)
        before, shelf.stamps = shelf.stamps, _stamps(pieces)
        # A stamp is a hint only (writes through `.data` leave it as it is): the checksum decides.
        hinted = [piece for piece in pieces if shelf.stamps.get(piece.name, _NEVER) == before.get(piece.name)]
        found = durable.in_parallel([partial(_kept, piece, shelf) for piece in hinted])
        kept = {piece.name: loan for piece, loan in zip(hinted, found, strict=True) if loan is not None}
        contents = [content for piece in pieces if piece.name not in kept for content in _moving(piece)]
        base = memoryview(self._memory) if self._memory is not None else memoryview(b"")
        copies = iter(runs.copy(contents, base))
        staged = []
        for piece in pieces:
            if piece.name in kept:
                staged.append(Ready(piece.name, same=kept[piece.name]))
            else:
                windows = tuple(c.view() if isinstance(c, Fixed) else next(copies) for c in piece.contents)
                staged.append(Ready(piece.name, windows, fresh=piece.name in before))
        return staged


class Beside:
    """Runs one piece of work at a time beside training: getting memory takes ten times as long as to copy into it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Run `work` in the background; a caller asks again afterwards for memory that could not be had."""

        def run() -> None:
            with contextlib.suppress(MemoryError, OSError):
                work()

        self.wait()
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when no work is running any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def refuse_too_much(need_bytes: int) -> None:
    """Raises: MemoryError where the job's limit, or the machine, has no room for a copy of that size."""
    spare = hostmemory.spare_bytes()
    if spare is not None and need_bytes > spare * SPARE_SHARE:
        raise MemoryError(f"a copy takes {need_bytes} bytes, and {spare} are left before this process is killed for it")


def _stamps(pieces: Sequence[FileContents]) -> dict[str, Hashable]:
    return {piece.name: stamp for piece in pieces if (stamp := piece.stamp()) is not None}


def _kept(piece: FileContents, shelf: Shelf) -> Loan | None:
    """Return the file that holds these bytes already."""
    return shelf.lends(durable.checksum(piece.windows()))


def _moving(piece: FileContents) -> list[Content]:
    return [content for content in piece.contents if not isinstance(content, Fixed)]


def _need(pieces: Sequence[FileContents]) -> int:
    return runs.room_bytes([content.size_bytes for piece in pieces for content in _moving(piece)])


def _touch(memory: mmap.mmap) -> None:
    import numpy  # lets other threads run meanwhile

    numpy.frombuffer(memory, dtype=numpy.uint8)[::PAGE_BYTES] = 0
