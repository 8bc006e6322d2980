"""What was held and how it was used, up to now: one fold of the log for all questions that look back.

Each question folds what has come since the last one. Sessions of the last three months are kept in memory, or of a
shorter time where they are many; a question about an earlier time folds the whole log.
"""

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.control.calendar import ZoneDates
from penstock.core.ledger.activity import Activity, AttemptKey
from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.sessions import LogImage, UsageInterval
from penstock.core.ledger.settlement import BilledUse
from penstock.core.model.ids import JobId, TenantName
from penstock.core.model.prices import Billing
from penstock.server.backend import Backend

BATCH = 10_000
DAY_MS = 86_400_000
KEPT_MS, KEPT_LEAST_MS = 92 * DAY_MS, DAY_MS
SESSIONS_MAX = 250_000
"""Ended sessions in memory, about half a kilobyte each; those of the month that bills still need are kept, too."""


class Held(NamedTuple):
    """The use of some tenants, and the activity of its attempts, as of one record; the caller's own."""

    uses: dict[TenantName, BilledUse]
    activity: Activity


class HeldImage(NamedTuple):
    """All that ended since a time, and what a fold needs to go on from there; the caller's own."""

    log: LogImage
    ended: list[UsageInterval]
    activity: Activity


class HeldLog:
    """One for each server; for any thread. Of all tenants: callers show what may be seen."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._fold: _Fold | None = None
        self._kept_ms = KEPT_MS

    def since(self, from_ms: int, wanted: Callable[[TenantName], bool]) -> Held:
        """Return the use of the wanted tenants that counts for bills from `from_ms` (unix ms) on."""
        with self._lock:
            fold = self._folded(from_ms)
            uses = {TenantName(name): fold.books.held(name) for name in fold.books.tenants() if wanted(name)}
            return Held(uses, fold.activity.of(_attempts(s for use in uses.values() for s in use.sessions)))

    def image(self, from_ms: int, job_id: JobId | None = None) -> HeldImage | None:
        """Return all use that ended since `from_ms` (unix ms), or that of one job; None: it is not all in memory."""
        with self._lock:
            fold = self._kept()
            if from_ms < fold.from_ms:
                return None
            log = fold.books.log.image(job_id)
            ended = [s for s in fold.books.all_ended() if s.end_ms >= from_ms and job_id in (None, s.job_id)]
            return HeldImage(log, ended, fold.activity.of(_attempts([*ended, *log.open])))

    def _folded(self, from_ms: int) -> "_Fold":
        """Return a fold up to the newest record on disk that has all use since `from_ms`."""
        kept = self._kept()
        return kept if from_ms >= kept.from_ms else self._read(_Fold(kept.billing), lambda _: from_ms)

    def _kept(self) -> "_Fold":
        billing, now_ms = self._backend.state.config.billing, self._backend.clock.unix_ms()
        if self._fold is None or self._fold.billing is not billing:
            self._fold = _Fold(billing)
        return self._read(self._fold, lambda sessions: self._reach(sessions, now_ms))

    def _reach(self, sessions: int, now_ms: int) -> int:
        """Return since when sessions are kept: the more there are, the later."""
        if sessions > SESSIONS_MAX:
            self._kept_ms = max(KEPT_LEAST_MS, self._kept_ms * SESSIONS_MAX // sessions)
        return now_ms - self._kept_ms

    def _read(self, fold: "_Fold", reach: Callable[[int], int]) -> "_Fold":
        while records := self._backend.log.records(fold.books.log.seq, BATCH):
            fold.books.take(records)
            for record in records:
                fold.activity.take(record)
            if fold.books.ended > 2 * fold.kept + BATCH:  # so that looking through them costs no more than folding them
                fold.forget(reach(fold.books.ended))
        return fold


class _Fold:
    """Sessions since a time, with what is priced by it."""

    def __init__(self, billing: Billing) -> None:
        self.billing = billing
        self.books, self.activity = UsageLog(), Activity()
        self.from_ms = 0
        """Use before may be missing (unix ms)."""
        self.kept = 0
        """Sessions that were left after the last look."""

    def forget(self, before_ms: int) -> None:
        """Drop use that cannot count from `before_ms` on."""
        dates, kept, before = ZoneDates(self.billing.time_zone), set[AttemptKey](), self.books.ended
        for name in self.books.tenants():
            month_ms = dates.month(self.books.reach_ms(TenantName(name), before_ms))
            self.books.drop(TenantName(name), month_ms, self.billing.tariff.minimum_max_ms)
            kept |= _attempts(self.books.held(name).sessions)
        self.activity.keep(kept)
        self.kept = self.books.ended
        if self.kept < before:
            self.from_ms = max(self.from_ms, before_ms)


def _attempts(sessions: Iterable[UsageInterval]) -> set[AttemptKey]:
    return {(session.job_id, session.attempt) for session in sessions}
