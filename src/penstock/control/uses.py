"""The measured use of running attempts' devices, and when it is noted in the log.

Volatile, like the pulses of programs (`progress.py`): a new controller begins anew, and what it has not seen is not
known. Nodes report sums since the start of each replica; a note is of their growth since the last one. One follows
every ten minutes, and one at the end. Of jobs that may share their devices one follows every window of their pool, and
while they share one, as soon as it can be judged and whenever it has changed: what is decided about pairs is decided by
what the log says.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.control.report_filter import can_have_used
from penstock.core.lifecycle.sharing import share_devices
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.model.events import UseNoted
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Attempt, Job
from penstock.core.model.measured import Measured
from penstock.core.model.pairing import SharingSettings
from penstock.core.share.live import partner
from penstock.core.state.state import State

NOTE_EVERY_MS = 600_000
COVERED_LEAST_MS = 60_000
"""Shorter measurements are not worth a record."""
TOGETHER_MS = 10_000
"""Two jobs on one device are looked at this often; a note follows when one of them has changed."""
DECIDE_EVERY_MS = 2_000
"""How often it is decided which jobs share a device."""
WINDOW_LEAST_MS = 5_000
CHANGED_MILLI = 100
"""Times of steps, and use, that have changed by more than this are worth a note."""


class _Sight(NamedTuple):
    """A step that the program had reached, and when that was seen (monotonic ms)."""

    step: int
    at_ms: int


class _Window(msgspec.Struct):
    """What was measured of one attempt since its last note; times are monotonic ms."""

    attempt: AttemptNumber
    since_ms: int
    begin: dict[Rank, Measured] = {}
    """The sums of each rank when it began."""
    now: dict[Rank, Measured] = {}
    beside: tuple[JobId, AttemptNumber] | None = None
    """The attempt that runs on the same device."""
    first: _Sight | None = None
    """The first change of the step in this window, and the last."""
    last: _Sight | None = None
    reached: int | None = None
    """The step as last seen."""
    device_memory_bytes: int = 0
    """The most in use on its devices while they were its own, where no processes are shown."""
    said: UseNoted | None = None
    """The last note about this attempt beside the same other one."""

    def sees(self, step: int | None, now_ms: int) -> None:
        """Take in the step that the program has reached."""
        if step is None or step == self.reached:
            return
        if self.reached is not None:
            self.last = _Sight(step, now_ms)
            if self.first is None or step < self.first.step:  # a fold or a phase counts from 0 again
                self.first = self.last
        self.reached = step

    @property
    def steps(self) -> int:
        """Steps of which the time is known."""
        return self.last.step - self.first.step if self.first is not None and self.last is not None else 0

    @property
    def step_us(self) -> int:
        """How long a step takes, on average; 0 where that is not known."""
        if self.first is None or self.last is None or not self.steps:
            return 0
        return (self.last.at_ms - self.first.at_ms) * 1000 // self.steps

    @property
    def peak_bytes(self) -> int:
        """The most device memory that its programs have held, as far as known."""
        return sum(one.device_memory_peak_bytes or 0 for one in self.now.values()) or self.device_memory_bytes

    def grown(self, name: str) -> int:
        """Return by how much a sum of all ranks has grown."""
        return sum(
            max(0, (getattr(now, name) or 0) - (getattr(self.begin[rank], name) or 0)) for rank, now in self.now.items()
        )


class Uses:
    """The measured use of each running attempt."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, _Window] = {}
        self._decided_ms: int | None = None

    def note(self, tx: Transaction, report: NodeReport, now_ms: int) -> None:
        """Take in what a node reports, as far as it can be true; of attempts that end, emit what was measured last.

        Args:
            now_ms: monotonic ms.
        """
        for use in report.figures.replicas if report.figures is not None else ():
            if use.measured is not None and can_have_used(tx.state, report.node, use.key, use.measured, tx.now_ms):
                self._take(use.key, use.measured, now_ms)
                self._take_memory(tx.state, report, use.key)
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
                self._emit(tx, job, job.attempt, window, now_ms, COVERED_LEAST_MS)
            del self._by_job[seen.key.job_id]

    def _take(self, key: ReplicaKey, told: Measured, now_ms: int) -> None:
        window = self._by_job.get(key.job_id)
        if window is None or window.attempt != key.attempt:
            window = self._by_job[key.job_id] = _Window(key.attempt, now_ms)
        window.begin.setdefault(key.rank, told)
        window.now[key.rank] = told

    def _take_memory(self, state: State, report: NodeReport, key: ReplicaKey) -> None:
        """Note what is in use on the devices of a replica that has them for itself."""
        job, window = state.jobs.get(key.job_id), self._by_job[key.job_id]
        wanted = job.placed.each_of(key.rank).devices if job is not None and job.spec.shareable else None
        if job is None or job.attempt is None or wanted is None or not wanted.whole or report.figures is None:
            return
        held = job.attempt.replicas[key.rank].place.devices
        used = [one.memory_used_bytes or 0 for one in report.figures.devices if one.index in held]
        window.device_memory_bytes = max(window.device_memory_bytes, sum(used))

    def tell(self, tx: Transaction, now_ms: int, reached: Mapping[JobId, int] = MappingProxyType({})) -> None:
        """Emit the use of attempts where an event is due, and what is decided by it: which jobs share a device.

        Args:
            reached: steps that running programs have reached, as far as they report them.
        """
        for job_id, window in list(self._by_job.items()):
            job = tx.state.jobs.get(job_id)
            attempt = job.attempt if job is not None else None
            if job is None or attempt is None or attempt.number != window.attempt:
                del self._by_job[job_id]
                continue
            beside = _beside(tx.state, job) if attempt.pairing is not None else None
            if beside != window.beside:
                window = self._by_job[job_id] = _again(window, now_ms, beside, None)
            if job.spec.shareable:
                window.sees(reached.get(job_id), now_ms)
            passed_ms, due_ms = now_ms - window.since_ms, _due_ms(tx.state, job, window)
            if passed_ms >= due_ms:
                said = self._emit(tx, job, attempt, window, now_ms, min(COVERED_LEAST_MS, due_ms // 2))
                self._by_job[job_id] = _again(window, now_ms, beside, said or window.said)
        if self._decided_ms is None or now_ms - self._decided_ms >= DECIDE_EVERY_MS:
            self._decided_ms = now_ms
            share_devices(tx)

    def _emit(
        self, tx: Transaction, job: Job, attempt: Attempt, window: _Window, now_ms: int, least_ms: int
    ) -> UseNoted | None:
        held_milli, measured_ms = job.placed.device_milli, window.grown("measured_ms")
        if not held_milli or not measured_ms:
            return None
        covered_ms = min(measured_ms * 1000 // held_milli, now_ms - window.since_ms)
        if covered_ms < least_ms:
            return None
        busy_milli = min(1000, window.grown("busy_ms") * 1000 // measured_ms)
        untouched = 0
        for rank, measured in window.now.items():
            if measured.devices_touched is not None:
                untouched += max(0, len(attempt.replicas[rank].place.devices) - measured.devices_touched)
        note = UseNoted(job.id, attempt.number, covered_ms, busy_milli, untouched)
        if job.spec.shareable:
            peak_bytes, steps, step_us = window.peak_bytes, window.steps, window.step_us
            note = replace(note, memory_peak_bytes=peak_bytes, steps=steps, step_us=step_us)
        if window.beside is None or now_ms - window.since_ms >= NOTE_EVERY_MS or _has_changed(window.said, note):
            tx.emit(note)
            return note
        return None


def _again(window: _Window, now_ms: int, beside: tuple[JobId, AttemptNumber] | None, said: UseNoted | None) -> _Window:
    """Return the window that follows one."""
    return _Window(
        window.attempt,
        now_ms,
        dict(window.now),
        dict(window.now),
        beside,
        reached=window.reached if beside == window.beside else None,
        device_memory_bytes=window.device_memory_bytes,
        said=said,
    )


def _beside(state: State, job: Job) -> tuple[JobId, AttemptNumber] | None:
    """Return the attempt that runs on the same device."""
    other = partner(state, job)
    if other is None or other.attempt is None or not other.attempt.running_ms:
        return None
    return other.id, other.attempt.number


def _due_ms(state: State, job: Job, window: _Window) -> int:
    """Return how long a window lasts."""
    pool = state.config.pool_by_name.get(job.placed.pool)
    settings = pool.sharing if pool is not None else SharingSettings()
    if not job.spec.shareable or not settings.enabled:
        return NOTE_EVERY_MS
    if window.beside is None:
        paired = job.attempt is not None and job.attempt.pairing is not None  # the other one starts
        return NOTE_EVERY_MS if paired else min(NOTE_EVERY_MS, max(WINDOW_LEAST_MS, settings.window_ms))
    few = window.reached is not None and window.steps < settings.steps
    return NOTE_EVERY_MS if few else TOGETHER_MS


def _has_changed(before: UseNoted | None, after: UseNoted) -> bool:
    if before is None or abs(before.busy_milli - after.busy_milli) > CHANGED_MILLI:
        return True
    return abs(before.step_us - after.step_us) * 1000 > CHANGED_MILLI * max(before.step_us, 1)
