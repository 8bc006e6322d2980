"""Draws held against available capacity, and the number of waiting jobs, over the timeline's own axis."""

from collections.abc import Callable, Sequence
from math import ceil

from penstock.report import svg
from penstock.report.run.model import RunReport, UsageStep
from penstock.report.svg import TimeScale, num

HEIGHT = 92.0
GAP = 46.0
TOP = 18.0
POINTS_MAX = 1_000
"""Steps drawn; of more, each stretch of pixels keeps its highest."""


def load_chart(report: RunReport) -> str:
    """Return held against available, and below it the number of waiting jobs, as one SVG."""
    scale = TimeScale(report.start_ms, report.until_ms)
    shown = thinned(report.steps, scale)
    most = max((max(s.held, s.available) for s in shown), default=0) / 1000
    unit = "devices" if report.unit == "devices" else "CPU cores"
    upper = _Panel(scale, TOP, most, report.until_ms)
    lower = _Panel(scale, TOP + HEIGHT + GAP, max((s.waiting for s in shown), default=0), report.until_ms)
    parts = [
        svg.text(svg.LEFT, TOP - 6, f"{unit} held (filled) of those on ready nodes (line)", "panel"),
        svg.axis(scale, TOP, TOP + HEIGHT),
        upper.levels(),
        upper.area(shown, "held", lambda s: s.held / 1000),
        upper.line(shown, "available", lambda s: s.available / 1000),
        svg.text(svg.LEFT, TOP + HEIGHT + GAP - 6, "jobs waiting", "panel"),
        svg.axis(scale, TOP + HEIGHT + GAP, TOP + 2 * HEIGHT + GAP),
        lower.levels(),
        lower.area(shown, "waiting", lambda s: s.waiting),
    ]
    title = f"{unit} held and available, and jobs waiting, over time"
    return svg.frame(TOP + 2 * HEIGHT + GAP + 22, title, "".join(parts))


def thinned(steps: Sequence[UsageStep], scale: TimeScale) -> list[UsageStep]:
    """Return at most about `POINTS_MAX` steps; where there are more, the maxima of equal stretches of time."""
    if len(steps) <= POINTS_MAX:
        return list(steps)
    found: dict[int, UsageStep] = {}
    for step in steps:
        cell = (step.time_ms - scale.start_ms) * POINTS_MAX // scale.span_ms
        old = found.get(cell)
        if old is not None:
            step = UsageStep(
                old.time_ms,
                max(old.held, step.held),
                max(old.available, step.available),
                max(old.waiting, step.waiting),
            )
        found[cell] = step
    return [found[cell] for cell in sorted(found)]


class _Panel:
    """One step chart: from `top` down `HEIGHT`, from 0 up to `most`, made even."""

    def __init__(self, scale: TimeScale, top: float, most: float, until_ms: int) -> None:
        even = max(2, 2 * ceil(most / 2))
        self._scale, self._top, self._most, self._until_ms = scale, top, even, until_ms

    def y(self, value: float) -> float:
        return self._top + HEIGHT * (1 - value / self._most)

    def levels(self) -> str:
        return "".join(svg.level(self.y(value), f"{value:,}") for value in (0, self._most // 2, self._most))

    def area(self, steps: Sequence[UsageStep], css: str, value: Callable[[UsageStep], float]) -> str:
        if not steps:
            return ""
        path = f"{self._path(steps, value)}V{num(self.y(0))}Z"
        return svg.line(css, self._scale.x(steps[0].time_ms), self.y(0), path)

    def line(self, steps: Sequence[UsageStep], css: str, value: Callable[[UsageStep], float]) -> str:
        if not steps:
            return ""
        return svg.line(css, self._scale.x(steps[0].time_ms), self.y(value(steps[0])), self._path(steps, value))

    def _path(self, steps: Sequence[UsageStep], value: Callable[[UsageStep], float]) -> str:
        parts, last = [], ""
        for step in steps:
            y = num(self.y(value(step)))
            if y != last:
                parts.append(f"H{num(self._scale.x(step.time_ms))}V{y}")
                last = y
        return "".join(parts) + f"H{num(self._scale.x(self._until_ms))}"
