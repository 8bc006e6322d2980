"""Usage up to now, folded on from one question to the next, so that a page that is opened again costs what is new."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from penstock.core.ledger.consumption import Consumption, Dimension
from penstock.core.model.answers import UsageRow
from penstock.core.model.ids import JobId
from penstock.server.backend import Backend
from penstock.server.services.held import HeldLog

BATCH = 10_000
FOLDS_MAX = 4
SIZE_MAX = 20_000
"""Rows and live jobs of a fold that is kept: one with more is worked out anew each time."""


class _Fold:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sums: Consumption | None = None


class ConsumedSince:
    """The folds of the latest questions; for any thread. Rows of all tenants: callers show those that may be seen."""

    def __init__(self, backend: Backend, held: HeldLog) -> None:
        self._backend, self._held = backend, held
        self._lock = threading.Lock()
        self._folds: OrderedDict[tuple[tuple[Dimension, ...], int], _Fold] = OrderedDict()

    def rows(self, by: Sequence[Dimension], from_ms: int) -> list[UsageRow]:
        """Return the sums from `from_ms` (unix ms) until now, as `Consumption.rows` does."""
        key = tuple(by), from_ms
        with self._lock:
            fold = self._folds.setdefault(key, _Fold())
            self._folds.move_to_end(key)
            if len(self._folds) > FOLDS_MAX:
                self._folds.popitem(last=False)
        with fold.lock:
            found = fold.sums = fold.sums or self._begun(by, from_ms)
            while records := self._backend.log.records(found.seq, BATCH):
                found.take(records)
            rows = found.rows(max(self._backend.clock.unix_ms(), found.time_ms))
        if found.size > SIZE_MAX:
            with self._lock:
                self._folds.pop(key, None)
        return rows

    def of_job(self, by: Sequence[Dimension], from_ms: int, job_id: JobId) -> list[UsageRow]:
        """Return the sums of one job."""
        image = self._held.image(from_ms, job_id)
        if image is None:  # it may have begun long ago
            return [row for row in self.rows(by, from_ms) if row.job == job_id]
        return Consumption.of_ended(by, from_ms, *image).rows(self._backend.clock.unix_ms())

    def _begun(self, by: Sequence[Dimension], from_ms: int) -> Consumption:
        image = self._held.image(from_ms)
        return Consumption(by, from_ms) if image is None else Consumption.of_ended(by, from_ms, *image)
