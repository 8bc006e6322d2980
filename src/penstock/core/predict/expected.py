"""How long a job that has not started is expected to run: the mean, by which jobs are ordered.

Theory. Users submit in crowds: a job alone is a long training, one of a crowd a sweep, a retry or a test, on every
cluster that was looked at (docs/policies.md has the figures). And the jobs of a crowd run about equally long, the more
so the closer they were submitted. So an estimate starts from all runs and is refined in steps: by size; by the size of
the job's crowd; by its owner; by its owner and name; by its siblings, those that were submitted shortly before or after
it, of which a run that has not ended counts as evidence without an end. Each step pulls the estimate towards the mean
of a narrower group, the more so the more runs that group has seen.

No step helps everywhere. So each is scored on every run that ends, against the estimate without it, and is left out
while it does worse. Source: shrinkage towards a wider group's mean, Bühlmann and Straub 1970; the score is the gamma
deviance, which is least in expectation for the true mean (Gneiting 2011, "Making and evaluating point forecasts").

Memory is bounded for any input: see the limits.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar, get_args

from penstock.core.model.ids import JobId
from penstock.core.predict.features import GroupKey, JobFeatures, kind_of, stem_of

Step = Literal["crowd", "owner", "name", "siblings"]
STEPS: tuple[Step, ...] = get_args(Step)

CROWD_MS = 1_800_000
"""Jobs of one kind that were submitted this long before or after a job are its crowd."""
CROWD_SIZES = (1, 3, 10, 30)
"""Crowds of up to so many jobs, the job itself included, count as alike; all larger ones do, too."""
GROUP_WEIGHT = 10.0
"""A group's mean counts half once the group has seen this many runs."""
SIBLINGS_WEIGHT = 0.3
"""The estimate without siblings counts as this part of a sibling submitted at the same moment."""
SIBLINGS_MS = 300_000
"""A sibling submitted this much earlier or later counts half."""
SIBLINGS_MAX = 16
"""Siblings looked at on either side."""
REMEMBERED_MAX = 4_096
"""Runs remembered for each kind: the latest submitted."""
RUNS_MAX = 131_072
"""Ended runs remembered in all; the one that ended first is forgotten first."""
KINDS_MAX = 8_192
"""Kinds remembered; the one that saw a submit longest ago is forgotten first."""
GROUPS_MAX = 32_768
"""Groups remembered; the one that saw a run end longest ago is forgotten first."""
FORGET_RUNS = 100_000.0
"""When a group has seen this many runs, what it has seen so far counts half."""
SCORE_RUNS = 500
"""About so many of the latest runs make up a score."""
OPEN_MAX = 262_144
"""Jobs submitted and not ended that are remembered; the oldest is forgotten first."""
ENDED_MIN = 8
"""Runs that must have ended before anything is expected."""
WORSE = 0.1
"""A step that adds this much to the deviance is left out until it adds nothing: whoever changes orders too often keeps
none of them."""
DEVIANCE_MAX = 10.0
"""No single run counts more against an estimate."""

Known = TypeVar("Known")


class _Run:
    """A job whose run is remembered."""

    __slots__ = (
        "attempts",
        "crowd",
        "features",
        "job_id",
        "kind",
        "length_ms",
        "since_ms",
        "submitted_ms",
        "suspended_ms",
        "told",
    )

    def __init__(self, job_id: JobId, features: JobFeatures, kind: GroupKey, submitted_ms: int) -> None:
        self.job_id, self.features, self.kind, self.submitted_ms = job_id, features, kind, submitted_ms
        self.crowd = 0
        """Jobs of its crowd known so far."""
        self.attempts = 0
        self.since_ms = 0
        """When its attempt began, put off by its suspensions; 0 while it has none."""
        self.suspended_ms = 0
        """Since when it is suspended; 0 while it runs."""
        self.length_ms = 0
        """How long its only attempt took; 0 while that is not known."""
        self.told: tuple[tuple[float, float], ...] = ()
        """When its run began: for each step, the estimate without it and with it."""

    def age_ms(self, now_ms: int) -> int:
        """Return how long its attempt has run, suspensions left out."""
        return max(0, (self.suspended_ms or now_ms) - self.since_ms)


class _Kind:
    """Jobs that differ in the number in their names alone."""

    __slots__ = ("runs", "submits")

    def __init__(self) -> None:
        self.submits: list[_Run] = []
        """The latest submitted, ascending: no more than can change a crowd."""
        self.runs: list[tuple[int, JobId, _Run]] = []
        """Those that have begun, by submit (unix ms) and number."""


class _Sums:
    """Number and total length of the runs of a group, older ones counting less."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = self.total = 0.0

    def add(self, length_ms: int) -> None:
        self.count += 1.0
        self.total += length_ms
        if self.count >= FORGET_RUNS:
            self.count /= 2
            self.total /= 2


class ExpectedLengths:
    """Folds submits, starts and ends into expected lengths."""

    def __init__(self) -> None:
        self._open: dict[JobId, _Run] = {}
        self._kinds: dict[GroupKey, _Kind] = {}
        self._groups: dict[GroupKey, _Sums] = {}
        self._past: deque[_Run] = deque()
        self._all = _Sums()
        self._scores: dict[Step, float] = dict.fromkeys(STEPS, 0.0)
        self._off: set[Step] = set()
        self._by_groups: dict[GroupKey, tuple[tuple[float, float], ...]] = {}
        """Steps without siblings, by kind and size of the crowd; none of them changes until a run ends."""

    def submitted(self, job_id: JobId, features: JobFeatures, at_ms: int) -> None:
        """Note a submit. Submits come in the order of time."""
        key = kind_of(features)
        kind = self._kinds.pop(key, None) or _Kind()
        self._kinds[key] = kind
        _forget_oldest(self._kinds, KINDS_MAX)
        run = self._open[job_id] = _Run(job_id, features, key, at_ms)
        if len(self._open) > OPEN_MAX:
            self.left(next(iter(self._open)))
        run.crowd = 1
        for other in reversed(kind.submits):
            if at_ms - other.submitted_ms > CROWD_MS or run.crowd > CROWD_SIZES[-1]:
                break
            run.crowd += 1
            other.crowd += 1
        kind.submits.append(run)
        del kind.submits[: -CROWD_SIZES[-1]]

    def started(self, job_id: JobId, at_ms: int, *, idle_ms: int = 0) -> None:
        """Note that an attempt began; a job whose submit is unknown is ignored.

        Args:
            idle_ms: how long the attempt was suspended until now.
        """
        run = self._open.get(job_id)
        if run is None or run.length_ms:
            return
        run.told = tuple(self._refined(run, at_ms))
        run.since_ms = at_ms + idle_ms
        run.attempts += 1
        kind = self._kinds.get(run.kind)
        if kind is not None:
            insort(kind.runs, (run.submitted_ms, run.job_id, run))
            if len(kind.runs) > REMEMBERED_MAX:
                del kind.runs[0]

    def suspended(self, job_id: JobId, at_ms: int) -> None:
        """Note that the attempt is suspended: it grows no older."""
        run = self._open.get(job_id)
        if run is not None:
            run.suspended_ms = at_ms

    def resumed(self, job_id: JobId, at_ms: int) -> None:
        """Note that the suspended attempt continues."""
        run = self._open.get(job_id)
        if run is not None and run.suspended_ms:
            run.since_ms, run.suspended_ms = run.since_ms + at_ms - run.suspended_ms, 0

    def ended(self, job_id: JobId, at_ms: int, *, leaves: bool) -> None:
        """Note that an attempt is over.

        Args:
            leaves: its devices became free for good: it ended on its own, or was cancelled. That is a job's length only
                where it is the job's first attempt.
        """
        run = self._open.get(job_id)
        if run is None or not run.since_ms or run.length_ms:
            return
        length_ms, run.since_ms, run.suspended_ms = max(1, run.age_ms(at_ms)), 0, 0
        if not leaves or run.attempts > 1:
            self._forget(run)
            return
        run.length_ms = length_ms
        self._by_groups.clear()
        for step, (without, refined) in zip(STEPS, run.told, strict=False):
            if refined != without:
                worse = _deviance(length_ms, refined) - _deviance(length_ms, without)
                self._scores[step] += (worse - self._scores[step]) / SCORE_RUNS
                if self._scores[step] > WORSE:
                    self._off.add(step)
                elif self._scores[step] < 0:
                    self._off.discard(step)
        self._all.add(length_ms)
        for key in _groups_of(run):
            group = self._groups.pop(key, None) or _Sums()
            group.add(length_ms)
            self._groups[key] = group
        _forget_oldest(self._groups, GROUPS_MAX)
        self._past.append(run)
        if len(self._past) > RUNS_MAX:
            self._forget(self._past.popleft())

    def left(self, job_id: JobId) -> None:
        """Note that a job is over."""
        run = self._open.pop(job_id, None)
        if run is not None and not run.length_ms:
            self._forget(run)

    def _forget(self, run: _Run) -> None:
        kind = self._kinds.get(run.kind)
        if kind is not None:
            at = bisect_left(kind.runs, (run.submitted_ms, run.job_id))
            if at < len(kind.runs) and kind.runs[at][2] is run:
                del kind.runs[at]

    def mean_ms(self, job_id: JobId, now_ms: int) -> int:
        """Return the expected length of a job; 0 where too little is known, or the job is unknown."""
        run = self._open.get(job_id)
        if run is None or self._all.count < ENDED_MIN:
            return 0
        estimate = 0.0
        for step, (without, refined) in zip(STEPS, self._refined(run, now_ms), strict=True):
            estimate = refined if self.used(step) else without
        return max(1, round(estimate))

    def used(self, step: Step) -> bool:
        """Return whether a step helps, by the latest runs."""
        return step not in self._off

    def scores(self) -> dict[Step, float]:
        """Return what each step adds to the gamma deviance of the latest runs; negative where it helps."""
        return dict(self._scores)

    def _refined(self, run: _Run, now_ms: int) -> Iterator[tuple[float, float]]:
        """Yield for each step the estimate before and after it; a step that does not help is left out of the next."""
        if not self._all.count:
            return
        alike = (run.kind, _crowd(run.crowd))
        known = self._by_groups.get(alike)
        if known is None:
            known = self._by_groups[alike] = tuple(self._refined_by_groups(run.features, alike[1]))
            _forget_oldest(self._by_groups, GROUPS_MAX)
        yield from known
        without, refined = known[-1]
        before = refined if self.used("name") else without
        yield before, self._beside(run, before, now_ms)

    def _refined_by_groups(self, features: JobFeatures, crowd: int) -> Iterator[tuple[float, float]]:
        """Yield the same for the steps that are alike for all jobs of a kind with crowds of one size."""
        size = features.devices
        octave = size.bit_length()
        mean = self._all.total / self._all.count
        by_octave = self._pulled(mean, ("octave", octave))
        before = self._pulled(by_octave, ("size", size))
        of_crowd = before * self._pulled(mean, ("crowd", crowd)) / mean
        after = self._pulled(self._pulled(of_crowd, ("octave", octave, crowd)), ("size", size, crowd))
        yield before, after
        before = after if self.used("crowd") else before
        owner, stem = (features.tenant, features.user), stem_of(features.name)
        of_owner = self._pulled(before, ("owner", owner)) if features.user else before
        after = self._pulled(of_owner, ("owner", owner, size))
        yield before, after
        before = after if self.used("owner") else before
        after = self._pulled(before, ("name", owner, stem)) if stem else before
        yield before, after

    def _pulled(self, estimate: float, key: GroupKey) -> float:
        group = self._groups.get(key)
        if group is None:
            return estimate
        return (GROUP_WEIGHT * estimate + group.total) / (GROUP_WEIGHT + group.count)

    def _beside(self, run: _Run, estimate: float, now_ms: int) -> float:
        """Return the estimate given the siblings of a job: ended ones count with their length, others by their age."""
        kind = self._kinds.get(run.kind)
        if kind is None or not kind.runs:
            return estimate
        runs, total, weights = kind.runs, SIBLINGS_WEIGHT * estimate, SIBLINGS_WEIGHT
        own_ms = run.submitted_ms
        at = bisect_left(runs, (own_ms, run.job_id))
        for submitted_ms, _, other in runs[max(0, at - SIBLINGS_MAX) : at + SIBLINGS_MAX]:
            if other is run:
                continue
            weight = SIBLINGS_MS / (SIBLINGS_MS + abs(submitted_ms - own_ms))
            if other.length_ms:
                total += weight * other.length_ms
                weights += weight
            else:
                total += weight * other.age_ms(now_ms)
        return total / weights


def _groups_of(run: _Run) -> Iterable[GroupKey]:
    features = run.features
    size, crowd = features.devices, _crowd(run.crowd)
    octave = size.bit_length()
    yield "octave", octave
    yield "size", size
    yield "crowd", crowd
    yield "octave", octave, crowd
    yield "size", size, crowd
    owner = (features.tenant, features.user)
    if features.user:
        yield "owner", owner
        yield "owner", owner, size
    if features.name:
        yield "name", owner, stem_of(features.name)


def _crowd(count: int) -> int:
    return bisect_left(CROWD_SIZES, count)


def _deviance(length_ms: int, expected_ms: float) -> float:
    """Return the unit gamma deviance, halved and bounded."""
    ratio = length_ms / expected_ms
    return min(DEVIANCE_MAX, ratio - 1 - math.log(ratio))


def _forget_oldest(known: dict[GroupKey, Known], most: int) -> None:
    while len(known) > most:
        del known[next(iter(known))]
