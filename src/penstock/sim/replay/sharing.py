"""Jobs that share devices in a replay: what their nodes would measure, and how fast each works beside the other.

The decisions are those of the server (`core/lifecycle/sharing.py`); the measurements that they go by are made of what
the trace says of a job: use of its device, memory, and speed beside another job.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.lifecycle.sharing import share_devices
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.model.jobs import Job
from penstock.core.model.pairing import SharingSettings
from penstock.core.share.live import partner
from penstock.core.state.state import State
from penstock.sim.replay import life as on
from penstock.sim.replay.counters import Meter
from penstock.sim.replay.execution_model import FULL_SPEED
from penstock.sim.replay.life import Life, SimulatedRun

STEP_US = 100_000
"""A step at full speed: only how it changes matters."""
TOGETHER_MS = 10_000
SIGNAL = "SIGUSR1"


class SharedRuns:
    """The runs of jobs that may share a device.

    Args:
        current: returns the run of an attempt, unless it has ended.
        push: puts something on the agenda.
        go_on: lets a run go on at the speed that it has from now on.
    """

    def __init__(
        self,
        lives: Mapping[JobId, Life],
        meter: Meter,
        current: Callable[[JobId, AttemptNumber], SimulatedRun | None],
        push: Callable[..., None],
        go_on: Callable[[Transaction, Job, SimulatedRun], None],
    ) -> None:
        self._lives, self._meter, self._current, self._push, self._go_on = lives, meter, current, push, go_on

    def begins(self, tx: Transaction, job_id: JobId, run: SimulatedRun) -> None:
        """Have a job measured that may share its device and of which the trace says what it uses."""
        job, work = tx.state.jobs[job_id], self._lives[job_id].work
        if not job.spec.shareable or work.busy_milli is None or not _settings(tx.state, job).enabled:
            return
        if work.saves and not job.save_signal:
            tx.emit(ev.SaveSignalNoted(job_id, run.number, SIGNAL))
        other = partner(tx.state, job)
        for one in (job, other) if other is not None else (job,):
            if one.attempt is not None:
                self._push(run.began_ms + _due_ms(tx.state, one), on.MEASURED, one.id, one.attempt.number)

    def measured(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        """Note what a job used since its last note, and decide by that."""
        run = self._current(job_id, number)
        if run is None or run.leaving or run.halted or run.suspended_ms:
            return
        job, work = tx.state.jobs[job_id], self._lives[job_id].work
        other, due_ms = partner(tx.state, job), _due_ms(tx.state, job)
        busy_milli = work.busy_milli or 0
        if other is not None:
            busy_milli += self._lives[other.id].work.busy_milli or 0
        step_us = STEP_US * FULL_SPEED // run.speed
        steps, memory_bytes = due_ms * 1000 // step_us, work.device_memory_bytes
        tx.emit(ev.UseNoted(job_id, number, due_ms, min(1000, busy_milli), 0, memory_bytes, steps, step_us))
        share_devices(tx)
        if other is None:
            self._push(tx.now_ms + due_ms, on.MEASURED, job_id, number)

    def changed(self, tx: Transaction, event: Any) -> None:
        """Let a job go on at the speed that it has from now on, with what it holds of its device from now on."""
        run = self._current(event.job_id, event.attempt)
        if run is None:
            return
        job, work = tx.state.jobs[event.job_id], self._lives[event.job_id].work
        self._meter.busy_milli += job.ask.device_milli - run.device_milli
        run.held_ms += run.device_milli * (tx.now_ms - run.held_since_ms) // 1000
        run.device_milli, run.held_since_ms = job.ask.device_milli, tx.now_ms
        if not run.began_ms or run.leaving or run.halted:
            return
        self._go_on(tx, job, run)
        if partner(tx.state, job) is None and work.busy_milli is not None:
            self._push(tx.now_ms + _due_ms(tx.state, job), on.MEASURED, job.id, run.number)


def _settings(state: State, job: Job) -> SharingSettings:
    pool = state.config.pool_by_name.get(job.placed.pool)
    return pool.sharing if pool is not None else SharingSettings()


def _due_ms(state: State, job: Job) -> int:
    """Return how long a measurement lasts: alone a window, beside another job until enough steps are made."""
    settings = _settings(state, job)
    if partner(state, job) is None:
        return max(1, settings.window_ms)
    return max(TOGETHER_MS, 2 * settings.steps * STEP_US // 1000)
