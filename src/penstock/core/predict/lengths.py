"""Run times of one group of jobs: a survival curve from runs that ended and runs that have not.

A run that has not ended counts only as longer than its age (censored). Without that, a group looks short whenever its
long runs have not ended yet, which is most of the time. Whole numbers only: the same runs give the same curve anywhere.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import neg
from typing import NamedTuple

import msgspec

WHOLE = 1_000_000_000
"""The share of all jobs, in parts per billion."""
TAIL_FACTOR = 2
"""Runs with only a lower bound, when it is the highest of all, are assumed to last this many times as long."""


class ObservedRun(NamedTuple):
    """One run: its length when it has ended, else its age."""

    length_ms: int
    ended: bool


class Lengths(msgspec.Struct, frozen=True):
    """A survival curve: of all runs, `longer[i]` (parts per billion) are longer than `points_ms[i]`; the last is 0."""

    points_ms: tuple[int, ...]
    """Ascending, all above 0."""
    longer: tuple[int, ...]
    ended: int
    """Number of ended runs that it is based on."""

    def quantile_ms(self, permille: int, elapsed_ms: int = 0) -> int:
        """Return the length that `permille` of the runs longer than `elapsed_ms` do not exceed; never below it.

        Beyond the longest run known the curve is continued as a Pareto tail of exponent 1: of the runs that reach
        an age, half reach twice that age. Raises: ValueError unless 0 < permille < 1000.
        """
        if not 0 < permille < 1000:
            raise ValueError(f"permille is {permille}, expected 1 to 999")
        at, base = self._at(elapsed_ms)
        if base == 0:
            return elapsed_ms * 1000 // (1000 - permille)
        wanted = base * (1000 - permille) // 1000
        return self.points_ms[bisect_left(self.longer, -wanted, lo=at, key=neg)]

    def mean_ms(self, elapsed_ms: int = 0) -> int:
        """Return the mean length of the runs longer than `elapsed_ms`; twice that where none is known."""
        at, base = self._at(elapsed_ms)
        if base == 0:
            return 2 * elapsed_ms
        before, total = base, 0
        for point_ms, longer in zip(self.points_ms[at:], self.longer[at:], strict=True):
            total += point_ms * (before - longer)
            before = longer
        return total // base

    def _at(self, elapsed_ms: int) -> tuple[int, int]:
        """Return the first point above `elapsed_ms` and the share of runs that reach it."""
        at = bisect_right(self.points_ms, elapsed_ms)
        return at, self.longer[at - 1] if at else WHOLE


def lengths_of(runs: Iterable[ObservedRun]) -> Lengths:
    """Return the survival curve of `runs`, in any order; a length below 1 ms counts as 1 ms.

    Source: product-limit estimator, Kaplan and Meier 1958; at equal lengths a run that ended is counted before one
    that goes on, as is usual. Raises: ValueError when there is no run.
    """
    ordered = sorted([(max(1, length_ms), not ended) for length_ms, ended in runs])
    if not ordered:
        raise ValueError("no run: a curve needs at least one")
    points: list[int] = []
    longer: list[int] = []
    share, at_risk = WHOLE, len(ordered)
    for length_ms, goes_on in ordered:
        if not goes_on:
            share = share * (at_risk - 1) // at_risk
            if points and points[-1] == length_ms:
                longer[-1] = share
            else:
                points.append(length_ms)
                longer.append(share)
        at_risk -= 1
    ended = sum(not goes_on for _, goes_on in ordered)
    if share > 0:
        points.append(ordered[-1][0] * TAIL_FACTOR)
        longer.append(0)
    return Lengths(tuple(points), tuple(longer), ended)


def around(length_ms: int) -> Lengths:
    """Return the curve for a declared length: half of the runs are longer, one in ten twice as long."""
    half, double = max(1, length_ms // 2), max(1, length_ms) * 2
    points = (half, max(half + 1, length_ms), max(half + 2, double))
    return Lengths(points, (WHOLE * 9 // 10, WHOLE // 2, 0), 0)
