"""Levels and counts over time, at several resolutions: fine for the last hour, coarse for three months.

A level counts for as long as it lasted: each bucket has the lowest, the mean over time and the highest. Buckets lie in
blocks, and a block in which nothing was held or counted is not kept, so that idle tenants cost nothing. What is kept of
tenants has a bound: beyond it their oldest blocks go.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.ledger.levels import CLUSTER, Key

HOUR_MS = 3_600_000


class Resolution(NamedTuple):
    step_ms: int
    keep_ms: int


RESOLUTIONS = (
    Resolution(10_000, HOUR_MS * 7 // 6),
    Resolution(60_000, 25 * HOUR_MS),
    Resolution(900_000, 91 * 24 * HOUR_MS),
)
"""A little more than an hour, a day and 90 days, so that windows of these lengths lie within."""
BLOCK = 60
"""Buckets of a block; each has three numbers of four bytes."""
BLOCKS_MAX = 3_000
"""Of each resolution, of all tenants together: 2 MB. The cluster's own are few, some 200 for each model."""
KEYS_MAX = 10_000
"""Levels and counts; what would be one more is not kept."""


class Points(NamedTuple):
    """One series; None where nothing is known: before it was kept, and ahead."""

    values: list[float | None]
    """Of a level its mean, of a count its sum."""
    lowest: list[float | None]
    highest: list[float | None]


class RingImage(msgspec.Struct, frozen=True):
    """The whole of `Rings`."""

    begun_ms: int
    levels: tuple[tuple[str, str, str, int, int], ...]
    """Holder, name, model, value, and since when it is counted up to (unix ms)."""
    blocks: tuple[tuple[tuple[tuple[str, str, str], int, bytes], ...], ...]
    since_ms: tuple[int, ...]


class _Ring:
    """One resolution. A bucket has its mean over the whole of it (a count: its sum), lowest (-1: none) and highest."""

    def __init__(self, resolution: Resolution) -> None:
        self.step_ms, self.keep_ms = resolution
        self.blocks: dict[tuple[Key, int], array[float]] = {}
        self.since_ms = 0
        """Blocks of tenants that ended before were dropped, though they are not that old."""
        self._tenants = 0
        self._newest = 0

    def spread(self, key: Key, value: int, from_ms: int, until_ms: int, now_ms: int) -> None:
        """Count a level that lasted for [from_ms, until_ms)."""
        step = self.step_ms
        start_ms = max(from_ms, (now_ms - self.keep_ms) // step * step)
        if start_ms >= until_ms:
            return
        first, last = start_ms // step, (until_ms - 1) // step
        for bucket in (first, *([last] if last > first else [])) if value == 0 else range(first, last + 1):
            covered_ms = min(until_ms, (bucket + 1) * step) - max(start_ms, bucket * step)
            if value == 0 and covered_ms == step:
                continue
            block, at = self._bucket(key, bucket)
            block[at] += value * covered_ms / step
            block[at + 1] = value if block[at + 1] < 0 else min(block[at + 1], value)
            block[at + 2] = max(block[at + 2], value)

    def add(self, key: Key, time_ms: int, by: float, now_ms: int) -> None:
        """Add to a count."""
        if time_ms >= now_ms - self.keep_ms:
            block, at = self._bucket(key, time_ms // self.step_ms)
            block[at] += by

    def at(self, key: Key, bucket: int) -> tuple[float, float, float]:
        """Return mean (or sum), lowest (-1: none was counted) and highest of a bucket."""
        block = self.blocks.get((key, bucket // BLOCK))
        if block is None:
            return 0.0, -1.0, 0.0
        at = bucket % BLOCK * 3
        return block[at], block[at + 1], block[at + 2]

    def put(self, key: Key, number: int, block: "array[float]") -> None:
        """Keep a block, and drop what is too old or too much."""
        self.blocks[key, number] = block
        self._tenants += key.holder != CLUSTER
        if number > self._newest:
            self._newest = number
            oldest = number - self.keep_ms // self.step_ms // BLOCK - 1
            self._drop(oldest, tenants_only=False)
        while self._tenants > BLOCKS_MAX:
            first = min(number for key, number in self.blocks if key.holder != CLUSTER)
            self._drop(first + 1, tenants_only=True)
            self.since_ms = max(self.since_ms, (first + 1) * BLOCK * self.step_ms)

    def _drop(self, before: int, *, tenants_only: bool) -> None:
        """Drop blocks of lower numbers."""
        old = [at for at in self.blocks if at[1] < before and (at[0].holder != CLUSTER or not tenants_only)]
        for at in old:
            del self.blocks[at]
        self._tenants -= sum(key.holder != CLUSTER for key, _ in old)

    def _bucket(self, key: Key, bucket: int) -> "tuple[array[float], int]":
        block = self.blocks.get((key, bucket // BLOCK))
        if block is None:
            block = array("f", (0.0, -1.0, 0.0) * BLOCK)
            self.put(key, bucket // BLOCK, block)
        return block, bucket % BLOCK * 3


class Rings:
    """Takes changes of levels and counts in order of time. For one thread."""

    def __init__(self, image: RingImage | None = None) -> None:
        self.begun_ms = image.begun_ms if image else 0
        """Time of the first change (unix ms); 0: nothing is known."""
        self._levels: dict[Key, tuple[int, int]] = {}
        self._rings = tuple(map(_Ring, RESOLUTIONS))
        if image is not None:
            self._levels = {Key(*key): (value, at_ms) for *key, value, at_ms in image.levels}
            for ring, blocks, since_ms in zip(self._rings, image.blocks, image.since_ms, strict=True):
                for kept, number, body in blocks:
                    ring.put(Key(*kept), number, array("f", body))
                ring.since_ms = since_ms

    def image(self) -> RingImage:
        levels = tuple((*key, *value) for key, value in self._levels.items())
        blocks = tuple(
            tuple((tuple(key), number, block.tobytes()) for (key, number), block in ring.blocks.items())
            for ring in self._rings
        )
        return RingImage(self.begun_ms, levels, blocks, tuple(ring.since_ms for ring in self._rings))  # type: ignore[arg-type]

    @property
    def keys(self) -> list[Key]:
        """All levels and counts that have ever been taken, in order."""
        return sorted(self._levels)

    def level(self, key: Key, value: int, time_ms: int, now_ms: int) -> None:
        """Take a level's new value.

        Args:
            now_ms: the present: what is older than a resolution keeps is not worked out for it.
        """
        self.begun_ms = self.begun_ms or time_ms
        if key not in self._levels and len(self._levels) >= KEYS_MAX:
            return
        was, since_ms = self._levels.get(key, (0, self.begun_ms))
        self._levels[key] = value, time_ms
        for ring in self._rings:
            ring.spread(key, was, since_ms, time_ms, now_ms)

    def count(self, key: Key, time_ms: int, now_ms: int, by: float = 1) -> None:
        """Count something that happened."""
        self.begun_ms = self.begun_ms or time_ms
        if key not in self._levels:
            if len(self._levels) >= KEYS_MAX:
                return
            self._levels[key] = 0, time_ms
        for ring in self._rings:
            ring.add(key, time_ms, by, now_ms)

    def since_ms(self, step_ms: int, now_ms: int) -> int:
        """Return since when values of all holders are kept at a step."""
        ring = self._ring(step_ms)
        return max(self.begun_ms, now_ms - ring.keep_ms, ring.since_ms)

    def levels(self, key: Key, from_ms: int, step_ms: int, points: int, now_ms: int) -> Points:
        """Return the course of a level in steps from `from_ms` on, which `grid` has given."""
        found = Points([], [], [])
        ring, (value, at_ms) = self._ring(step_ms), self._levels.get(key, (0, now_ms))
        for begin_ms, covered_ms in self._steps(from_ms, step_ms, points, now_ms):
            if covered_ms <= 0:
                _add(found, None, None, None)
                continue
            total, low, high = 0.0, math.inf, 0.0
            for bucket in range(begin_ms // ring.step_ms, (begin_ms + step_ms) // ring.step_ms):
                mean, lowest, highest = ring.at(key, bucket)
                since, until = max(at_ms, bucket * ring.step_ms), min(now_ms, (bucket + 1) * ring.step_ms)
                if until > since:  # it still is what it was made last
                    mean += value * (until - since) / ring.step_ms
                    lowest = value if lowest < 0 else min(lowest, value)
                    highest = max(highest, value)
                if bucket * ring.step_ms < now_ms and (bucket + 1) * ring.step_ms > self.begun_ms:
                    total, low, high = total + mean * ring.step_ms, min(low, max(lowest, 0)), max(high, highest)
            _add(found, total / covered_ms, low, high)
        return found

    def counts(self, key: Key, from_ms: int, step_ms: int, points: int, now_ms: int) -> list[float | None]:
        """Return how often something happened in each step."""
        ring, found = self._ring(step_ms), list[float | None]()
        for begin_ms, covered_ms in self._steps(from_ms, step_ms, points, now_ms):
            buckets = range(begin_ms // ring.step_ms, (begin_ms + step_ms) // ring.step_ms)
            found.append(sum(ring.at(key, bucket)[0] for bucket in buckets) if covered_ms > 0 else None)
        return found

    def _steps(self, from_ms: int, step_ms: int, points: int, now_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the begin of each step, and how much of it is known: nothing before the first change, and ahead."""
        for number in range(points):
            begin_ms = from_ms + number * step_ms
            covered_ms = min(begin_ms + step_ms, now_ms) - max(begin_ms, self.begun_ms)
            yield begin_ms, covered_ms if self.begun_ms else 0

    def _ring(self, step_ms: int) -> _Ring:
        """Return the coarsest resolution of which a step is a multiple."""
        return next(ring for ring in reversed(self._rings) if step_ms % ring.step_ms == 0)


def grid(from_ms: int, until_ms: int, step_ms: int, now_ms: int, most: int) -> tuple[int, int, int]:
    """Return begin, step and number of points for a window: the finest that is kept for all of it, at most `most`.

    Args:
        step_ms: the step that is wanted, which may be made longer; 0: as fine as possible.
    """
    wanted = max(step_ms, -(-(until_ms - from_ms) // (most - 1)))
    kept = [one.step_ms for one in RESOLUTIONS if from_ms >= now_ms - one.keep_ms] or [RESOLUTIONS[-1].step_ms]
    base = max((step for step in kept if step <= wanted), default=kept[0])
    step = -(-wanted // base) * base
    begin_ms = from_ms // step * step
    return begin_ms, step, -(-(until_ms - begin_ms) // step)


def summed(several: Sequence[list[float | None]]) -> list[float | None]:
    """Return series added up, point by point; None where one of them is not known."""
    return [None if None in each else sum(one or 0 for one in each) for each in zip(*several, strict=True)]


def _add(points: Points, value: float | None, low: float | None, high: float | None) -> None:
    points.values.append(value)
    points.lowest.append(low)
    points.highest.append(high)
