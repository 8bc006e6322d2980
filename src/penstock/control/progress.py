"""The pulse of running programs: their newest steps and gauges, and when those are noted in the log.

Volatile, like the leases: a new controller learns it anew within a few steps. A pulse is of one attempt. Each report
replaces the last one of its rank; the gauges of the job are added up over its ranks when a caller needs them, once for
each report. They become an event when they have changed, when they give another end than was noted, or after a while.
`hangs.py` handles programs that make no step.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey
from penstock.core.model.batching import BatchSeen
from penstock.core.model.events import ProgressNoted
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Job
from penstock.core.model.progress import Gauges
from penstock.core.state.expected_end import drifted
from penstock.core.state.state import State

NOTE_FIRST_STEPS_MS = 5_000
NOTE_EVERY_MS = 600_000
NOTE_CHANGE_MILLI = 200
"""Gauges are noted when one of them has changed by this much, but no more often than every minute."""
NOTE_PAUSE_MS = 60_000
NOTE_BATCH_PAUSE_MS = 5_000
"""What a program has learned of its batch, sooner: sizes are chosen by it."""
NOTE_FLOOR = 50
"""Smaller values than this (ms, thousandths) do not count as changed by their share."""
_COMPARED = tuple(name for name in Gauges.__struct_fields__ if name not in ("data_queue", "loss_not_finite", "batch"))


class Pulse(msgspec.Struct):
    """The last reports of the programs of one running attempt; times are monotonic ms."""

    attempt: AttemptNumber
    since_ms: int
    ranks: dict[Rank, Gauges] = {}
    step: int = 0
    moves: int = 0
    """How often the step has changed: findings about a standstill hold until it does."""
    moved_ms: int | None = None
    """When the last sign of life came; None before the first step."""
    noted: Gauges | None = None
    noted_ms: int = 0
    hang_step: int | None = None
    """The step after which a hang was found: nothing is noted until the next step."""
    awaited_since_ms: int | None = None
    """Since when a first report is awaited that should have come by now; None where none is."""
    known: Gauges | None = None
    """The gauges of the whole job; None: to be added up anew."""

    def gauges(self) -> Gauges:
        """Return the gauges of the whole job."""
        if self.known is None:
            self.known = gauges_of(self.ranks.values())
        return self.known


class Pulses:
    """The pulse of each running attempt that has reported."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, Pulse] = {}

    def __iter__(self) -> Iterator[tuple[JobId, Pulse]]:
        return iter(self._by_job.items())

    def of(self, job_id: JobId) -> Pulse | None:
        return self._by_job.get(job_id)

    def learn(self, state: State, now_ms: int) -> None:
        """Take over the logged progress of running programs: a new controller may meet a program that hangs already."""
        self._by_job.clear()
        for job in state.jobs.values():
            attempt, progress = job.attempt, job.progress
            if attempt is not None and attempt.stop is None and progress.noted_attempt == attempt.number:
                pulse = Pulse(attempt.number, now_ms, step=progress.step, moved_ms=now_ms, known=progress.gauges)
                self._by_job[job.id] = pulse

    def note(self, state: State, report: NodeReport, now_ms: int) -> None:
        """Take in a node's reports of its programs."""
        for seen in report.progress:
            pulse = self._current(state, seen.key, now_ms) if self._is_of_steps(seen) else None
            if pulse is not None:
                _take(pulse, seen, now_ms)

    def _is_of_steps(self, seen: ProgressSeen) -> bool:
        """Return whether an entry tells of steps made: where an attempt resumes does so once it has made some."""
        if seen.kind != "resumed":
            return seen.kind != "listens"
        pulse = self._by_job.get(seen.key.job_id)
        return pulse is not None and pulse.attempt == seen.key.attempt and pulse.moved_ms is not None

    def _current(self, state: State, key: ReplicaKey, now_ms: int) -> Pulse | None:
        """Return the pulse of the attempt of `key`, None when that is not the present one."""
        job = state.jobs.get(key.job_id)
        if job is None or job.attempt is None or job.attempt.number != key.attempt:
            return None
        pulse = self._by_job.get(key.job_id)
        if pulse is None or pulse.attempt != key.attempt:
            pulse = self._by_job[key.job_id] = Pulse(key.attempt, now_ms)
        return pulse

    def expect(self, job_id: JobId, attempt: AttemptNumber, now_ms: int, *, since_ms: int) -> None:
        """Note that an attempt has run since `since_ms` without the report that is expected of it."""
        self._by_job[job_id] = Pulse(attempt, now_ms, awaited_since_ms=since_ms)

    def forget(self, job_ids: Iterable[JobId]) -> None:
        """Drop the pulses of jobs that are gone."""
        for job_id in job_ids:
            self._by_job.pop(job_id, None)

    def tell(self, tx: Transaction, now_ms: int) -> None:
        """Emit the progress of programs where an event is due."""
        for job_id, pulse in list(self._by_job.items()):
            job = tx.state.jobs.get(job_id)
            attempt = job.attempt if job is not None else None
            if job is None or attempt is None or attempt.number != pulse.attempt:
                del self._by_job[job_id]
            elif attempt.suspended_ms:
                pulse.moved_ms = now_ms if pulse.moved_ms is not None else None  # it cannot make a step
            elif is_due(job, pulse, now_ms):
                pulse.hang_step, pulse.noted, pulse.noted_ms = None, pulse.gauges(), now_ms
                tx.emit(ProgressNoted(job.id, pulse.attempt, pulse.step, pulse.noted))


def _take(pulse: Pulse, seen: ProgressSeen, now_ms: int) -> None:
    pulse.awaited_since_ms = None
    known = pulse.ranks.get(seen.key.rank)
    gauges = seen.gauges or known or Gauges()
    if gauges != known:
        pulse.ranks[seen.key.rank], pulse.known = gauges, None
    if seen.step != pulse.step or pulse.moved_ms is None:  # a fold or a phase may count from 0 again
        pulse.step, pulse.moved_ms = seen.step, now_ms
        pulse.moves += 1
    elif seen.kind == "checkpoint":
        pulse.moved_ms = now_ms


def gauges_of(ranks: Iterable[Gauges]) -> Gauges:
    """Return the gauges of a job: rates and memory of its ranks add up, the worst share and the slowest step count."""
    found = list(ranks)
    return Gauges(
        step_ms=max((g.step_ms for g in found), default=0),
        report_gap_ms=max((g.report_gap_ms for g in found), default=0),
        total_steps=max((g.total_steps for g in found), default=0),
        samples_per_s_milli=sum(g.samples_per_s_milli for g in found),
        data_wait_milli=max((g.data_wait_milli for g in found), default=0),
        communication_milli=max((g.communication_milli for g in found), default=0),
        memory_bytes=sum(g.memory_bytes for g in found),
        data_queue=min((g.data_queue for g in found), default=0),
        loss_not_finite=any(g.loss_not_finite for g in found),
        batch=_batch_of([g.batch for g in found if g.batch is not None]),
    )


def _batch_of(ranks: Sequence[BatchSeen]) -> BatchSeen | None:
    """Return what ranks measured with their batch: the slowest one's times, the noise of one that knows it.

    None where they are about to change it, and not all have.
    """
    if not ranks or len({(seen.local, seen.accumulation) for seen in ranks}) > 1:
        return None
    slowest = max(ranks, key=lambda seen: seen.step_us)
    return replace(slowest, noise=next((seen.noise for seen in ranks if seen.noise), 0))


def is_due(job: Job, pulse: Pulse, now_ms: int) -> bool:
    """Return whether the gauges are worth an event now."""
    if pulse.hang_step is not None:
        return pulse.step != pulse.hang_step
    if now_ms - pulse.since_ms < NOTE_FIRST_STEPS_MS or not pulse.gauges().step_ms:
        return False
    if pulse.noted is None:
        return True
    age_ms, gauges = now_ms - pulse.noted_ms, pulse.gauges()
    if gauges.loss_not_finite and not pulse.noted.loss_not_finite:
        return True
    if age_ms >= NOTE_BATCH_PAUSE_MS and _learned(pulse.noted.batch, gauges.batch):
        return True
    if age_ms < NOTE_PAUSE_MS:
        return False
    return age_ms >= NOTE_EVERY_MS or _changed(pulse.noted, gauges) or drifted(job.progress, pulse.step, age_ms)


def _changed(before: Gauges, after: Gauges) -> bool:
    if before is after:
        return False
    if before.loss_not_finite != after.loss_not_finite:
        return True
    pairs = [(getattr(before, name), getattr(after, name)) for name in _COMPARED]
    if before.batch is not None and after.batch is not None:
        pairs += [(before.batch.step_us, after.batch.step_us), (before.batch.sync_us, after.batch.sync_us)]
    return any(_apart(old, new) for old, new in pairs) or _learned(before.batch, after.batch)


def _learned(before: BatchSeen | None, after: BatchSeen | None) -> bool:
    """Return whether a program has measured another batch than was noted, or another noise of its gradients."""
    if after is None:
        return False
    if before is None or (before.local, before.accumulation) != (after.local, after.accumulation):
        return True
    return after.noise > 0 and _apart(before.noise, after.noise)


def _apart(old: int, new: int) -> bool:
    return abs(new - old) * 1000 > NOTE_CHANGE_MILLI * max(old, new, NOTE_FLOOR)
