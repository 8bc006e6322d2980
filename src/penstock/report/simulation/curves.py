"""Curves of several policies in one picture: distributions on a logarithmic axis, and amounts over time."""

import math
from collections.abc import Callable, Sequence

import msgspec

from penstock.report import svg
from penstock.report.svg import TimeScale, num
from penstock.report.text import duration, esc

HEIGHT = 210.0
TOP = 10.0
POINTS_MAX = 400
SERIES_MAX = 8
"""Number of colours; more policies than that share them."""


class Series(msgspec.Struct, frozen=True):
    """One policy's points, x ascending."""

    name: str
    points: tuple[tuple[float, float], ...]


def distribution(values: Sequence[float], name: str) -> Series:
    """Return the part of `values` (ascending) that is at most x, for at most `POINTS_MAX` values of x."""
    count = len(values)
    step = max(1, -(-count // POINTS_MAX))
    chosen = sorted({*range(0, count, step), count - 1}) if count else []
    return Series(name, tuple((float(values[i]), (i + 1) / count) for i in chosen))


class LogScale(msgspec.Struct, frozen=True):
    """Maps values from `low` to `high` (both above 0) to x; values below `low` are at its left edge."""

    low: float
    high: float

    def x(self, value: float) -> float:
        if value <= self.low:
            return svg.LEFT
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return svg.LEFT + (svg.WIDTH - svg.LEFT - svg.RIGHT) * min(1.0, part)


def shares(series: Sequence[Series], title: str, ticks: Sequence[float], label: Callable[[float], str]) -> str:
    """Return distributions as one SVG: at each x the part of the jobs that is at most there.

    Args:
        ticks: round values of x, of which those in range are labelled; the first is the left edge.
    """
    highest = max((one.points[-1][0] for one in series if one.points), default=1.0)
    scale = LogScale(ticks[0], max(highest, ticks[0] * 10))
    parts = [svg.level(_y(part, 1.0), f"{100 * part:.0f} %") for part in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)]
    parts += [svg.tick(scale.x(value), TOP, TOP + HEIGHT, label(value)) for value in ticks if value <= scale.high]
    for i, one in enumerate(series):
        points = [(scale.x(x), _y(part, 1.0)) for x, part in one.points]
        parts.append(_line(i, one.name, [(svg.LEFT, _y(0.0, 1.0)), *points]))
    return svg.frame(TOP + HEIGHT + 24, title, "".join(parts))


def over_time(series: Sequence[Series], title: str, begun_ms: int, ended_ms: int, limit: float | None = None) -> str:
    """Return amounts over time (x: unix ms) as one SVG of steps; `limit` is drawn as a line of its own."""
    scale = TimeScale(begun_ms, ended_ms)
    highest = max((y for one in series for _, y in one.points), default=1.0)
    most = _even(max(highest, limit or 0.0))
    parts = [svg.level(_y(most * part, most), f"{most * part:,.0f}") for part in (0.0, 0.5, 1.0)]
    parts.append(svg.axis(scale, TOP, TOP + HEIGHT))
    if limit is not None:
        parts.append(svg.across("limit", _y(limit, most)))
    for i, one in enumerate(series):
        points = [(scale.x(int(x)), _y(value, most)) for x, value in _thinned(one.points)]
        parts.append(_line(i, one.name, points, steps=True))
    return svg.frame(TOP + HEIGHT + 24, title, "".join(parts))


def _even(value: float) -> float:
    """Return the next number from `value` up that has one digit and zeros, or half of that."""
    size = 10 ** math.floor(math.log10(max(value, 1.0)))
    return next(float(size * step) for step in (1, 2, 3, 4, 5, 6, 8, 10) if size * step >= value)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, -(-len(points) // (2 * POINTS_MAX)))
    return list(points[::step])


def _y(value: float, most: float) -> float:
    return TOP + HEIGHT * (1 - value / most)


def _line(place: int, name: str, points: Sequence[tuple[float, float]], *, steps: bool = False) -> str:
    if not points:
        return ""
    path = "".join(f"H{num(x)}V{num(y)}" if steps else f"L{num(x)} {num(y)}" for x, y in points[1:])
    return f"<g><title>{esc(name)}</title>{svg.line(f'curve s{place % SERIES_MAX}', *points[0], path)}</g>"


def span_label(ms: float) -> str:
    """Return a round duration for an axis."""
    return duration(round(ms)).removesuffix(" 00 s").removesuffix(" 00 min").removesuffix(" 0 h").replace(".0 s", " s")
