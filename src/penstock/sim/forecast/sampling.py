"""Draws how long jobs hold their places, jointly: siblings turn out alike, and no group's outcome is ever certain.

A job's groups, from its burst to all jobs, form a chain. It draws a length seen in its narrowest group or, the more
often the fewer lengths that group has seen (`TRUST`), one drawn the same way from the next wider group. A length drawn
in a sample counts as seen in that sample: if one of a burst turns out long, its siblings probably do, so the samples of
a burst's total spread as bursts do and not as many independent jobs would.

Source: after the posterior predictive of a hierarchical Dirichlet process (Teh et al. 2006), with every run counted in
every group: wider groups weigh more than one table each, as in interpolated back-off.
"""

import math
import random
from bisect import bisect_right, insort
from collections.abc import Sequence
from statistics import NormalDist

from penstock.core.model.ids import JobId
from penstock.core.predict.features import GroupKey, JobFeatures
from penstock.core.predict.runtime import RuntimePredictor, Source

TRUST: dict[Source, float] = {
    "burst": 1.0,
    "user_name": 1.0,
    "user_shape": 4.0,
    "name": 4.0,
    "queue": 8.0,
    "shape": 8.0,
    "all": 1.0,
}
"""Number of lengths a group must have seen to be trusted as much as the next wider one."""
LEAST_MS, TAIL = 60_000, 0.5
"""Beyond all observed lengths, lengths follow a Pareto tail of this exponent."""
LEAST_SHARE = 1e-9
_NORMAL = NormalDist()
DECLARED_SPREAD = 0.6
"""Standard deviation of the logarithm of a length over its declared estimate."""


Level = tuple[Source, GroupKey, Sequence[int]]


class Urns:
    """One sample of the lengths of all jobs. Draw running jobs first, the oldest first: they condition the others."""

    def __init__(self, predictor: RuntimePredictor, draw: random.Random) -> None:
        self._predictor, self._draw = predictor, draw
        self._drawn: dict[GroupKey, list[int]] = {}

    def length_ms(self, job_id: JobId, features: JobFeatures, age_ms: int) -> int | None:
        """Draw how long a job that has held its places for `age_ms` holds them in all; None when nothing is known."""
        chain = self._chain(job_id, features)
        if not chain and not features.estimate_ms:
            return None
        shares = self._longer(chain, age_ms, features.estimate_ms)
        found = 0
        passed: list[GroupKey] = []
        for (source, key, past), beyond in zip(chain, shares[1:], strict=True):
            passed.append(key)
            drawn = self._drawn.get(key, ())
            own, more = _longer_than(past, age_ms), _longer_than(drawn, age_ms)
            chosen = self._draw.random() * (own + more + TRUST[source] * beyond)
            if chosen < own:
                found = past[len(past) - 1 - int(chosen)]
            elif chosen < own + more:
                found = drawn[len(drawn) - 1 - int(chosen - own)]
            if found:
                break
        else:
            found = self._new(age_ms, features.estimate_ms)
        for key in passed:
            insort(self._drawn.setdefault(key, []), found)
        return max(age_ms + 1, min(found, features.limit_ms) if features.limit_ms else found)

    def count(self, job_id: JobId, features: JobFeatures, length_ms: int) -> None:
        """Count a length from another source as drawn here: siblings probably turn out like it."""
        for _, key, _ in self._chain(job_id, features):
            insort(self._drawn.setdefault(key, []), length_ms)

    def _chain(self, job_id: JobId, features: JobFeatures) -> list[Level]:
        """Return the groups that are more informative than the estimate; all of them without an estimate."""
        chain = self._predictor.past(job_id, features)
        if features.estimate_ms:
            return [level for level in chain if level[0] in ("burst", "user_name", "user_shape")]
        return chain if chain[-1][2] else []

    def _longer(self, chain: Sequence[Level], age_ms: int, told_ms: int) -> list[float]:
        """Return the share of lengths above `age_ms` in each group, and last in new draws."""
        share = _longer_than_told(age_ms, told_ms) if told_ms else (LEAST_MS / max(LEAST_MS, age_ms)) ** TAIL
        shares = [share]
        for source, key, past in reversed(chain):
            drawn, trust = self._drawn.get(key, ()), TRUST[source]
            longer = _longer_than(past, age_ms) + _longer_than(drawn, age_ms)
            share = (longer + trust * share) / (len(past) + len(drawn) + trust)
            shares.append(share)
        return shares[::-1]

    def _new(self, age_ms: int, told_ms: int) -> int:
        if told_ms:
            beyond = max(LEAST_SHARE, _longer_than_told(age_ms, told_ms)) * (1.0 - self._draw.random())
            return round(told_ms * math.exp(DECLARED_SPREAD * _NORMAL.inv_cdf(1.0 - max(LEAST_SHARE / 1e3, beyond))))
        above: float = (1.0 - self._draw.random()) ** (1 / TAIL)
        return round(max(LEAST_MS, age_ms) / above)


def _longer_than_told(age_ms: int, told_ms: int) -> float:
    """Return the share of jobs with the estimate `told_ms` that run longer than `age_ms`: a log-normal around it."""
    return 1.0 - _NORMAL.cdf(math.log(age_ms / told_ms) / DECLARED_SPREAD) if age_ms else 1.0


def _longer_than(ascending: Sequence[int], age_ms: int) -> int:
    return len(ascending) - bisect_right(ascending, age_ms)
