"""Usage by tenant, user, queue, pool, job or node: sessions cut to a span and summed, with the reported use of them.

A pure fold of the log: recomputed, it is the same. Partial devices count as their part. *Used* time is known where
programs report (`activity.py`): the time in which they did not wait for data, and did not hang. Unreported time is
neither used nor idle: `measured` is how much of the held time is known. Energy is known once a replica has ended; a
span gets its part by time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from penstock.core.ledger.activity import Activity
from penstock.core.ledger.sessions import Amounts, LogImage, SessionLog, UsageInterval
from penstock.core.model import events as ev
from penstock.core.model.answers import ModelUsage, UsageRow
from penstock.core.model.ids import JobId

Dimension = Literal["tenant", "user", "queue", "pool", "job", "node"]
DIMENSIONS: tuple[Dimension, ...] = ("tenant", "user", "queue", "pool", "job", "node")
SUMS = (
    "device_milli_ms", "cpu_milli_ms", "memory_byte_ms", "measured_milli_ms", "used_milli_ms", "energy_mj",
    "powered_milli_ms",
)  # fmt: skip
"""The times of a row: those of its models add up to them."""
FOREVER_MS = 2**62


class _Sums:
    """Rows of sums, and which jobs and attempts each of them has counted."""

    def __init__(self, by: Sequence[Dimension]) -> None:
        self.by = tuple(by)
        self.rows: dict[tuple[object, ...], UsageRow] = {}
        self.models: dict[tuple[object, ...], dict[str, ModelUsage]] = {}
        """The models of each row."""
        self.counted: dict[JobId, set[tuple[object, ...]]] = {}
        """What has counted a job that has not ended, or an attempt of it."""
        self.former: Mapping[JobId, set[tuple[object, ...]]] = {}
        """The same of the sums that these go on from."""

    def copy(self) -> "_Sums":
        """Return the same, to add to: what is added to it is not in these."""
        made = _Sums(self.by)
        made.rows = {key: replace(row) for key, row in self.rows.items()}
        made.models = {key: {name: replace(one) for name, one in held.items()} for key, held in self.models.items()}
        made.former = self.counted
        return made

    def add(self, session: UsageInterval, length_ms: int, used: tuple[int, int], energy: tuple[int, int]) -> None:
        """Add a session that was held for a time; `used` and `energy` as in `_add`."""
        names: dict[str, Any] = {n: session.job_id if n == "job" else getattr(session, n) for n in self.by}
        key = tuple(names.values())
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = UsageRow(**names)
            self.models[key] = {}
        self._count(row, key, session)
        _add(row, session.amounts, length_ms, used, energy)
        upto_milli, whole_milli = 0, session.amounts.device_milli
        for model, amounts in shares(session.amounts):
            from_milli, upto_milli = upto_milli, upto_milli + amounts.device_milli
            part = self.models[key].get(model)
            if part is None:
                part = self.models[key][model] = ModelUsage(model)
            self._count(part, (key, model), session)
            parts = tuple(between(one, from_milli, upto_milli, whole_milli) for one in energy)
            _add(part, amounts, length_ms, used, (parts[0], parts[1]))

    def _count(self, row: UsageRow | ModelUsage, key: tuple[object, ...], session: UsageInterval) -> None:
        row.jobs += self._first(session.job_id, (key,))
        row.attempts += self._first(session.job_id, (key, session.attempt))

    def _first(self, job_id: JobId, what: tuple[object, ...]) -> bool:
        if what in self.former.get(job_id, ()):
            return False
        counted = self.counted.setdefault(job_id, set())
        if what in counted:
            return False
        counted.add(what)
        return True


class Consumption:
    """Sums over [from_ms, until_ms) for each combination of the dimensions `by`, while records are folded.

    Ended sessions are summed at once, so that the memory needed follows the live jobs, not the length of the log.

    Args:
        until_ms: by default there is no end; `rows` says up to when it counts then.
    """

    def __init__(self, by: Sequence[Dimension], from_ms: int, until_ms: int = FOREVER_MS) -> None:
        self._from_ms, self._until_ms = from_ms, until_ms
        self._log = SessionLog()
        self._activity = Activity()
        self._sums = _Sums(by)

    @classmethod
    def of_ended(
        cls,
        by: Sequence[Dimension],
        from_ms: int,
        log: LogImage,
        ended: Iterable[UsageInterval],
        activity: Activity,
    ) -> "Consumption":
        """Return the sums that folding all records up to that of `log` gives, without reading them again.

        Args:
            ended: all sessions that ended since `from_ms`.
            activity: of these and of the open sessions; the returned object keeps and updates it.
        """
        found = cls(by, from_ms)
        found._log, found._activity = SessionLog(log), activity
        for session in ended:
            found._sum(found._sums, session, found._until_ms)
        live = {known.id for known in log.jobs}
        found._sums.counted = {job_id: what for job_id, what in found._sums.counted.items() if job_id in live}
        activity.keep({(session.job_id, session.attempt) for session in log.open})
        return found

    @property
    def seq(self) -> int:
        return self._log.seq

    @property
    def time_ms(self) -> int:
        """Time of the newest record (unix ms)."""
        return self._log.time_ms

    @property
    def size(self) -> int:
        """How many rows and live jobs it keeps in memory."""
        return len(self._sums.rows) + len(self._sums.counted)

    def take(self, records: Iterable[ev.Record]) -> None:
        """Fold the next records."""
        for record in records:
            for session in self._log.take(record):
                self._sum(self._sums, session, self._until_ms)
            self._activity.take(record)
            if isinstance(record.event, ev.AttemptEnded):
                self._activity.forget((record.event.job_id, record.event.attempt))
            elif isinstance(record.event, ev.JobFinished):
                self._sums.counted.pop(record.event.job_id, None)  # it holds nothing any more

    def rows(self, until_ms: int = 0) -> list[UsageRow]:
        """Return the sums, in the order of the dimensions; more records may be folded after.

        Args:
            until_ms: where there is no other end, what is held still counts up to this time.
        """
        sums = self._sums.copy()
        for session in self._log.open.values():
            self._sum(sums, session, until_ms or self._until_ms)
        for key, models in sums.models.items():
            sums.rows[key].models = [models[name] for name in sorted(models)]
        return [sums.rows[key] for key in sorted(sums.rows, key=lambda key: tuple(map(sortable, key)))]

    def _sum(self, sums: _Sums, session: UsageInterval, until_ms: int) -> None:
        start_ms = max(session.start_ms, self._from_ms)
        end_ms = min(session.end_ms or until_ms, until_ms)
        if start_ms <= end_ms and start_ms < until_ms:
            energy = tuple(
                between(one, start_ms - session.start_ms, end_ms - session.start_ms, session.length_ms(end_ms))
                for one in (session.energy_mj, session.powered_ms)
            )
            used = self._used(session, start_ms, end_ms)
            sums.add(session, end_ms - start_ms, used, (energy[0], energy[1]))

    def _used(self, session: UsageInterval, start_ms: int, end_ms: int) -> tuple[int, int]:
        """Return for how long the use is known, and for how long it was used."""
        measured_ms = idle = 0
        for piece in self._activity.between((session.job_id, session.attempt), start_ms, end_ms):
            length_ms = piece.until_ms - piece.from_ms
            measured_ms += length_ms
            idle += length_ms * piece.idle_milli
        return measured_ms, measured_ms - idle // 1000


def between(amount: int, start: int, end: int, whole: int) -> int:
    """Return the part [start, end) of an amount that is spread evenly over `whole`: adjacent parts add up exactly."""
    return amount * end // whole - amount * start // whole if whole else amount


def _add(
    row: UsageRow | ModelUsage, held: Amounts, length_ms: int, used: tuple[int, int], energy: tuple[int, int]
) -> None:
    """Add amounts that were held for a time.

    Args:
        used: for how long their use is known, and for how long it was used.
        energy: of their devices (mJ), and the device time over which it was measured.
    """
    measured_ms, used_ms = used
    row.device_milli_ms += held.device_milli * length_ms
    row.cpu_milli_ms += held.cpu_milli * length_ms
    row.memory_byte_ms += held.memory_bytes * length_ms
    row.measured_milli_ms += held.device_milli * measured_ms
    row.used_milli_ms += held.device_milli * used_ms
    row.energy_mj += energy[0]
    row.powered_milli_ms += 1000 * energy[1]


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
