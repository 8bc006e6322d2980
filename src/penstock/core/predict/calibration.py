"""How often estimates of starts were right, and the correction of the next ones from that.

An estimate is an early, a likely and a late time: one start in ten should come before the early one, half before the
likely one, nine in ten before the late one. Samples of the future are overconfident: they know of jobs still to come
only what past days tell, and little of the errors in their input. So for each estimate whose job started it is
recorded where in its interval the start fell, and the next intervals are moved and stretched until they hold the share
they should.

An estimate whose job still waits counts, too (censored): its start falls later than now, by an unknown time. Without
those only early starts would be known while a queue grows, which is when it matters.

Source: split conformal prediction over a moving window, with the samples' own spread and a constant as the scale
(normalised nonconformity, Papadopoulos et al. 2002, whose beta is the constant; locally weighted, Lei et al. 2018);
quantiles by the product-limit estimator (Kaplan and Meier 1958), what is still open being censored.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable
from statistics import median_low

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.answers import Bucket, Score
from penstock.core.model.estimates import StartEstimate, Times
from penstock.core.model.ids import JobId

WINDOW = 1_000
"""The latest estimates that count, whether their jobs have started or not."""
GRAIN_MS = 10_000
"""Times are compared in proportion to their distance, and not finer than this."""
COMMON_SPREAD = 2.0
"""Added to the spread of the samples (natural logarithm): what all of them are wrong about together. Without it,
intervals of samples that are far apart are stretched to years: figures in docs/benchmarks.md."""
TARGETS = (0.1, 0.5, 0.9)
Places = tuple[float, float, float]
PRIOR: Places = (-0.7, 0.0, 0.7)
"""Where starts fall in intervals before any is known: a quarter to four times as far as samples that agree say."""
TRUSTED = 200
"""Number of known starts that count alone; fewer count in part, and the prior makes up the rest."""
SCORE_MAX = 3.0
"""No start counts as further out than this, and no interval is stretched beyond it."""
AHEAD_MAX_MS = 10 * 365 * 86_400_000
"""No estimate is later than this."""
RESULTS_MAX = 2_000
LEADS_MS = (600_000, 3_600_000, 21_600_000, 0)


class EstimateResult(msgspec.Struct, frozen=True):
    """One estimate and the start that followed (unix ms)."""

    job_id: JobId
    made_ms: int
    given: Times
    started_ms: int

    @property
    def part(self) -> int:
        """Return where the start fell: 0 before the early time, 1 before the likely, 2 before the late one, 3 after it.

        An unknown time counts as infinitely late.
        """
        return sum(bool(time_ms) and self.started_ms > time_ms for time_ms in self.given)


class _Told:
    """One estimate of the window."""

    __slots__ = ("estimate", "left", "made_ms", "started_ms")

    def __init__(self, estimate: StartEstimate, made_ms: int) -> None:
        self.estimate, self.made_ms = estimate, made_ms
        self.started_ms = 0
        """0 while its job waits."""
        self.left = False
        """Its job ended without a start: it is not used."""


class Calibration:
    """Folds estimates and the starts that followed them. The same records give the same corrections."""

    def __init__(self) -> None:
        self._open: dict[JobId, list[_Told]] = {}
        self._window: deque[_Told] = deque(maxlen=WINDOW)
        self._places: tuple[int, Places] = (-1, PRIOR)
        """The time of the last computation, and where starts fall."""
        self.results: deque[EstimateResult] = deque(maxlen=RESULTS_MAX)
        """The latest estimates whose jobs started."""

    def observe(self, records: Iterable[ev.Record]) -> None:
        """Take in records of the log."""
        for record in records:
            event = record.event
            match event:
                case ev.StartsEstimated():
                    for estimate in event.estimates:
                        if not estimate.sampled[1]:
                            continue  # the start was unknown
                        told = _Told(estimate, event.made_ms)
                        self._open.setdefault(estimate.job_id, []).append(told)
                        self._window.append(told)
                case ev.AttemptAllocated():
                    for told in self._open.pop(event.job_id, ()):
                        told.started_ms = record.time_ms
                        self.results.append(
                            EstimateResult(event.job_id, told.made_ms, told.estimate.given, told.started_ms)
                        )
                case ev.JobFinished():
                    for told in self._open.pop(event.job_id, ()):
                        told.left = True
                case _:
                    continue
            self._places = (-1, PRIOR)

    def corrected(self, sampled: Times, made_ms: int) -> Times:
        """Return the corrected interval for quantiles of the samples (unix ms; 0 where too few of them started)."""
        _, likely_ms, _ = sampled
        if not likely_ms:
            return sampled
        if self._places[0] != made_ms:
            self._places = (made_ms, _places(self._window, made_ms))
        middle, spread = _logarithm(likely_ms, made_ms), _spread(sampled, made_ms)
        found = [middle + place * spread for place in self._places[1]]
        furthest = math.log(AHEAD_MAX_MS)
        times = [made_ms + max(0, round(math.exp(min(value, furthest))) - GRAIN_MS) for value in found]
        return times[0], times[1], times[2]

    def score(self) -> Score:
        """Return how right the latest estimates were whose jobs started."""
        found = []
        least_ms = 0
        for most_ms in LEADS_MS:
            some = [r for r in self.results if least_ms <= _lead_ms(r) and (not most_ms or _lead_ms(r) < most_ms)]
            found.append(_bucket(most_ms, some))
            least_ms = most_ms
        return Score(_bucket(0, self.results), tuple(found), sum(map(len, self._open.values())))


def _places(window: Iterable[_Told], now_ms: int) -> Places:
    """Return where in an interval 1, 5 and 9 of 10 starts fall; the prior counts less the more starts are known."""
    scores = []
    for told in window:
        if not told.left:
            start_ms = told.started_ms or max(now_ms, told.made_ms)
            scores.append((_score(told.estimate.sampled, told.made_ms, start_ms), not told.started_ms))
    scores.sort()
    known = sum(not waits for _, waits in scores)
    found: list[float] = []
    share, left = 1.0, len(scores)
    for score, waits in scores:
        if not waits:
            share *= (left - 1) / left
            while len(found) < len(TARGETS) and 1 - share >= TARGETS[len(found)]:
                found.append(score)
        left -= 1
    highest = scores[-1][0] if scores else 0.0
    found += [max(highest, prior) for prior in PRIOR[len(found) :]]  # fewer have started
    part = min(1.0, known / TRUSTED)
    early, likely, late = (part * own + (1 - part) * prior for own, prior in zip(found, PRIOR, strict=True))
    return early, likely, late


def _logarithm(time_ms: int, made_ms: int) -> float:
    return math.log(max(0, time_ms - made_ms) + GRAIN_MS)


def _spread(sampled: Times, made_ms: int) -> float:
    """Return the scale of errors: half the width of the samples' interval, and what they have in common."""
    early_ms, likely_ms, late_ms = sampled
    low, middle = _logarithm(early_ms, made_ms), _logarithm(likely_ms, made_ms)
    high = _logarithm(late_ms, made_ms) if late_ms else middle + (middle - low)
    return COMMON_SPREAD + (high - low) / 2


def _score(sampled: Times, made_ms: int, started_ms: int) -> float:
    """Return where the start fell: 0 at the likely time, -1 and 1 a scale of errors before and after it."""
    _, likely_ms, _ = sampled
    away = _logarithm(started_ms, made_ms) - _logarithm(likely_ms, made_ms)
    return max(-SCORE_MAX, min(SCORE_MAX, away / _spread(sampled, made_ms)))


def _lead_ms(result: EstimateResult) -> int:
    return max(0, result.given[1] - result.made_ms)


def _bucket(within_ms: int, results: Collection[EstimateResult]) -> Bucket:
    counts = Counter(result.part for result in results)
    errors = [abs(result.started_ms - result.given[1]) for result in results if result.given[1]]
    parts = (counts[0], counts[1], counts[2], counts[3])
    return Bucket(within_ms, len(results), parts, median_low(errors) if errors else 0)
