"""Expected run times of live jobs, kept up to date as others like them run and end.

A fold over the records of the log, beside the state. Its predictions become events, so that every later decision can
be traced to the prediction at that time.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import NamedTuple

from penstock.core.model import events as ev
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import Job, JobSpec
from penstock.core.order.ranks import length_step, own_rest_ms
from penstock.core.predict.expected import ExpectedLengths
from penstock.core.predict.features import JobFeatures
from penstock.core.predict.runtime import RuntimePredictor
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.state import State

LOOK_MS = 600_000
"""A job is predicted anew this often at most."""
LOOK_SHARE = 8
"""It is predicted anew when the time it has run, or has waited, has grown by this part."""
SUBMITTED, STARTED, ENDED = 0, 1, 2
"""What is noted of a past run, in the order in which things of one moment come."""
SETTLED_MS = 1_000
"""A job that has waited this long waits for others: until one does, the cluster is quiet."""
LATE_MS = 1_000
"""Jobs that should have ended are predicted anew this often."""
SLICE = 2_000
"""Most jobs of one call, so that many do not delay the caller."""
RUNNING_PERMILLE = 500
"""A running job's expected length is the quantile at this share of the runs that reached its age."""
SURE_PERMILLE = 990
"""The quantile of jobs like it that a job hardly exceeds."""
OVERTIME_SHARE = 20
"""A running job is expected to go on for at least this part of the time it has run."""
MOVED_SHARE = 8
"""An expected end is reported when it moved by more than this part of the time left."""
NEWS_MAX = 20_000
"""Records that are left aside at most."""
LEARNED_FROM = (
    ev.JobSubmitted,
    ev.AttemptAllocated,
    ev.AttemptSuspended,
    ev.AttemptResumed,
    ev.AttemptEnded,
    ev.JobFinished,
)
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


def expected_of(history: Iterable[PastRun]) -> ExpectedLengths:
    """Return the expected lengths of jobs that know past runs."""
    expected = ExpectedLengths()
    moments = [(run.submitted_ms, SUBMITTED, run) for run in history]
    moments += [(run.started_ms, STARTED, run) for _, _, run in tuple(moments) if run.started_ms]
    moments += [(run.finished_ms, ENDED, run) for _, kind, run in tuple(moments) if kind == SUBMITTED]
    for at_ms, kind, run in sorted(moments, key=lambda moment: moment[:2]):
        if kind == SUBMITTED:
            expected.submitted(run.job_id, run.features, at_ms)
        elif kind == STARTED:
            expected.started(run.job_id, at_ms)
        else:
            expected.ended(run.job_id, at_ms, leaves=run.whole)
            expected.left(run.job_id)
    return expected


class Forecaster:
    """Predicts the run times of live jobs, and reports changes that are large enough to matter."""

    def __init__(self, live: Iterable[Job], history: Iterable[PastRun] = (), *, watched: bool = True) -> None:
        """Start from running and waiting jobs, and from past runs, both in any order.

        Past runs of live jobs are left out: another leader ended them, and the log is about to say so.

        Args:
            watched: people look at expected ends, also while the cluster is quiet and no decision rests on them.
        """
        by_submit = sorted(live, key=lambda j: (j.submitted_ms, j.id))
        alive = {job.id for job in by_submit}
        past = tuple(run for run in history if run.job_id not in alive)
        self._watched = watched
        self._news: list[ev.Record] = []
        """Records not taken in yet, for nothing rests on them."""
        self.predictor, self.expected = predictor_of(past), expected_of(past)
        self._looks: list[tuple[int, JobId]] = []
        """A heap; entries that `_due` does not confirm are outdated."""
        self._due: dict[JobId, int] = {}
        """When live jobs are looked at again (unix ms)."""
        self._late_ms = 0
        for job in by_submit:
            self._submitted(job.id, features_of(job.spec, job.user), job.submitted_ms)
            attempt = job.attempt
            if attempt is not None:
                self._started(job.id, attempt.allocated_ms, attempt.idle_ms)
                if attempt.suspended_ms:
                    self._suspended(job.id, attempt.suspended_ms)

    def _submitted(self, job_id: JobId, features: JobFeatures, at_ms: int) -> None:
        self.predictor.observe_submit(job_id, features, at_ms)
        self.expected.submitted(job_id, features, at_ms)
        self._look_at(job_id, at_ms)

    def _look_at(self, job_id: JobId, at_ms: int) -> None:
        self._due[job_id] = at_ms
        heappush(self._looks, (at_ms, job_id))

    def _started(self, job_id: JobId, at_ms: int, idle_ms: int = 0) -> None:
        self.predictor.observe_start(job_id, at_ms, idle_ms=idle_ms)
        self.expected.started(job_id, at_ms, idle_ms=idle_ms)

    def _suspended(self, job_id: JobId, at_ms: int) -> None:
        self.predictor.observe_suspension(job_id, at_ms)
        self.expected.suspended(job_id, at_ms)

    def observe(self, records: Iterable[ev.Record]) -> None:
        """Take in records of the log."""
        if self._watched:
            self._take_in(records)
            return
        self._news += [record for record in records if isinstance(record.event, LEARNED_FROM)]
        if len(self._news) > NEWS_MAX:
            self._take_in_news()

    def _take_in_news(self) -> None:
        news, self._news = self._news, []
        self._take_in(news)

    def _take_in(self, records: Iterable[ev.Record]) -> None:
        for record in records:
            event = record.event
            match event:
                case ev.JobSubmitted():
                    self._submitted(event.job_id, features_of(event.spec, event.user), record.time_ms)
                case ev.AttemptAllocated():
                    self._started(event.job_id, record.time_ms)
                case ev.AttemptSuspended():
                    self._suspended(event.job_id, record.time_ms)
                case ev.AttemptResumed():
                    self.predictor.observe_resume(event.job_id, record.time_ms)
                    self.expected.resumed(event.job_id, record.time_ms)
                case ev.AttemptEnded():
                    how = event.outcome
                    ends, leaves = how in ("succeeded", "failed"), how in ("cancelled", "time_limit")
                    self.predictor.observe_end(event.job_id, record.time_ms, by_itself=ends, final=False, leaves=leaves)
                    self.expected.ended(event.job_id, record.time_ms, leaves=ends or leaves)
                    self._look_at(event.job_id, record.time_ms)
                case ev.JobFinished():
                    self.predictor.observe_end(event.job_id, record.time_ms)
                    self.expected.left(event.job_id)
                    self._due.pop(event.job_id, None)
                case _:
                    pass

    def told(self, state: State, now_ms: int, most: int = SLICE) -> tuple[tuple[JobId, int, int], ...]:
        """Return (job, expected, hardly longer than; ms) of jobs whose prediction in the state differs.

        Looks at up to `most` jobs that are due, and at as many that should have ended by now. A job is due at its
        submit and each time that it has run, or waited, longer by a part, yet not more often than every `LOOK_MS`.
        While the cluster is quiet no decision rests on predictions: then jobs that run are due when their age has
        doubled, and nobody is looked at where nobody watches.
        """
        found: dict[JobId, tuple[JobId, int, int]] = {}
        quiet = is_quiet(state, now_ms)
        if quiet and not self._watched:
            return ()
        self._take_in_news()
        if now_ms - self._late_ms >= (LOOK_MS if quiet else LATE_MS):
            self._late_ms = now_ms
            for _, job_id in islice(takewhile(lambda end: end[0] <= now_ms, state.indexes.ends), most):
                self._look(state.jobs[job_id], now_ms, found)
        for _ in range(most):
            if not self._looks or self._looks[0][0] > now_ms:
                break
            due_ms, job_id = heappop(self._looks)
            job = state.jobs.get(job_id)
            if job is None or self._due.get(job_id) != due_ms:
                continue
            age_ms = job.attempt.held_ms(now_ms) if job.attempt is not None else 0
            grown_ms = age_ms if job.attempt is not None else now_ms - job.waiting_since_ms
            self._look_at(job_id, now_ms + max(LOOK_MS, age_ms if quiet else grown_ms // LOOK_SHARE))
            self._look(job, now_ms, found)
        return tuple(found.values())

    def _look(self, job: Job, now_ms: int, found: dict[JobId, tuple[JobId, int, int]]) -> None:
        expected_ms, most_ms = self._lengths(job, now_ms)
        if expected_ms and _differs(job, expected_ms, most_ms, now_ms):
            found[job.id] = job.id, expected_ms, most_ms

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
            expected_ms = self.expected.mean_ms(job.id, now_ms) or curve.mean_ms()
            return max(1, expected_ms), max(1, curve.quantile_ms(SURE_PERMILLE))
        age_ms = job.attempt.held_ms(now_ms)
        least_ms = max(1, age_ms + age_ms // OVERTIME_SHARE)
        expected_ms = max(least_ms, curve.quantile_ms(RUNNING_PERMILLE, age_ms))
        return expected_ms, max(expected_ms, curve.quantile_ms(SURE_PERMILLE, age_ms))


def is_quiet(state: State, now_ms: int) -> bool:
    """Return whether no job waits for others: whatever came has started at once."""
    return not any(now_ms - one.jobs[0].submitted_ms >= SETTLED_MS for one in state.indexes.pending.values())


def _differs(job: Job, expected_ms: int, most_ms: int, now_ms: int) -> bool:
    if job.attempt is None:
        return _steps_differ(job.predicted_ms, expected_ms) or _steps_differ(job.predicted_most_ms, most_ms)
    left_ms = job.predicted_ms - job.attempt.held_ms(now_ms)
    return MOVED_SHARE * abs(expected_ms - job.predicted_ms) > left_ms


def _steps_differ(known_ms: int, found_ms: int) -> bool:
    return known_ms != found_ms and length_step(known_ms) != length_step(found_ms)


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
