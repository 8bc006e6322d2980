"""Follows the log for what looks back: the allocations of timelines, and how the cluster and each tenant stood.

One fold for all readers: a request reads what was folded, and folds at most a little of what has come since. The whole
is kept in the store now and then, so that a start reads the tail of the log alone. What the log does not say, why jobs
wait and how long the server takes, is looked at now and then; a start forgets it.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from penstock.control.metrics import Series
from penstock.core.ledger.allocations import Allocation, AllocationImage, AllocationLog
from penstock.core.ledger.levels import CLUSTER, Key, LevelImage, Levels
from penstock.core.ledger.rings import Points, RingImage, Rings, summed
from penstock.core.ledger.timeline import PastAllocations, PastImage
from penstock.core.model.errors import StoreError
from penstock.core.model.events import Record
from penstock.core.model.ids import JobId
from penstock.core.predict.outcomes import OutcomeImage, StartOutcome, StartOutcomes
from penstock.ports import ProjectionStore
from penstock.server.backend import Backend
from penstock.server.services.periodic import repeat
from penstock.server.views.jobs import waiting_reason

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
LOOK_SHARE = 10
LOOK_S = 0.25
"""A look at a long log ends after this long: together with the pause after it, a tenth of a processor."""
BATCH = 1_000
REQUEST_RECORDS = 5_000
"""Records that one request may fold: it answers with what it has then."""
KEEP_EVERY_RECORDS = 100_000
NAME = "history"
SAMPLE_MS = 10_000
SAMPLE_SHARE = 100
"""The next sample comes this many times as long after as the last one took, at least."""
WAITING_BY_REASON = "waiting_by_reason"
MEASURED = ("control_cycle_s", "submit_s")
"""Figures of `MemoryMetrics` whose course is kept."""


class HistoryImage(msgspec.Struct, frozen=True):
    """The whole history, at the record that `log` has folded last."""

    log: AllocationImage
    past: PastImage
    levels: LevelImage
    rings: RingImage
    outcomes: OutcomeImage


class Span(NamedTuple):
    """What overlaps a window of time, as of one record."""

    source: Callable[[], Iterator[Allocation]]
    seq: int
    complete: bool
    """Whether that is the newest record on disk."""
    since_ms: int
    """Allocations that ended before may be missing (unix ms)."""


class Asked(NamedTuple):
    """A series: a level or a count of several holders together, or measured values; as `rings.grid` has laid it."""

    keys: tuple[Key, ...]
    """Added up; of measured values their sum and their number."""
    kind: Literal["level", "count", "measured"]
    sampled: bool
    """Not from the log."""


class Grid(NamedTuple):
    from_ms: int
    step_ms: int
    points: int
    now_ms: int


class Course(NamedTuple):
    """Series, in the order asked for, as of one record."""

    series: list[Points]
    seq: int
    complete: bool
    since_ms: int


class HistoryService:
    """One for each server; reads from any thread."""

    def __init__(self, backend: Backend, store: ProjectionStore) -> None:
        self._backend, self._store = backend, store
        self._lock = threading.Lock()
        self._levels: Levels | None = None
        self._past, self._rings, self._samples = PastAllocations(), Rings(), Rings()
        self._outcomes = StartOutcomes()
        self._sample_at_ms = 0
        self._seen: dict[str, tuple[int, float]] = {}
        """Count and sum of measured values at the last sample."""
        self._kept_seq = 0

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "the history", LOOK_EVERY_S, LOOK_SHARE)

    async def look(self) -> None:
        """Fold what has come, for a moment."""
        await asyncio.to_thread(self.catch_up)

    def catch_up(self) -> None:
        """Fold what has come, for a moment, and look at what the log does not say. For a thread."""
        begun = time.monotonic()
        while self._follow(BATCH) == BATCH and time.monotonic() < begun + LOOK_S:
            pass
        self._sample()
        self._save()

    def allocations(self, from_ms: int, until_ms: int) -> Span:
        """Return all allocations that overlap [from_ms, until_ms). For a thread."""
        wanted = self._backend.durable_seq
        self._follow(REQUEST_RECORDS)
        with self._lock:
            log = self._folded().log
            source = self._past.between(from_ms, until_ms, log.open())
            return Span(source, log.seq, log.seq >= wanted, self._past.since_ms)

    def start_outcome(self, job_id: JobId) -> StartOutcome | None:
        """Return what was estimated of a job's present or last start; None: nothing, or it is long ago."""
        self._follow(BATCH)
        with self._lock:
            return self._outcomes.of(job_id)

    def keys(self) -> list[Key]:
        """Return all levels and counts that there are, sampled ones, too."""
        self._follow(REQUEST_RECORDS)
        with self._lock:
            return [*self._rings.keys, *self._samples.keys]

    def course(self, asked: Sequence[Asked], grid: Grid) -> Course:
        """Return series. For a thread."""
        wanted = self._backend.durable_seq
        self._follow(REQUEST_RECORDS)
        found = []
        for one in asked:
            with self._lock:  # for each: the fold goes on in between
                found.append(_course(self._samples if one.sampled else self._rings, one, grid))
        with self._lock:
            seq, since_ms = self._folded().log.seq, self._rings.since_ms(grid.step_ms, grid.now_ms)
            return Course(found, seq, seq >= wanted, since_ms)

    def _folded(self) -> Levels:
        if self._levels is None:
            self._load()
        assert self._levels is not None, "it was loaded"
        return self._levels

    def _follow(self, most: int) -> int:
        """Fold up to `most` further records, and return how many came."""
        folded = 0
        while folded < most:
            with self._lock:
                levels = self._folded()
                records = self._backend.log.records(levels.log.seq, BATCH)
                now_ms = self._backend.clock.unix_ms()
                for record in records:
                    self._take(levels, record, now_ms)
            folded += len(records)
            if len(records) < BATCH:
                break
        return folded

    def _take(self, levels: Levels, record: Record, now_ms: int) -> None:
        self._past.add(levels.take(record))
        self._outcomes.take(record)
        at_ms = levels.log.time_ms
        for key in levels.changed:
            self._rings.level(key, levels.values[key], at_ms, max(at_ms, now_ms))
        for key in levels.counts:
            self._rings.count(key, at_ms, max(at_ms, now_ms))

    def _sample(self) -> None:
        """Look at why jobs wait and at the server's own figures, so seldom that it costs next to nothing."""
        now_ms = self._backend.clock.unix_ms()
        if now_ms < self._sample_at_ms:
            return
        begun = time.monotonic()
        reasons = self._reasons(now_ms)
        with self._lock:
            for key in {*self._samples.keys, *reasons}:
                if key.name == WAITING_BY_REASON:
                    self._samples.level(key, reasons[key], now_ms, now_ms)
            for series in self._backend.metrics.series():
                if series.name in MEASURED:
                    self._measure(series, now_ms)
        self._sample_at_ms = now_ms + max(SAMPLE_MS, round(SAMPLE_SHARE * 1000 * (time.monotonic() - begun)))

    def _reasons(self, now_ms: int) -> Counter[Key]:
        """Return how many jobs of each tenant, and of all, wait for each reason."""
        controller, found, after = self._backend.service.controller, Counter[Key](), 0
        last, shadow = controller.last_plan, controller.shadow
        while jobs := self._backend.state.jobs.page(after, BATCH, None, ["waiting"]):
            after = jobs[-1].id
            for job in jobs:
                reason = waiting_reason(job, last, now_ms, shadow=shadow)
                found[Key(job.spec.tenant, WAITING_BY_REASON, reason)] += 1
                found[Key(CLUSTER, WAITING_BY_REASON, reason)] += 1
        return found

    def _measure(self, series: Series, now_ms: int) -> None:
        count, total = self._seen.get(series.name, (0, 0.0))
        self._seen[series.name] = series.count, series.sum
        if series.count > count:
            self._samples.count(Key(CLUSTER, series.name, "sum"), now_ms, now_ms, series.sum - total)
            self._samples.count(Key(CLUSTER, series.name, "count"), now_ms, now_ms, series.count - count)

    def _load(self) -> None:
        kept = self._store.projection(NAME)
        image = None
        if kept is not None:
            try:
                image = msgspec.msgpack.decode(kept[1], type=HistoryImage)
            except msgspec.DecodeError as error:  # of another version: it is worked out anew
                log.warning("the history is folded again", extra={"error": str(error)})
        self._levels = Levels(AllocationLog(image.log if image else None), image.levels if image else None)
        self._past, self._rings = PastAllocations(image.past if image else None), Rings(image.rings if image else None)
        self._outcomes = StartOutcomes(image.outcomes if image else None)
        self._kept_seq = self._levels.log.seq

    def _save(self) -> None:
        with self._lock:
            levels = self._folded()
            if levels.log.seq < self._kept_seq + KEEP_EVERY_RECORDS:
                return
            seq = self._kept_seq = levels.log.seq
            image = HistoryImage(
                levels.log.image(), self._past.image(), levels.image(), self._rings.image(), self._outcomes.image()
            )
            body = msgspec.msgpack.encode(image)
        try:
            self._store.save_projection(NAME, seq, body)
        except StoreError as error:  # it only costs time at the next start
            log.warning("the history is not kept: %s", error.message)


def _course(rings: Rings, one: Asked, grid: Grid) -> Points:
    if one.kind == "level":
        several = [rings.levels(key, *grid) for key in one.keys]
        if len(several) == 1:
            return several[0]  # the lowest of a sum is not the sum of the lowest
        return Points(summed([each.values for each in several]), [], [])
    counts = [rings.counts(key, *grid) for key in one.keys]
    if one.kind == "count":
        return Points(summed(counts), [], [])
    total, number = counts
    return Points([a / n if a is not None and n else None for a, n in zip(total, number, strict=True)], [], [])
