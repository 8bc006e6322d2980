"""What programs of a replay report of their speed, where a pool goes by that: steps, as a live program notes them.

The scheduler learns from these notes alone how fast a job is on a device model; the truth is in `Work.speeds`.
"""

from collections.abc import Callable, Mapping

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.model.progress import PACED_MS, Gauges
from penstock.sim.replay import life as on
from penstock.sim.replay.execution_model import FULL_SPEED
from penstock.sim.replay.life import Life, SimulatedRun
from penstock.sim.replay.sharing import SIGNAL

STEP_MS = 10_000
"""A step at full speed: only how it changes matters."""


class ReportedRuns:
    """The runs of jobs that are faster on one device model than on another.

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

    def begins(self, tx: Transaction, job_id: JobId, run: SimulatedRun) -> None:
        """Have a program say that it can save, and after a while how fast it is."""
        job, work = tx.state.jobs[job_id], self._lives[job_id].work
        if not work.speeds or work.trains is not None or job.placed.pool not in tx.state.config.matching:
            return
        if work.saves and not job.save_signal:
            tx.emit(ev.SaveSignalNoted(job_id, run.number, SIGNAL))
        self._push(run.began_ms + PACED_MS, on.NOTED, job_id, run.number)

    def noted(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        """Note the speed of a program; its next attempt is noted anew."""
        run = self._current(job_id, number)
        if run is None or run.leaving or run.halted or run.suspended_ms:
            return
        known = self._lives[job_id]
        done_ms = known.work.run_ms - known.left_ms + run.done_ms(tx.now_ms)
        gauges = Gauges(step_ms=max(1, STEP_MS * FULL_SPEED // run.speed))
        tx.emit(ev.ProgressNoted(job_id, number, max(0, done_ms) // STEP_MS, gauges))
