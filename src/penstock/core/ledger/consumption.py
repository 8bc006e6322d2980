"""Usage by tenant, user, queue, pool, job or node: sessions cut to a span and summed, with the reported use of them.

A pure fold of the log: recomputed, it is the same. Partial devices count as their part. *Used* time is known where
programs report (`activity.py`): the time in which they did not wait for data, and did not hang. Unreported time is
neither used nor idle: `measured` is how much of the held time is known.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from penstock.core.ledger.activity import Activity
from penstock.core.ledger.sessions import Amounts, SessionLog, UsageInterval
from penstock.core.model import events as ev
from penstock.core.model.answers import ModelUsage, UsageRow

Dimension = Literal["tenant", "user", "queue", "pool", "job", "node"]
DIMENSIONS: tuple[Dimension, ...] = ("tenant", "user", "queue", "pool", "job", "node")
SUMS = ("device_milli_ms", "cpu_milli_ms", "memory_byte_ms", "measured_milli_ms", "used_milli_ms")
"""The times of a row: those of its models add up to them."""


class Consumption:
    """Sums over [from_ms, until_ms) for each combination of the dimensions `by`, while records are folded.

    Ended sessions are summed at once, so that the memory needed follows the running jobs, not the length of the log.
    """

    def __init__(self, by: Sequence[Dimension], from_ms: int, until_ms: int) -> None:
        self._by, self._from_ms, self._until_ms = tuple(by), from_ms, until_ms
        self._log = SessionLog()
        self._activity = Activity()
        self._rows: dict[tuple[object, ...], UsageRow] = {}
        self._models: dict[tuple[object, ...], dict[str, ModelUsage]] = {}
        """The models of each row."""
        self._counted: set[tuple[object, ...]] = set()
        """Attempts and jobs already counted in a row."""

    @property
    def seq(self) -> int:
        return self._log.seq

    def take(self, records: Iterable[ev.Record]) -> None:
        """Fold the next records."""
        for record in records:
            for session in self._log.take(record):
                self._sum(session)
            self._activity.take(record)
            if isinstance(record.event, ev.AttemptEnded):
                self._activity.forget((record.event.job_id, record.event.attempt))

    def rows(self) -> list[UsageRow]:
        """Return the sums, in the order of the dimensions. Call it once, at the end."""
        for session in self._log.open.values():
            self._sum(session)
        for key, models in self._models.items():
            self._rows[key].models = [models[name] for name in sorted(models)]
        return [self._rows[key] for key in sorted(self._rows, key=lambda key: tuple(map(sortable, key)))]

    def _sum(self, session: UsageInterval) -> None:
        start_ms = max(session.start_ms, self._from_ms)
        end_ms = min(session.end_ms or self._until_ms, self._until_ms)
        if start_ms > end_ms or start_ms >= self._until_ms:
            return
        names: dict[str, Any] = {n: session.job_id if n == "job" else getattr(session, n) for n in self._by}
        key = tuple(names.values())
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = UsageRow(**names)
            self._models[key] = {}
        self._count(row, key, session)
        used = self._used(session, start_ms, end_ms)
        _add(row, session.amounts, end_ms - start_ms, used)
        for model, amounts in shares(session.amounts):
            part = self._models[key].get(model)
            if part is None:
                part = self._models[key][model] = ModelUsage(model)
            self._count(part, (key, model), session)
            _add(part, amounts, end_ms - start_ms, used)

    def _count(self, row: UsageRow | ModelUsage, key: tuple[object, ...], session: UsageInterval) -> None:
        row.jobs += self._first(key, session.job_id)
        row.attempts += self._first(key, session.job_id, session.attempt)

    def _first(self, *what: object) -> bool:
        if what in self._counted:
            return False
        self._counted.add(what)
        return True

    def _used(self, session: UsageInterval, start_ms: int, end_ms: int) -> tuple[int, int]:
        """Return for how long the use is known, and for how long it was used."""
        measured_ms = idle = 0
        for piece in self._activity.between((session.job_id, session.attempt), start_ms, end_ms):
            length_ms = piece.until_ms - piece.from_ms
            measured_ms += length_ms
            idle += length_ms * piece.idle_milli
        return measured_ms, measured_ms - idle // 1000


def _add(row: UsageRow | ModelUsage, held: Amounts, length_ms: int, used: tuple[int, int]) -> None:
    """Add amounts that were held for a time; `used`: for how long their use is known, and for how long it was used."""
    measured_ms, used_ms = used
    row.device_milli_ms += held.device_milli * length_ms
    row.cpu_milli_ms += held.cpu_milli * length_ms
    row.memory_byte_ms += held.memory_bytes * length_ms
    row.measured_milli_ms += held.device_milli * measured_ms
    row.used_milli_ms += held.device_milli * used_ms


def shares(held: Amounts) -> list[tuple[str, Amounts]]:
    """Return what is held by model of device ('' without devices): CPUs and memory in proportion to the devices."""
    if len(held.models) < 2:
        return [(held.models[0][0] if held.models else "", held)]
    found, whole, before = [], held.device_milli, Amounts()
    for model, milli in held.models:
        upto = before.device_milli + milli  # cut at running sums, so that the parts add up
        after = Amounts(((model, upto),), held.cpu_milli * upto // whole, held.memory_bytes * upto // whole)
        cpu_milli, memory_bytes = after.cpu_milli - before.cpu_milli, after.memory_bytes - before.memory_bytes
        found.append((model, Amounts(((model, milli),), cpu_milli, memory_bytes)))
        before = after
    return found


def sortable(value: object) -> tuple[int, str]:
    """Return the sort key of a dimension's value: jobs by their number, all others by name."""
    return (value, "") if isinstance(value, int) else (0, str(value))
