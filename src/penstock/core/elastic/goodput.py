"""The goodput of a training job at a size it has not run at yet: a model of its step time, fitted to its reports.

Goodput is throughput x statistical efficiency: samples a second, less the waste of a larger batch.
Source: Qiao et al., Pollux, OSDI 2021 (sections 3.1 and 3.2); efficiency from the gradient noise scale,
McCandlish et al., An Empirical Model of Large-Batch Training, 2018.

The fit differs: Pollux minimises the error of all seven parameters at once by gradient descent. Here reports separate
computing and waiting, so for each fixed overlap both parts are straight lines with closed solutions, and the best
of a few overlaps is taken. The same reports in any order give the same model.
"""

from collections.abc import Iterable, Sequence
from math import ceil, log

import msgspec

OVERLAPS = (1.0, 1.15, 1.35, 1.6, 2.0, 2.6, 3.5, 5.0, 7.0, 10.0)
"""Exponents tried: 1 is no overlap of computing and communication, 10 is almost the larger of the two."""
_OVERLAP_PRIOR = 1e-3
"""Weight of (overlap - 1)^2 against the mean squared error of log step time: few reports do not separate overlaps."""
_UNSEEN_NODES = 1.1
"""Communication across nodes, before it is measured, is assumed to be this much slower than inside one."""
_EPSILON = 1e-8
LADDER_STEPS = 24
"""Total batch sizes tried for one size, in geometric steps."""


class StepReport(msgspec.Struct, frozen=True, order=True):
    """One measured configuration of a job: mean times of a step, in microseconds."""

    nodes: int
    replicas: int
    local_batch: int
    step_us: int
    """Forward, backward and update with communication."""
    sync_us: int
    """The part of it that waited for communication."""


class GradientNoise(msgspec.Struct, frozen=True):
    """Squared norm of the gradient and its variance at the initial batch size: any unit, only the ratio counts."""

    sqr: float
    var: float


class BatchRange(msgspec.Struct, frozen=True):
    """The batch sizes that a job accepts (samples)."""

    initial: int
    largest: int
    """Of all replicas and accumulation steps together."""
    local_min: int
    local_max: int
    """Of one replica in one pass: bounded by device memory."""
    fixed: int = 0
    """The total batch size of a job that does not adapt it; 0 for one that does."""


class BatchChoice(msgspec.Struct, frozen=True):
    local_batch: int
    accumulation_steps: int
    goodput: float
    """Useful samples a second."""


class StepModel(msgspec.Struct, frozen=True):
    """Fitted times in microseconds; line = (at zero, per unit)."""

    compute: tuple[float, float]
    """Over local batch size."""
    within: tuple[float, float]
    """Communication inside one node, over replicas beyond 2."""
    across: tuple[float, float]
    """Communication between nodes, over replicas beyond 2."""
    overlap: float

    def network_us(self, replicas: int, nodes: int) -> float:
        if replicas <= 1:
            return 0.0
        base, slope = self.across if nodes > 1 else self.within
        return base + slope * max(replicas - 2, 0)

    def pass_us(self, local_batch: int) -> float:
        """Return the time of one forward and backward pass."""
        return self.compute[0] + self.compute[1] * local_batch

    def step_us(self, pass_us: float, network_us: float) -> float:
        if network_us <= 0.0:
            return pass_us
        if self.overlap == 1.0:
            return pass_us + network_us
        high, low = (pass_us, network_us) if pass_us >= network_us else (network_us, pass_us)
        return float(high * (1.0 + (low / high) ** self.overlap) ** (1.0 / self.overlap))


def fit_step_model(reports: Iterable[StepReport]) -> StepModel:
    """Return the step-time model of a job from at least one report, in any order.

    With one local batch size, half of its time is assumed to be constant. Communication not measured yet is optimistic
    (none beyond other measurements), so that a job is tried at a size before it is ruled out.
    Raises: ValueError when there is no report.
    """
    seen = sorted(set(reports))
    if not seen:
        raise ValueError("reports: at least one is needed to fit a model")
    compute = _compute_line(seen)
    fits = (_with_overlap(seen, compute, overlap) for overlap in OVERLAPS)
    return min(fits, key=lambda fit: fit[0])[1]


def _compute_line(seen: Sequence[StepReport]) -> tuple[float, float]:
    points = [(float(r.local_batch), max(float(r.step_us - r.sync_us), 1.0)) for r in seen]
    if len({x for x, _ in points}) == 1:
        mean = sum(y for _, y in points) / len(points)
        return mean / 2, mean / 2 / points[0][0]
    return _line(points)


def _with_overlap(
    seen: Sequence[StepReport], compute: tuple[float, float], overlap: float
) -> tuple[tuple[int, float], StepModel]:
    inside: list[tuple[float, float]] = []
    between: list[tuple[float, float]] = []
    for report in seen:
        if report.replicas <= 1:
            continue
        step, own = float(report.step_us), max(float(report.step_us - report.sync_us), 1.0)
        waited = step * max(1.0 - (own / step) ** overlap, _EPSILON) ** (1.0 / overlap)
        (between if report.nodes > 1 else inside).append((float(max(report.replicas - 2, 0)), waited))
    within = _line(inside) if inside else (0.0, 0.0)
    across = _line(between) if between else (within[0] * _UNSEEN_NODES, within[1] * _UNSEEN_NODES)
    if between and not inside:
        within = (across[0] / 2, across[1] / 2)
    model = StepModel(compute, within, across, overlap)
    error = 0.0
    for report in seen:
        predicted = model.step_us(model.pass_us(report.local_batch), model.network_us(report.replicas, report.nodes))
        error += log(max(predicted, _EPSILON) / max(report.step_us, 1)) ** 2
    # Quantised, so that equal fits fall to the smaller overlap on every machine.
    return (round(1e9 * (error / len(seen) + _OVERLAP_PRIOR * (overlap - 1.0) ** 2)), overlap), model


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the line with the least squared relative error, neither part below 0 (two normal equations)."""
    s0 = s1 = s2 = t0 = t1 = 0.0
    for x, y in points:
        weight = 1.0 / (y * y)
        s0, s1, s2 = s0 + weight, s1 + weight * x, s2 + weight * x * x
        t0, t1 = t0 + weight * y, t1 + weight * x * y
    determinant = s0 * s2 - s1 * s1
    if determinant <= 1e-9 * s0 * s2:
        return t0 / s0, 0.0
    base, slope = (t0 * s2 - t1 * s1) / determinant, (t1 * s0 - t0 * s1) / determinant
    if slope < 0.0:
        return t0 / s0, 0.0
    return (base, slope) if base >= 0.0 else (0.0, t1 / s2)


class GoodputModel:
    """Predicts the best goodput of a job for a placement, over the batch sizes that it accepts."""

    def __init__(self, steps: StepModel, noise: GradientNoise, batches: BatchRange) -> None:
        self._steps, self._batches = steps, batches
        total = noise.var + noise.sqr
        self._share = noise.sqr / total if total > 0.0 and noise.sqr > 0.0 else 0.0
        """0: the gradient is all noise and any batch is as efficient as the initial one."""
        self._ladders: dict[int, tuple[int, ...]] = {}

    def efficiency(self, batch: int) -> float:
        """Return useful progress per sample at `batch`, 1 at the initial batch size."""
        scale = batch / self._batches.initial
        return 1.0 / ((1.0 - self._share) + self._share * scale)

    def goodput(self, replicas: int, nodes: int, local_batch: int, accumulation_steps: int) -> float:
        """Return useful samples a second."""
        one_pass = self._steps.pass_us(local_batch)
        step = self._steps.step_us(one_pass, self._steps.network_us(replicas, nodes))
        batch = replicas * local_batch * (accumulation_steps + 1)
        return 1e6 * batch / (step + one_pass * accumulation_steps) * self.efficiency(batch)

    def best(self, replicas: int, nodes: int, near: int = -1) -> tuple[BatchChoice, int]:
        """Return the best batch size and its rung; goodput 0 when the range allows no batch at this size.

        With `near` (a rung that was best at a similar size) it climbs from there instead of trying all rungs.
        """
        rungs = self._rungs(replicas)
        nothing = BatchChoice(0, 0, 0.0)
        if not rungs:
            return nothing, -1
        if near < 0:
            tried = [self._at(replicas, nodes, batch) for batch in rungs]
            at = max(range(len(tried)), key=lambda i: (tried[i].goodput, -i))
            return tried[at], at
        at = min(near, len(rungs) - 1)
        best = self._at(replicas, nodes, rungs[at])
        for way in (1, -1):
            following = at + way
            moved = False
            while 0 <= following < len(rungs):
                other = self._at(replicas, nodes, rungs[following])
                if other.goodput <= best.goodput:
                    break
                best, at, moved = other, following, True
                following += way
            if moved:
                break
        return best, at

    def _at(self, replicas: int, nodes: int, batch: int) -> BatchChoice:
        limits = self._batches
        local = ceil(batch / replicas)
        extra = ceil(local / limits.local_max) - 1
        if replicas == 1 and batch > limits.initial:
            extra = max(1, extra)  # one replica in one pass has no second gradient to measure the noise with
        each = min(ceil(local / (extra + 1)), limits.largest // (replicas * (extra + 1)))
        if each < limits.local_min:
            return BatchChoice(each, extra, 0.0)
        return BatchChoice(each, extra, self.goodput(replicas, nodes, each, extra))

    def _rungs(self, replicas: int) -> tuple[int, ...]:
        limits = self._batches
        if limits.fixed:
            return (limits.fixed,)
        lowest = max(limits.initial, limits.local_min * replicas)
        found = self._ladders.get(lowest)
        if found is None:
            found = self._ladders[lowest] = _ladder(lowest, limits.largest)
        return found


def _ladder(lowest: int, largest: int) -> tuple[int, ...]:
    if lowest > largest:
        return ()
    growth = (largest / lowest) ** (1.0 / (LADDER_STEPS - 1))
    return tuple(sorted({min(largest, round(lowest * growth**i)) for i in range(LADDER_STEPS)}))
