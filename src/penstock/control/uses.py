"""The measured use of running attempts' devices, and when it is noted in the log.

Volatile, like the pulses of programs (`progress.py`): a new controller begins anew, and what it has not seen is not
known. Nodes report sums since the start of each replica; a note is of their growth since the last one. One follows
every ten minutes, and one at the end.
"""

import msgspec

from penstock.control.report_filter import can_have_used
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.model.events import UseNoted
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Attempt, Job
from penstock.core.model.measured import Measured

NOTE_EVERY_MS = 600_000
COVERED_LEAST_MS = 60_000
"""Shorter measurements are not worth a record."""


class _Window(msgspec.Struct):
    """What was measured of one attempt since its last note; times are monotonic ms."""

    attempt: AttemptNumber
    since_ms: int
    begin: dict[Rank, Measured] = {}
    """The sums of each rank when it began."""
    now: dict[Rank, Measured] = {}

    def grown(self, name: str) -> int:
        """Return by how much a sum of all ranks has grown."""
        return sum(
            max(0, (getattr(now, name) or 0) - (getattr(self.begin[rank], name) or 0)) for rank, now in self.now.items()
        )


class Uses:
    """The measured use of each running attempt."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, _Window] = {}

    def note(self, tx: Transaction, report: NodeReport, now_ms: int) -> None:
        """Take in what a node reports, as far as it can be true; of attempts that end, emit what was measured last.

        Args:
            now_ms: monotonic ms.
        """
        for use in report.figures.replicas if report.figures is not None else ():
            if use.measured is not None and can_have_used(tx.state, report.node, use.key, use.measured, tx.now_ms):
                self._take(use.key, use.measured, now_ms)
        for seen in report.replicas:
            if seen.exit is None:
                continue
            window = self._by_job.get(seen.key.job_id)
            if window is None or window.attempt != seen.key.attempt or seen.key.rank not in window.begin:
                continue
            if seen.exit.measured is not None:
                self._take(seen.key, seen.exit.measured, now_ms)
            job = tx.state.jobs.get(seen.key.job_id)
            if job is not None and job.attempt is not None and job.attempt.number == window.attempt:
                self._emit(tx, job, job.attempt, window, now_ms)
            del self._by_job[seen.key.job_id]

    def _take(self, key: ReplicaKey, told: Measured, now_ms: int) -> None:
        window = self._by_job.get(key.job_id)
        if window is None or window.attempt != key.attempt:
            window = self._by_job[key.job_id] = _Window(key.attempt, now_ms)
        window.begin.setdefault(key.rank, told)
        window.now[key.rank] = told

    def tell(self, tx: Transaction, now_ms: int) -> None:
        """Emit the use of attempts where an event is due."""
        for job_id, window in list(self._by_job.items()):
            job = tx.state.jobs.get(job_id)
            attempt = job.attempt if job is not None else None
            if job is None or attempt is None or attempt.number != window.attempt:
                del self._by_job[job_id]
            elif now_ms - window.since_ms >= NOTE_EVERY_MS:
                self._emit(tx, job, attempt, window, now_ms)
                self._by_job[job_id] = _Window(window.attempt, now_ms, dict(window.now), dict(window.now))

    def _emit(self, tx: Transaction, job: Job, attempt: Attempt, window: _Window, now_ms: int) -> None:
        held_milli, measured_ms = job.placed.device_milli, window.grown("measured_ms")
        if not held_milli or not measured_ms:
            return
        covered_ms = min(measured_ms * 1000 // held_milli, now_ms - window.since_ms)
        if covered_ms < COVERED_LEAST_MS:
            return
        busy_milli = min(1000, window.grown("busy_ms") * 1000 // measured_ms)
        untouched = 0
        for rank, measured in window.now.items():
            if measured.devices_touched is not None:
                untouched += max(0, len(attempt.replicas[rank].place.devices) - measured.devices_touched)
        tx.emit(UseNoted(job.id, attempt.number, covered_ms, busy_milli, untouched))
