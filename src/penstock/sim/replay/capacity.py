"""The number of nodes that a waiting-time goal needs, by search over replays."""

from collections.abc import Callable
from typing import Literal

import msgspec

from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.model.quantities import parse_duration_ms
from penstock.sim.replay.measures import Measures, Spread
from penstock.traces.edit import NODES_MAX

Which = Literal["mean", "p50", "p90", "p99", "max"]
WHICH: tuple[str, ...] = ("mean", "p50", "p90", "p99", "max")
GROWTH_MAX = 64
"""Largest multiple of the trace's nodes that is tried."""


class Goal(msgspec.Struct, frozen=True):
    """An upper bound on the mean or a percentile of the waiting times. No job may wait for ever."""

    which: Which
    most_ms: int

    def met(self, found: Measures) -> bool:
        return not found.whole.unfinished and self.of(found.whole.wait_ms) <= self.most_ms

    def of(self, waits: Spread) -> float:
        return waits.most if self.which == "max" else getattr(waits, self.which)


class CapacityPoint(msgspec.Struct, frozen=True):
    """One number of nodes that was tried."""

    nodes: int
    met: bool
    measures: Measures


class Capacity(msgspec.Struct, frozen=True):
    """Result of a search. `nodes` is None when even the largest number that was tried misses the goal."""

    nodes: int | None
    points: tuple[CapacityPoint, ...]
    """By number of nodes."""


def goal_of(text: str) -> Goal:
    """Return the goal in words such as `p99=1h` or `mean=10m`. Raises: InvalidInput."""
    which, _, time = text.partition("=")
    if which not in WHICH:
        raise _bad(text, f"'{which}' is none of {', '.join(WHICH)}", nearest(which, WHICH))
    try:
        return Goal(which, parse_duration_ms(time))  # type: ignore[arg-type]
    except ValueError as error:
        raise _bad(text, str(error), "such as p99=1h or mean=10m") from None


def _bad(text: str, what: str, hint: str) -> InvalidInput:
    problem = Problem("invalid_value", "wait", f"wait is '{text}': {what}", text, hint)
    return InvalidInput(problem.message, problems=(problem,))


def capacity(present: int, goal: Goal, measured: Callable[[int], Measures]) -> Capacity:
    """Return the smallest number of nodes that meets the goal, and all numbers tried on the way.

    Assumes that more nodes never make waiting worse. Where that fails for single numbers, as it may when jobs are
    placed differently, the answer still meets the goal, and the next lower number that was tried does not.

    Args:
        present: number of nodes to begin with.
        measured: replays the trace on this number of nodes.
    """
    points: dict[int, CapacityPoint] = {}

    def met(nodes: int) -> bool:
        if nodes not in points:
            found = measured(nodes)
            points[nodes] = CapacityPoint(nodes, goal.met(found), found)
        return points[nodes].met

    low, high = 0, max(1, present)
    most = min(NODES_MAX, GROWTH_MAX * high)
    while not met(high):
        if high >= most:
            return Capacity(None, _sorted(points))
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if met(middle):
            high = middle
        else:
            low = middle
    return Capacity(high, _sorted(points))


def _sorted(points: dict[int, CapacityPoint]) -> tuple[CapacityPoint, ...]:
    return tuple(points[nodes] for nodes in sorted(points))
