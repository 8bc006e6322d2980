"""Follows the log for what looks back: the allocations of timelines.

One fold for all readers: a request reads what was folded, and folds at most a little of what has come since. The whole
is kept in the store now and then, so that a start reads the tail of the log alone.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from penstock.core.ledger.allocations import Allocation, AllocationImage, AllocationLog
from penstock.core.ledger.timeline import PastAllocations, PastImage
from penstock.core.model.errors import StoreError
from penstock.ports import ProjectionStore
from penstock.server.backend import Backend
from penstock.server.services.periodic import repeat

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
LOOK_SHARE = 10
LOOK_S = 0.25
"""A look at a long log ends after this long: together with the pause after it, a tenth of a processor."""
BATCH = 1_000
REQUEST_RECORDS = 20_000
"""Records that one request may fold: it answers with what it has then."""
KEEP_EVERY_RECORDS = 100_000
NAME = "history"


class HistoryImage(msgspec.Struct, frozen=True):
    """The whole history, at the record that `log` has folded last."""

    log: AllocationImage
    past: PastImage


class Span(NamedTuple):
    """What overlaps a window of time, as of one record."""

    source: Callable[[], Iterator[Allocation]]
    seq: int
    complete: bool
    """Whether that is the newest record on disk."""
    since_ms: int
    """Allocations that ended before may be missing (unix ms)."""


class HistoryService:
    """One for each server; reads from any thread."""

    def __init__(self, backend: Backend, store: ProjectionStore) -> None:
        self._backend, self._store = backend, store
        self._lock = threading.Lock()
        self._log: AllocationLog | None = None
        self._past = PastAllocations()
        self._kept_seq = 0

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "the history", LOOK_EVERY_S, LOOK_SHARE)

    async def look(self) -> None:
        """Fold what has come, for a moment."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        begun = time.monotonic()
        while self._follow(BATCH) == BATCH and time.monotonic() < begun + LOOK_S:
            pass
        self._save()

    def allocations(self, from_ms: int, until_ms: int) -> Span:
        """Return all allocations that overlap [from_ms, until_ms). For a thread."""
        wanted = self._backend.durable_seq
        self._follow(REQUEST_RECORDS)
        with self._lock:
            assert self._log is not None, "it was followed"
            source = self._past.between(from_ms, until_ms, self._log.open())
            return Span(source, self._log.seq, self._log.seq >= wanted, self._past.since_ms)

    def _follow(self, most: int) -> int:
        """Fold up to `most` further records, and return how many came."""
        folded = 0
        while folded < most:
            with self._lock:
                if self._log is None:
                    self._load()
                assert self._log is not None
                records = self._backend.log.records(self._log.seq, BATCH)
                for record in records:
                    self._past.add(self._log.take(record))
            folded += len(records)
            if len(records) < BATCH:
                break
        return folded

    def _load(self) -> None:
        kept = self._store.projection(NAME)
        image = None
        if kept is not None:
            try:
                image = msgspec.msgpack.decode(kept[1], type=HistoryImage)
            except msgspec.DecodeError as error:  # of another version: it is worked out anew
                log.warning("the history is folded again", extra={"error": str(error)})
        self._log = AllocationLog(image.log if image else None)
        self._past = PastAllocations(image.past if image else None)
        self._kept_seq = self._log.seq

    def _save(self) -> None:
        with self._lock:
            if self._log is None or self._log.seq < self._kept_seq + KEEP_EVERY_RECORDS:
                return
            seq = self._kept_seq = self._log.seq
            body = msgspec.msgpack.encode(HistoryImage(self._log.image(), self._past.image()))
        try:
            self._store.save_projection(NAME, seq, body)
        except StoreError as error:  # it only costs time at the next start
            log.warning("the history is not kept: %s", error.message)
