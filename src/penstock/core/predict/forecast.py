"""Expected run times of live jobs, kept up to date as others like them run and end.

A fold over the records of the log, beside the state. Its predictions become events, so that every later decision can
be traced to the prediction at that time.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from penstock.core.model import events as ev
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import Job, JobSpec
from penstock.core.order.ranks import length_step, own_rest_ms
from penstock.core.predict.runtime import JobFeatures, RuntimePredictor
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.state import State

SWEEP_MS = 600_000
"""Every live job is predicted anew this often."""
LATE_MS = 1_000
"""Jobs that should have ended are predicted anew this often."""
SLICE = 2_000
"""Most jobs of one call, so that a sweep over many does not delay the caller."""
RUNNING_PERMILLE = 500
"""A running job's expected length is the quantile at this share of the runs that reached its age."""
SURE_PERMILLE = 900
"""The quantile of jobs like it that a job hardly exceeds."""
OVERTIME_SHARE = 20
"""A running job is expected to go on for at least this part of the time it has run."""
MOVED_SHARE = 8
"""An expected end is reported when it moved by more than this part of the time left."""
TELLING = frozenset({"burst", "user_name", "user_shape", "name", "queue", "shape", "all"})
"""Sources based on runs. Without one, the job's declaration stands."""


class PastRun(NamedTuple):
    """A finished job as kept in the history (unix ms)."""

    job_id: JobId
    features: JobFeatures
    submitted_ms: int
    started_ms: int
    """0 when it never started."""
    finished_ms: int
    whole: bool
    """One attempt took it from start to end: only then is its length known."""
    idle_ms: int = 0
    """Of the time between start and end, how long it was suspended."""


def predictor_of(history: Iterable[PastRun]) -> RuntimePredictor:
    """Return a predictor that knows past runs."""
    predictor = RuntimePredictor()
    for run in history:
        if run.started_ms and run.whole:
            predictor.observe_submit(run.job_id, run.features, run.submitted_ms)
            predictor.observe_start(run.job_id, run.started_ms, idle_ms=run.idle_ms)
            predictor.observe_end(run.job_id, run.finished_ms)
    return predictor


class Forecaster:
    """Predicts the run times of live jobs, and reports changes that are large enough to matter."""

    def __init__(self, live: Iterable[Job], history: Iterable[PastRun] = ()) -> None:
        """Start from running and waiting jobs, and from past runs, both in any order."""
        self.predictor = predictor_of(history)
        self._fresh: list[JobId] = []
        self._sweep: Iterator[JobId] = iter(())
        self._swept_ms = self._late_ms = 0
        for job in sorted(live, key=lambda j: j.id):
            self.predictor.observe_submit(job.id, features_of(job.spec, job.user), job.submitted_ms)
            attempt = job.attempt
            if attempt is not None:
                self.predictor.observe_start(job.id, attempt.allocated_ms, idle_ms=attempt.idle_ms)
                if attempt.suspended_ms:
                    self.predictor.observe_suspension(job.id, attempt.suspended_ms)

    def observe(self, records: Iterable[ev.Record]) -> None:
        """Take in records of the log."""
        for record in records:
            event = record.event
            match event:
                case ev.JobSubmitted():
                    features = features_of(event.spec, event.user)
                    self.predictor.observe_submit(event.job_id, features, record.time_ms)
                    self._fresh.append(event.job_id)
                case ev.AttemptAllocated():
                    self.predictor.observe_start(event.job_id, record.time_ms)
                case ev.AttemptSuspended():
                    self.predictor.observe_suspension(event.job_id, record.time_ms)
                case ev.AttemptResumed():
                    self.predictor.observe_resume(event.job_id, record.time_ms)
                case ev.AttemptEnded():
                    how = event.outcome
                    self.predictor.observe_end(
                        event.job_id,
                        record.time_ms,
                        by_itself=how in ("succeeded", "failed"),
                        final=False,
                        leaves=how in ("cancelled", "time_limit"),
                    )
                case ev.JobFinished():
                    self.predictor.observe_end(event.job_id, record.time_ms)
                case _:
                    pass

    def told(self, state: State, now_ms: int, most: int = SLICE) -> tuple[tuple[JobId, int, int], ...]:
        """Return (job, expected, hardly longer than; ms) of jobs whose prediction in the state differs.

        Looks at jobs submitted since the last call, at up to `most` of those that should have ended by now, and at as
        many others; a sweep over all live jobs begins when the last is over and `SWEEP_MS` have passed.
        """
        fresh, self._fresh = self._fresh, []
        if now_ms - self._late_ms >= LATE_MS:
            self._late_ms = now_ms
            late = takewhile(lambda end: end[0] <= now_ms, state.indexes.ends)
            fresh += [job_id for _, job_id in islice(late, most)]
        rest = list(islice(self._sweep, most))
        if not rest and now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms, self._sweep = now_ms, iter(sorted(state.jobs))
            rest = list(islice(self._sweep, most))
        fresh += rest
        found = []
        for job_id in dict.fromkeys(fresh):
            job = state.jobs.get(job_id)
            if job is not None:
                expected_ms, most_ms = self._lengths(job, now_ms)
                if expected_ms and _differs(job, expected_ms, most_ms, now_ms):
                    found.append((job_id, expected_ms, most_ms))
        return tuple(found)

    def _lengths(self, job: Job, now_ms: int) -> tuple[int, int]:
        """Return the job's expected length, and a length that it hardly exceeds; 0 where no run is like it.

        0, too, where its own program reports when it ends, or reported what is left: no other runs are needed.
        """
        if told_end_ms(job) or own_rest_ms(job):
            return 0, 0
        curve, source = self.predictor.lengths(job.id, features_of(job.spec, job.user), now_ms=now_ms)
        if source not in TELLING:
            return 0, 0
        if job.attempt is None:
            return max(1, curve.mean_ms()), max(1, curve.quantile_ms(SURE_PERMILLE))
        age_ms = job.attempt.held_ms(now_ms)
        least_ms = max(1, age_ms + age_ms // OVERTIME_SHARE)
        expected_ms = max(least_ms, curve.quantile_ms(RUNNING_PERMILLE, age_ms))
        return expected_ms, max(expected_ms, curve.quantile_ms(SURE_PERMILLE, age_ms))


def _differs(job: Job, expected_ms: int, most_ms: int, now_ms: int) -> bool:
    if job.attempt is None:
        known, found = (job.predicted_ms, job.predicted_most_ms), (expected_ms, most_ms)
        return [*map(length_step, known)] != [*map(length_step, found)]
    left_ms = job.predicted_ms - job.attempt.held_ms(now_ms)
    return MOVED_SHARE * abs(expected_ms - job.predicted_ms) > left_ms


def features_of(spec: JobSpec, user: UserName) -> JobFeatures:
    return JobFeatures(
        devices=spec.ask.device_total,
        user=user,
        tenant=spec.tenant,
        queue=spec.queue,
        name=spec.name,
        estimate_ms=spec.estimated_duration_ms,
        limit_ms=spec.time_limit_ms,
    )
