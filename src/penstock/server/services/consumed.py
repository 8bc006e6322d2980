"""Usage up to now, folded on from one question to the next, so that a page that is opened again costs what is new."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from penstock.core.ledger.consumption import Consumption, Dimension
from penstock.core.model.answers import UsageRow
from penstock.server.backend import Backend

BATCH = 10_000
FOLDS_MAX = 4
SIZE_MAX = 20_000
"""Rows and live jobs of a fold that is kept: one with more is worked out anew each time."""


class ConsumedSince:
    """The folds of the latest questions; for any thread. Rows of all tenants: callers show those that may be seen."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._folds: OrderedDict[tuple[tuple[Dimension, ...], int], tuple[threading.Lock, Consumption]] = OrderedDict()

    def rows(self, by: Sequence[Dimension], from_ms: int) -> list[UsageRow]:
        """Return the sums from `from_ms` (unix ms) until now, as `Consumption.rows` does."""
        key = tuple(by), from_ms
        with self._lock:
            lock, found = self._folds.setdefault(key, (threading.Lock(), Consumption(by, from_ms)))
            self._folds.move_to_end(key)
            if len(self._folds) > FOLDS_MAX:
                self._folds.popitem(last=False)
        with lock:
            while records := self._backend.log.records(found.seq, BATCH):
                found.take(records)
            rows = found.rows(max(self._backend.clock.unix_ms(), found.time_ms))
        if found.size > SIZE_MAX:
            with self._lock:
                self._folds.pop(key, None)
        return rows
