"""Speed-up curves: how fast a job runs at each size, against one replica (1000 = as fast as one).

From the best source available: the job's reports at each size, else its owner's declaration, else Amdahl's law with
a default. Every curve is safe to climb: one replica more is never slower (a job can leave it idle), one node more
is never faster.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from penstock.core.elastic.goodput import (
    BatchChoice,
    BatchRange,
    GoodputModel,
    GradientNoise,
    StepReport,
    fit_step_model,
)

SERIAL_MILLI_DEFAULT = 50
"""Share of a job that does not speed up, if unknown: 16 replicas are as fast as 9.1."""
SPREAD_KEEPS_MILLI = 900
"""Speed kept across nodes, if unknown: low enough for one node to be preferred."""


class SpeedCurve(Protocol):
    def speed_milli(self, replicas: int, nodes: int) -> int:
        """Return the speed of `replicas` on `nodes` nodes: 0 for none, 1000 for one, never less for more replicas."""
        ...


class ThroughputReport(msgspec.Struct, frozen=True, order=True):
    """Throughput of a job at one size, in any unit of work a second x 1000."""

    replicas: int
    rate_milli: int


class AmdahlCurve(msgspec.Struct, frozen=True):
    """Speed by the share of the work that stays serial. Source: Amdahl 1967."""

    serial_milli: int = SERIAL_MILLI_DEFAULT
    spread_keeps_milli: int = SPREAD_KEEPS_MILLI

    def speed_milli(self, replicas: int, nodes: int) -> int:
        if replicas <= 1:
            return 1000 * max(replicas, 0)
        whole = 1_000_000 * replicas // (1000 + self.serial_milli * (replicas - 1))
        return whole if nodes <= 1 else max(1000, whole * self.spread_keeps_milli // 1000)


class PointsCurve:
    """Exact at known sizes, straight between them, and by Amdahl's law through the last one beyond."""

    def __init__(self, points: Iterable[tuple[int, int]], spread_keeps_milli: int = 1000) -> None:
        """Take (replicas, speed_milli) against one replica at 1000; a larger size that is slower counts as equal."""
        known = {1: 1000}
        for replicas, speed in sorted(points):
            if replicas > 1:
                known[replicas] = max(speed, known.get(replicas, 0))
        self._points: list[tuple[int, int]] = []
        for replicas, speed in sorted(known.items()):
            self._points.append((replicas, max(speed, self._points[-1][1] if self._points else 0)))
        last, speed = self._points[-1]
        serial = SERIAL_MILLI_DEFAULT if last == 1 else max(0, (1_000_000 * last // speed - 1000) // (last - 1))
        self._beyond = AmdahlCurve(min(serial, 1000), 1000)
        self._spread_keeps_milli = spread_keeps_milli

    def speed_milli(self, replicas: int, nodes: int) -> int:
        if replicas <= 1:
            return 1000 * max(replicas, 0)
        whole = self._on_one_node(replicas)
        return whole if nodes <= 1 else max(1000, whole * self._spread_keeps_milli // 1000)

    def _on_one_node(self, replicas: int) -> int:
        for (low, slow), (high, fast) in zip(self._points, self._points[1:], strict=False):
            if replicas <= high:
                return slow + (fast - slow) * (replicas - low) // (high - low)
        last, speed = self._points[-1]
        return max(speed, speed * self._beyond.speed_milli(replicas, 1) // max(1, self._beyond.speed_milli(last, 1)))


class GoodputCurve:
    """Speed by useful samples a second, at the best batch size for each placement; results are cached."""

    def __init__(self, model: GoodputModel) -> None:
        self._model = model
        alone, rung = model.best(1, 1)
        self.alone = alone.goodput
        """Useful samples a second of one replica."""
        self._single = [(0, rung), (1000, rung)]
        self._spread = [(0, rung), (1000, rung)]

    def speed_milli(self, replicas: int, nodes: int) -> int:
        if replicas <= 1:
            return 1000 * max(replicas, 0)
        if nodes > 1:
            return self._filled(self._spread, replicas, 2)
        return max(self._filled(self._single, replicas, 1), self._filled(self._spread, replicas, 2))

    def _filled(self, known: list[tuple[int, int]], replicas: int, nodes: int) -> int:
        while len(known) <= replicas:
            slower, rung = known[-1]
            choice, rung = self._model.best(len(known), nodes, rung)
            raw = round(1000 * choice.goodput / self.alone) if self.alone > 0.0 else 0
            known.append((max(slower, raw), rung))
        return known[replicas][0]


def goodput_curve(reports: Iterable[StepReport], noise: GradientNoise, batches: BatchRange) -> GoodputCurve | None:
    """Return the curve of a job that reports step times and gradient noise, or None before its first report."""
    seen = tuple(reports)
    return GoodputCurve(GoodputModel(fit_step_model(seen), noise, batches)) if seen else None


def best_batch(
    reports: Iterable[StepReport], noise: GradientNoise, batches: BatchRange, *, replicas: int, nodes: int
) -> BatchChoice:
    """Return the batch size that the job should run with at a placement. Raises: ValueError without a report."""
    return GoodputModel(fit_step_model(reports), noise, batches).best(replicas, nodes)[0]


def curve_of(
    throughputs: Sequence[ThroughputReport] = (),
    declared: Sequence[tuple[int, int]] = (),
    default: SpeedCurve | None = None,
) -> SpeedCurve:
    """Return the best known curve: learned over declared over `default` (Amdahl's law).

    Args:
        throughputs: the job's reports at each size; several of one size are averaged.
        declared: (replicas, speed_milli) from the job's owner.
    Where the job has not run yet a learned curve follows the declared one, or else Amdahl's law through the largest
    size that it has run at. Reports include the cost of spreading over nodes, so a learned curve does not add it.
    """
    shape: SpeedCurve | None = PointsCurve(declared, SPREAD_KEEPS_MILLI) if declared else default
    sizes: dict[int, list[int]] = {}
    for report in throughputs:
        if report.replicas > 0 and report.rate_milli > 0:
            sizes.setdefault(report.replicas, []).append(report.rate_milli)
    if not sizes:
        return shape or AmdahlCurve()
    rates = {size: sum(seen) // len(seen) for size, seen in sorted(sizes.items())}
    smallest = min(rates)
    # Against one replica that was never tried, the smallest known size is as fast as the shape says.
    alone = max(1, rates[smallest] * 1000 // (shape or AmdahlCurve()).speed_milli(smallest, 1))
    points = [(size, rate * 1000 // alone) for size, rate in rates.items()]
    if declared:
        last, speed = points[-1]
        guide = PointsCurve(declared)
        points += [
            (size, speed * guide.speed_milli(size, 1) // guide.speed_milli(last, 1))
            for size, _ in declared
            if size > last
        ]
    return PointsCurve(points)
