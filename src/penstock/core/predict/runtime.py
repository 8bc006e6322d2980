"""Predicts how long a job runs from the runs seen so far: a fold over submits, starts and ends.

Theory: users submit the same job again and again, so the runs most like a job are those of its burst (the same owner,
name and size, submitted shortly one after the other), then those of its owner under that name, and so on to all
runs. The narrowest group with enough ended runs answers. Runs that have not ended count by their age, so a prediction
changes while siblings run, and the prediction of a running job never falls below its own age.

No prediction may depend on the job's own future. Memory is bounded for any input: see the limits.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from penstock.core.model.ids import JobId
from penstock.core.predict.features import GroupKey, JobFeatures, kind_of, stem_of
from penstock.core.predict.lengths import Lengths, ObservedRun, around, lengths_of

Source = Literal["burst", "user_name", "user_shape", "declared", "name", "queue", "shape", "all", "limit", "none"]

BURST_GAP_MS = 120_000
"""A submit this soon after the last one like it belongs to the same burst."""
RUNS_MAX = 64
"""Runs remembered for each group: the latest started."""
PAST_MAX = 1_024
"""Lengths remembered for each group: of the latest to end."""
GROUPS_MAX = 8_192
"""Groups remembered; the one that saw a start longest ago is forgotten first."""
BURSTS_MAX = 4_096
"""Open ends of bursts remembered; the one that saw a submit longest ago is forgotten first."""
OPEN_MAX = 262_144
"""Jobs submitted and not ended that are remembered; the oldest is forgotten first and predicted by its features."""
ENDED_MIN = 8
"""A group answers once this many of its remembered runs ended."""
ENDED_MIN_BURST = 3
"""Siblings in a burst are very alike: fewer suffice."""
AGE_STEP_MS = 60_000
"""Ages of running jobs are taken at whole steps of time, so that one curve serves all queries within a step."""
UNKNOWN_MS = 3_600_000
"""The length predicted for the very first job."""

_WIDE: tuple[Source, ...] = ("name", "queue", "shape", "all")
"""Groups that predict a job less well than its owner's declaration."""


class Prediction(msgspec.Struct, frozen=True):
    """How long a run will take from its start to its end: never less than it has taken, nor more than its limit."""

    median_ms: int
    p10_ms: int
    p90_ms: int
    mean_ms: int
    """For ordering by expected length: a group of many short and few long runs has a small median."""
    samples: int
    """Ended runs that it is based on; 0 when it was declared, or is a guess."""
    source: Source


class _Observed:
    """One remembered run; shared by all its groups, so that its end is noted once."""

    __slots__ = ("ended", "idle_ms", "job_id", "length_ms", "start_ms", "suspended_ms")

    def __init__(self, job_id: JobId, start_ms: int, idle_ms: int) -> None:
        self.job_id, self.start_ms = job_id, start_ms
        self.idle_ms = idle_ms
        """How long it was suspended, and went on afterwards."""
        self.suspended_ms = 0
        """Since when it is suspended; 0 while it runs."""
        self.length_ms = -1
        """-1 while it runs."""
        self.ended = False

    def __lt__(self, other: "_Observed") -> bool:
        return (self.start_ms, self.job_id) < (other.start_ms, other.job_id)

    def at(self, now_ms: int) -> ObservedRun:
        if self.length_ms >= 0:
            return ObservedRun(self.length_ms, self.ended)
        return ObservedRun(self.age_ms(now_ms), False)

    def age_ms(self, now_ms: int) -> int:
        """Return how long it has run, not counting suspensions; at least 1 ms."""
        until_ms = min(now_ms, self.suspended_ms) if self.suspended_ms else now_ms
        return max(1, until_ms - self.start_ms - self.idle_ms)


class _History:
    """The latest runs of one group, by start, and the curve last made of them."""

    __slots__ = ("_order", "curve", "curve_step", "ended", "past", "runs")

    def __init__(self) -> None:
        self.past: list[int] = []
        """How long the latest ended attempts without a successor held their places (ms), ascending."""
        self._order: deque[int] = deque()
        """The same in the order of their ends."""
        self.runs: list[_Observed] = []
        self.ended = 0
        """How many of them ended."""
        self.curve: Lengths | None = None
        self.curve_step = -1

    def add(self, run: _Observed) -> None:
        insort(self.runs, run)
        if len(self.runs) > RUNS_MAX:
            self.ended -= self.runs.pop(0).ended
        self.curve = None

    def noted_end(self, run: _Observed) -> None:
        """Note that `run` is over, if it is still remembered here: only the oldest are ever dropped."""
        if not run < self.runs[0]:
            self.ended += run.ended
            self.curve = None

    def keep(self, length_ms: int) -> None:
        """Remember how long an attempt held its places."""
        insort(self.past, length_ms)
        self._order.append(length_ms)
        if len(self._order) > PAST_MAX:
            del self.past[bisect_left(self.past, self._order.popleft())]

    def lengths(self, now_ms: int) -> Lengths:
        """Return the curve of the runs as of the last whole step before `now_ms`: a function of what was observed."""
        step = now_ms // AGE_STEP_MS
        if self.curve is None or step != self.curve_step:
            self.curve, self.curve_step = lengths_of([run.at(step * AGE_STEP_MS) for run in self.runs]), step
        return self.curve


Known = TypeVar("Known")


Levels = tuple[tuple[Source, GroupKey], ...]


class _Started:
    """A job that was submitted and has not ended: its groups, and its run if it has started."""

    __slots__ = ("levels", "run")

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.run: _Observed | None = None


class RuntimePredictor:
    """Folds submits, starts and ends of jobs into predictions. Observations of one moment may come in any order."""

    def __init__(self) -> None:
        self._open: dict[JobId, _Started] = {}
        self._groups: dict[GroupKey, _History] = {}
        self._bursts: dict[GroupKey, tuple[int, int]] = {}
        """For each kind of job: when the last was submitted, and when the burst it belongs to began."""

    def observe_submit(self, job_id: JobId, features: JobFeatures, at_ms: int) -> None:
        """Note that a job was submitted; it joins a burst if one like it was submitted shortly before."""
        kind = kind_of(features)
        last_ms, burst = self._bursts.pop(kind, (at_ms, at_ms))
        if at_ms - last_ms > BURST_GAP_MS:
            burst = at_ms
        self._bursts[kind] = (max(last_ms, at_ms), burst)
        _forget_oldest(self._bursts, BURSTS_MAX)
        self._open[job_id] = _Started(tuple(_levels(features, burst)))
        if len(self._open) > OPEN_MAX:
            self.observe_end(next(iter(self._open)), at_ms, by_itself=False, leaves=False)

    def observe_start(self, job_id: JobId, at_ms: int, *, idle_ms: int = 0) -> None:
        """Note that an attempt of a job began, and any earlier one is over; an unknown job is ignored.

        Args:
            idle_ms: how long the attempt was suspended until now.
        """
        self.observe_end(job_id, at_ms, by_itself=False, final=False, leaves=False)
        known = self._open.get(job_id)
        if known is None:
            return
        known.run = _Observed(job_id, at_ms, idle_ms)
        for _, key in known.levels:
            group = self._groups.pop(key, None) or _History()
            group.add(known.run)
            self._groups[key] = group
        _forget_oldest(self._groups, GROUPS_MAX)

    def observe_suspension(self, job_id: JobId, at_ms: int) -> None:
        """Note that the attempt is suspended: it grows no older."""
        if (run := self._running(job_id)) is not None:
            run.suspended_ms = at_ms

    def observe_resume(self, job_id: JobId, at_ms: int) -> None:
        """Note that the suspended attempt goes on."""
        run = self._running(job_id)
        if run is not None and run.suspended_ms:
            run.idle_ms, run.suspended_ms = run.idle_ms + at_ms - run.suspended_ms, 0

    def _running(self, job_id: JobId) -> _Observed | None:
        """Return the run of a job's attempt, to be changed: curves with its age are made anew."""
        known = self._open.get(job_id)
        if known is None or known.run is None:
            return None
        for _, key in known.levels:
            group = self._groups.get(key)
            if group is not None:
                group.curve = None
        return known.run

    def observe_end(
        self, job_id: JobId, at_ms: int, *, by_itself: bool = True, final: bool = True, leaves: bool = True
    ) -> None:
        """Note that the attempt, and with `final` the job, is over.

        Args:
            by_itself: the program ended, well or badly. An attempt that was stopped (preempted, cancelled, its node
                lost) only shows that the job takes longer than that.
            leaves: its devices became free for good: it ended, or was cancelled.
        """
        known = self._open.pop(job_id, None) if final else self._open.get(job_id)
        if known is None or known.run is None:
            return
        run, known.run = known.run, None
        run.length_ms, run.ended = run.age_ms(at_ms), by_itself
        for _, key in known.levels:
            group = self._groups.get(key)
            if group is not None:
                group.noted_end(run)
                if by_itself or leaves:
                    group.keep(run.length_ms)

    def predict_ms(self, job_id: JobId, features: JobFeatures, *, elapsed_ms: int, now_ms: int) -> Prediction:
        """Return how long the run of a job takes in all, given that it has taken `elapsed_ms` (0: it waits)."""
        curve, source = self.lengths(job_id, features, now_ms=now_ms)

        def bounded(value_ms: int) -> int:
            limited = min(value_ms, features.limit_ms) if features.limit_ms else value_ms
            return max(1, elapsed_ms, limited)

        return Prediction(
            median_ms=bounded(curve.quantile_ms(500, elapsed_ms)),
            p10_ms=bounded(curve.quantile_ms(100, elapsed_ms)),
            p90_ms=bounded(curve.quantile_ms(900, elapsed_ms)),
            mean_ms=bounded(curve.mean_ms(elapsed_ms)),
            samples=curve.ended,
            source=source,
        )

    def lengths(self, job_id: JobId, features: JobFeatures, *, now_ms: int) -> tuple[Lengths, Source]:
        """Return the curve behind a prediction, not yet bounded by the job's limit, and its source."""
        known = self._open.get(job_id)
        for source, key in known.levels if known else _levels(features, None):
            if source in _WIDE and features.estimate_ms > 0:
                return around(features.estimate_ms), "declared"
            group = self._groups.get(key)
            if group is not None and group.ended >= (ENDED_MIN_BURST if source == "burst" else ENDED_MIN):
                return group.lengths(now_ms), source
        if features.limit_ms > 0:
            return around(features.limit_ms // 2), "limit"
        return around(UNKNOWN_MS), "none"

    def past(self, job_id: JobId, features: JobFeatures) -> list[tuple[Source, GroupKey, Sequence[int]]]:
        """Return how long jobs like this one held their places (ms, ascending), from the narrowest group to all."""
        known = self._open.get(job_id)
        levels = known.levels if known is not None else _levels(features, None)
        found = ((source, key, self._groups.get(key)) for source, key in levels)
        return [(source, key, group.past if group is not None else ()) for source, key, group in found]

    def sizes(self) -> dict[str, int]:
        """Return counts of remembered groups, runs of the largest group, open ends of bursts, and open jobs."""
        runs = max((len(group.runs) for group in self._groups.values()), default=0)
        return {"groups": len(self._groups), "runs": runs, "bursts": len(self._bursts), "open": len(self._open)}


def _levels(features: JobFeatures, burst: int | None) -> Iterator[tuple[Source, GroupKey]]:
    """Yield the job's groups from the narrowest to the widest; an unknown feature makes no group."""
    stem, owner = stem_of(features.name), (features.tenant, features.user)
    if burst is not None:
        yield "burst", ("burst", *kind_of(features), burst)
    if features.user and stem:
        yield "user_name", ("user_name", *owner, stem)
    if features.user:
        yield "user_shape", ("user_shape", *owner, features.devices)
    if stem:
        yield "name", ("name", stem)
    if features.queue:
        yield "queue", ("queue", features.queue, features.devices)
    yield "shape", ("shape", features.devices)
    yield "all", ("all",)


def _forget_oldest(known: dict[GroupKey, Known], most: int) -> None:
    while len(known) > most:
        del known[next(iter(known))]
