"""How often estimates of starts were right, and what is made of that for the next ones.

An estimate is an early, a likely and a late time: one start in ten should come before the early one, half before the
likely one, nine in ten before the late one. What samples of the future say is too sure of itself: they know nothing of
jobs still to come, and little of how wrong what they were told is. So each estimate that has come true says where in
its interval the start fell, and the next intervals are moved and stretched until they hold what they should have held.

Source: split conformal prediction over a moving window, with the samples' own spread as the scale (normalised
nonconformity, Papadopoulos et al. 2002; locally weighted, Lei et al. 2018).
"""

import math
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Collection, Iterable
from statistics import median_low

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.estimates import StartEstimate, Times
from penstock.core.model.ids import JobId

WINDOW = 1_000
"""Estimates that came true of which the latest are looked at."""
GRAIN_MS = 10_000
"""Times are compared in proportion to how far away they are, and not finer than this."""
SPREAD_MIN = 0.5
"""Samples that all say the same are not believed to be surer than this (natural logarithm)."""
TARGETS = (0.1, 0.5, 0.9)
PRIOR = (-1.8, 0.0, 1.8)
"""Where starts fall in intervals of samples before any came true: almost twice as far out as these say."""
TRUSTED = 200
"""As many estimates must have come true to count alone; fewer count in part, and the rest is what was known before."""
RESULTS_MAX = 2_000
LEADS_MS = (600_000, 3_600_000, 21_600_000, 0)


class Result(msgspec.Struct, frozen=True):
    """One estimate and the start that followed (unix ms)."""

    job_id: JobId
    made_ms: int
    given: Times
    started_ms: int

    @property
    def part(self) -> int:
        """Return where the start fell: 0 before the early time, 1 before the likely, 2 before the late one, 3 after it.

        What was not known counts as infinitely late.
        """
        return sum(bool(time_ms) and self.started_ms > time_ms for time_ms in self.given)


class Bucket(msgspec.Struct, frozen=True):
    """Estimates that said that a job starts within so long."""

    within_ms: int
    """0: any time later than the bucket before."""
    count: int
    parts: tuple[int, int, int, int]
    """Starts before the early time, between early and likely, between likely and late, after the late one."""
    error_ms: int
    """Median distance of the likely time from the start."""


class Score(msgspec.Struct, frozen=True):
    """How right estimates were. 1, 4, 4 and 1 of 10 starts should be in the four parts."""

    overall: Bucket
    buckets: tuple[Bucket, ...]
    open: int
    """Estimates of jobs that still wait."""

    @property
    def held_permille(self) -> int:
        """Return how many of a thousand starts were in their interval; 800 should be."""
        count, parts = self.overall.count, self.overall.parts
        return 1000 * (parts[1] + parts[2]) // count if count else 0


class Calibration:
    """Folds estimates and the starts that followed them. The same records give the same corrections."""

    def __init__(self) -> None:
        self._open: dict[JobId, list[tuple[int, StartEstimate]]] = {}
        self._scores: list[float] = []
        self._order: deque[float] = deque()
        self.results: deque[Result] = deque(maxlen=RESULTS_MAX)
        """The latest estimates that came true."""

    def observe(self, records: Iterable[ev.Record]) -> None:
        """Take in records of the log."""
        for record in records:
            event = record.event
            match event:
                case ev.StartsEstimated():
                    for estimate in event.estimates:
                        self._open.setdefault(estimate.job_id, []).append((event.made_ms, estimate))
                case ev.AttemptAllocated():
                    for made_ms, estimate in self._open.pop(event.job_id, ()):
                        self._came_true(estimate, made_ms, record.time_ms)
                case ev.JobFinished():
                    self._open.pop(event.job_id, None)
                case _:
                    pass

    def score(self) -> Score:
        """Return how right the latest estimates were that came true."""
        found = []
        least_ms = 0
        for most_ms in LEADS_MS:
            some = [r for r in self.results if least_ms <= _lead_ms(r) and (not most_ms or _lead_ms(r) < most_ms)]
            found.append(_bucket(most_ms, some))
            least_ms = most_ms
        return Score(_bucket(0, self.results), tuple(found), sum(map(len, self._open.values())))

    def _came_true(self, estimate: StartEstimate, made_ms: int, started_ms: int) -> None:
        self.results.append(Result(estimate.job_id, made_ms, estimate.given, started_ms))
        score = _score(estimate.sampled, made_ms, started_ms)
        insort(self._scores, score)
        self._order.append(score)
        if len(self._order) > WINDOW:
            del self._scores[bisect_left(self._scores, self._order.popleft())]

    def corrected(self, sampled: Times, made_ms: int) -> Times:
        """Return what to say, given what the samples say (unix ms; 0 where they never started in so many)."""
        _, likely_ms, _ = sampled
        if not likely_ms:
            return sampled
        middle, spread = _logarithm(likely_ms, made_ms), _spread(sampled, made_ms)
        found = [middle + self._place(at) * spread for at in range(len(TARGETS))]
        times = [made_ms + max(0, round(math.exp(value)) - GRAIN_MS) for value in found]
        return times[0], times[1], times[2]

    def _place(self, which: int) -> float:
        """Return where in an interval so many starts have come, the prior counting less the more are known."""
        known = len(self._scores)
        if not known:
            return PRIOR[which]
        at = min(known - 1, max(0, math.ceil(TARGETS[which] * (known + 1)) - 1))
        part = min(1.0, known / TRUSTED)
        return part * self._scores[at] + (1 - part) * PRIOR[which]


def _logarithm(time_ms: int, made_ms: int) -> float:
    return math.log(max(0, time_ms - made_ms) + GRAIN_MS)


def _spread(sampled: Times, made_ms: int) -> float:
    """Return half the width of what the samples say."""
    early_ms, likely_ms, late_ms = sampled
    low, middle = _logarithm(early_ms, made_ms), _logarithm(likely_ms, made_ms)
    high = _logarithm(late_ms, made_ms) if late_ms else middle + (middle - low)
    return max(SPREAD_MIN, (high - low) / 2)


def _score(sampled: Times, made_ms: int, started_ms: int) -> float:
    """Return where the start fell: 0 at the likely time, -1 and 1 about where the samples begin and end."""
    _, likely_ms, _ = sampled
    away = _logarithm(started_ms, made_ms) - _logarithm(likely_ms, made_ms)
    return away / _spread(sampled, made_ms)


def _lead_ms(result: Result) -> int:
    return max(0, result.given[1] - result.made_ms)


def _bucket(within_ms: int, results: Collection[Result]) -> Bucket:
    counts = Counter(result.part for result in results)
    errors = [abs(result.started_ms - result.given[1]) for result in results if result.given[1]]
    parts = (counts[0], counts[1], counts[2], counts[3])
    return Bucket(within_ms, len(results), parts, median_low(errors) if errors else 0)
