"""Training programs in a replay: their epochs, the batch that is chosen for them, and what they report.

What they do is the trace's (`traces/training.py`). The scheduler gets what a live program would report, by the rules by
which a controller notes it (`control/progress.py`): steps, their times, the gradient noise, checkpoints and resumes.
"""

from collections.abc import Callable, Mapping

import msgspec

from penstock.control.progress import (
    NOTE_BATCH_PAUSE_MS,
    NOTE_EVERY_MS,
    NOTE_FIRST_STEPS_MS,
    NOTE_PAUSE_MS,
    Pulse,
    is_due,
)
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import BatchChosen, CheckpointSaved, JobResumed, ProgressNoted
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.model.jobs import Job, StopOrder, StopReason
from penstock.core.model.progress import Gauges
from penstock.sim.replay import life as on
from penstock.sim.replay.execution_model import FULL_SPEED, batch_of, gauges_of, model_milli, pace_of, speed_of
from penstock.sim.replay.life import Life, SimulatedRun

CUT_OFF: frozenset[StopReason] = frozenset({"node_lost", "replica_failed"})
"""Reasons for which an attempt ends without a save."""


class _Program(msgspec.Struct):
    """What a program has reported in its present attempt."""

    pulse: Pulse
    gauges: Gauges
    steps: int
    """Updates until `since_ms`."""
    since_ms: int
    """When its epoch or batch changed last, or it began."""
    update_us: int

    def steps_at(self, now_ms: int) -> int:
        return self.steps + max(0, now_ms - self.since_ms) * 1000 // self.update_us


class TrainingRuns:
    """The runs of training programs.

    Args:
        current: returns the run of an attempt, unless it has ended.
        push: puts something on the agenda.
    """

    def __init__(
        self,
        lives: Mapping[JobId, Life],
        current: Callable[[JobId, AttemptNumber], SimulatedRun | None],
        push: Callable[..., None],
    ) -> None:
        self._lives, self._current, self._push = lives, current, push
        self._programs: dict[JobId, _Program] = {}

    def begins(self, tx: Transaction, job_id: JobId, run: SimulatedRun) -> None:
        """Say where an attempt resumes, and have it report from its first steps on."""
        life, job = self._lives[job_id], tx.state.jobs[job_id]
        if life.work.trains is None:
            return
        if run.number > 1 and life.steps:
            tx.emit(JobResumed(job_id, run.number, life.steps))
        self._programs[job_id] = program = self._program(tx, job, run, life.steps)
        first_ms = run.began_ms - (-program.update_us // 1000)
        program.pulse = Pulse(run.number, first_ms)
        self._next_epoch(job, run)
        self._push(first_ms + NOTE_FIRST_STEPS_MS, on.REPORTED, job_id, run.number)

    def epoch_ends(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        """Go on with the next epoch."""
        run = self._current(job_id, number)
        if run is None or run.halted or run.suspended_ms or tx.now_ms != run.epoch_ends_ms:
            return
        self.go_on(tx, tx.state.jobs[job_id], run)

    def chosen(self, tx: Transaction, event: BatchChosen) -> None:
        """Go on with another batch."""
        run = self._current(event.job_id, event.attempt)
        if run is not None and run.began_ms and not run.halted and event.job_id in self._programs:
            self.go_on(tx, tx.state.jobs[event.job_id], run)

    def go_on(self, tx: Transaction, job: Job, run: SimulatedRun) -> None:
        """Let a job, of any kind, go on at the speed that it has from now on; its end moves."""
        life, from_ms = self._lives[job.id], max(tx.now_ms, run.began_ms)
        run.change_speed(speed_of(life.work, job, tx.state.nodes, _done_ms(life, run, from_ms)), from_ms)
        self._push(run.ends_ms, on.ENDED, job.id, run.number)
        known = self._programs.get(job.id)
        if life.work.trains is None or known is None:
            return
        program = self._programs[job.id] = self._program(tx, job, run, known.steps_at(tx.now_ms))
        program.pulse = known.pulse
        self._next_epoch(job, run)
        if known.pulse.noted is not None:
            first_ms = from_ms - (-program.update_us // 1000)
            for pause_ms in (NOTE_BATCH_PAUSE_MS, NOTE_PAUSE_MS):
                self._push(max(known.pulse.noted_ms + pause_ms, first_ms), on.REPORTED, job.id, run.number)

    def thawed(self, job: Job, run: SimulatedRun, idle_ms: int) -> None:
        """Let a job go on that was frozen for `idle_ms`: its epoch ends later by that."""
        program = self._programs.get(job.id)
        if program is not None:
            program.since_ms += idle_ms
            self._next_epoch(job, run)
            self._push(run.began_ms + NOTE_EVERY_MS, on.REPORTED, job.id, run.number)

    def reported(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        """Note what a program reports, if it is worth that."""
        run, program = self._current(job_id, number), self._programs.get(job_id)
        if run is None or program is None or run.leaving or run.halted or run.suspended_ms:
            return
        pulse = program.pulse
        pulse.step, pulse.known = program.steps_at(tx.now_ms), program.gauges
        if is_due(tx.state.jobs[job_id], pulse, tx.now_ms):
            pulse.noted, pulse.noted_ms = program.gauges, tx.now_ms
            tx.emit(ProgressNoted(job_id, number, pulse.step, program.gauges))
            self._push(tx.now_ms + NOTE_EVERY_MS, on.REPORTED, job_id, number)

    def leaves(self, tx: Transaction, job_id: JobId, run: SimulatedRun, stop: StopOrder | None) -> None:
        """Note what a program saves that was asked to leave."""
        program, life = self._programs.get(job_id), self._lives[job_id]
        if program is None or stop is None or stop.reason in CUT_OFF or not life.work.saves:
            return
        life.steps = max(life.steps, program.steps_at(run.stopped_ms or tx.now_ms))
        tx.emit(CheckpointSaved(job_id, run.number, life.steps))

    def ended(self, job_id: JobId) -> None:
        """Forget the attempt of a job."""
        self._programs.pop(job_id, None)

    def _program(self, tx: Transaction, job: Job, run: SimulatedRun, steps: int) -> _Program:
        """Return what a program reports from now on."""
        life, attempt, from_ms = self._lives[job.id], job.attempt, max(tx.now_ms, run.began_ms)
        assert life.work.trains is not None
        assert attempt is not None
        pace = pace_of(life.work.trains, attempt, _done_ms(life, run, from_ms))
        batch = batch_of(life.work.trains, attempt)
        model = model_milli(life.work, attempt, tx.state.nodes)
        gauges, update_us = gauges_of(pace, batch, len(attempt.replicas), milli=model)
        return _Program(Pulse(run.number, from_ms), gauges, steps, from_ms, update_us)

    def _next_epoch(self, job: Job, run: SimulatedRun) -> None:
        """Put the end of the present epoch on the agenda; that of the last one is the end of the job."""
        life = self._lives[job.id]
        trains = life.work.trains
        assert trains is not None
        done_ms = _done_ms(life, run, run.began_ms)
        epoch = trains.epoch(done_ms)
        if epoch + 1 < len(trains.ends_ms):
            left_ms = trains.ends_ms[epoch] - done_ms
            run.epoch_ends_ms = run.began_ms - (-left_ms * FULL_SPEED // run.speed)
            self._push(run.epoch_ends_ms, on.EPOCH, job.id, run.number)


def _done_ms(life: Life, run: SimulatedRun, now_ms: int) -> int:
    """Return the work of a job that is done, in this attempt and before."""
    return life.work.run_ms - life.left_ms + run.done_ms(now_ms)
