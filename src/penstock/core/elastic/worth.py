"""The cost of a size for a job: its expected time per unit of work, including the restart to get there.

Cost of a size = weight / effective speed. The allocator makes the sum over jobs small, which is to make the power
mean with exponent -1 of their speeds large (Pollux, OSDI 2021, section 4.2): a job that is slow counts for more.
All costs are integers: equal inputs give equal plans on every machine.
"""

from collections.abc import Mapping, Sequence
from math import isqrt
from types import MappingProxyType

import msgspec

from penstock.core.elastic.speedup import SpeedCurve

Places = tuple[tuple[str, int], ...]
"""Replicas by node, in node order; () for a job that waits."""
UNIT = 1_000_000_000
"""Cost of a job of weight 1000 that runs at the speed of one replica."""
SERVICE_SCALE_MS = 3_600_000


class ElasticSettings(msgspec.Struct, frozen=True):
    hysteresis_milli: int = 500
    """A change must gain the cost of its checkpoint and restart plus this part of it: 500 = half as much again."""
    waiting_speed_milli: int = 50
    """A waiting job counts as if it ran this fast: so starting one is worth more than growing another."""
    rest_floor_ms: int = 60_000
    """A job is expected to go on for at least this long."""
    fair_normalised: bool = True
    """Measure each job against its own speed at an equal share of the devices, not at one replica."""


class ElasticJob(msgspec.Struct, frozen=True):
    """The allocator's view of one job whose number of replicas may change."""

    id: int
    minimum: int
    maximum: int
    """Of replicas. The caller lowers it to `explored_maximum` while the curve is a guess."""
    curve: SpeedCurve
    """Against one replica; where device models matter, at the mean of them over the pool's devices."""
    held: Places = ()
    """Its present places."""
    devices_each: int = 1
    weight_milli: int = 1000
    """How much its speed counts: priority, or `served_weight_milli`."""
    rest_ms: int = 0
    """Expected rest of its run at its present size. Without a better estimate: the time it has run so far."""
    restart_cost_ms: int = 30_000
    """Checkpoint, stop, start and load: what one change of size or place costs it."""
    may_pause: bool = False
    """A running job may also be sent back to wait."""
    models: Mapping[str, SpeedCurve] = MappingProxyType({})
    """Its speed on each device model that it may have, on the scale of `curve`; empty: they do not matter."""
    may_move: bool = True
    """It may go on on another model than it is on; else it is resized there."""

    @property
    def size(self) -> int:
        return replicas_of(self.held)


def replicas_of(places: Places) -> int:
    return sum(count for _, count in places)


def served_weight_milli(service_ms: int) -> int:
    """Return a weight that falls with attained service (device-milliseconds): 1000, at 3 device-hours 500.

    Durations are heavy-tailed, so a job that has run long is likely to go on for long, and serving short jobs first
    shortens the mean. Source: least attained service, Nuyens and Wierman 2008; Tiresias, NSDI 2019. The square root
    keeps long jobs from starving.
    """
    return isqrt(1_000_000 * SERVICE_SCALE_MS // (SERVICE_SCALE_MS + max(service_ms, 0)))


def explored_maximum(maximum: int, largest_seen: int) -> int:
    """Return how far a job may grow while larger sizes are a guess: to twice what it has run at, at first to 2."""
    return min(maximum, max(2, 2 * largest_seen))


class Worth:
    """The costs of one job's sizes; built once a round."""

    def __init__(
        self,
        job: ElasticJob,
        settings: ElasticSettings,
        fair: tuple[int, int] = (1, 1),
        *,
        there: SpeedCurve | None = None,
        now_milli: int = 0,
    ) -> None:
        """Take the job and, for normalising, the (replicas, nodes) of an equal share.

        Args:
            there: its speed on the device model that is weighed; None: models do not matter.
            now_milli: its present speed, on whichever models; 0: as `there` says.
        """
        self.job = job
        self._speed = (there or job.curve).speed_milli
        fair_milli = job.curve.speed_milli(*fair)
        self._weight = max(1, job.weight_milli * fair_milli // 1000) if settings.fair_normalised else job.weight_milli
        size = job.size
        self._stays_milli = now_milli
        self._now_milli = now_milli or (max(1, self._speed(size, len(job.held))) if size else 0)
        self._work = max(job.rest_ms, settings.rest_floor_ms) * self._now_milli
        self._restart_ms = job.restart_cost_ms * (1000 + settings.hysteresis_milli) // 1000
        self._waiting = self._weight * UNIT // settings.waiting_speed_milli

    def cost(self, size: int, nodes: int, *, moved: bool) -> int:
        """Return the cost of `size` replicas on `nodes` nodes; `moved` when that takes a restart."""
        if size <= 0:
            return self._waiting
        speed = self._speed(size, nodes) if moved or not self._stays_milli else self._stays_milli
        if moved and self._now_milli:
            # The rest of the work at the new speed, and the restart, over the rest of the work.
            speed = speed * self._work // (self._work + self._restart_ms * speed)
        return self._weight * UNIT // max(speed, 1)

    def cost_of(self, places: Places) -> int:
        return self.cost(replicas_of(places), len(places), moved=places != self.job.held)


def sizes_of(job: ElasticJob, per_node: int) -> list[int]:
    """Return the sizes to try, ascending: every size inside a node, then whole nodes, and always the bounds."""
    inside = range(job.minimum, min(job.maximum, per_node) + 1)
    first = -(-max(job.minimum, per_node + 1) // per_node) * per_node
    found = {*inside, *range(first, job.maximum + 1, per_node), job.minimum, job.maximum}
    if job.minimum <= job.size <= job.maximum:
        found.add(job.size)
    return sorted(found)


def envelope(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the `points` (size, cost; sizes ascending) at which a greedy choice should stop.

    The lower convex hull without rising parts: the gain per replica falls from step to step, so spending each device
    where it gains most is right over all jobs together. Source: multiple-choice knapsack, Sinha and Zoltners 1979.
    """
    hull: list[tuple[int, int]] = []
    for size, cost in points:
        if hull and cost >= hull[-1][1]:
            continue
        while len(hull) > 1:
            (size_a, cost_a), (size_b, cost_b) = hull[-2], hull[-1]
            if (cost_a - cost_b) * (size - size_b) > (cost_b - cost) * (size_b - size_a):
                break
            hull.pop()
        hull.append((size, cost))
    return hull
