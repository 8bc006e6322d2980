"""Figures of the server's own work, kept in memory since its start: how many commits, how long a cycle took."""

from threading import Lock
from typing import Literal, NamedTuple

import msgspec

SERIES_MAX = 1_000
"""Names with their labels; series beyond that are not kept."""


class Metric(NamedTuple):
    """What one name stands for."""

    kind: Literal["counter", "measured"]
    """`measured`: number, sum, maximum and last of values."""
    unit: str
    about: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    "control_commit_s": Metric(
        "measured", "s", "one group of requests: decided, folded, and what followed from it synced to the log"
    ),
    "control_cycle_s": Metric("measured", "s", "one scheduling cycle, beside the thread that commits"),
    "control_requests": Metric("counter", "requests", "decided by the control loop: calls, reports of nodes, plans"),
    "control_events": Metric("counter", "events", "written into the log"),
    "submit_s": Metric(
        "measured", "s", "one submit: from when the control loop was asked until its answer was on disk"
    ),
    "access_notes": Metric(
        "counter",
        "attempts",
        "refused logins, acts and agents, and replaced keys and certificates; `kind` as in the event `AccessNoted`",
        ("kind",),
    ),
    "notification_events": Metric("counter", "events", "that users had chosen to hear of"),
    "notifications_sent": Metric("counter", "messages", "taken by what they were sent to", ("channel",)),
    "notification_failures": Metric("counter", "messages", "not taken; tried again, or given up", ("channel",)),
    "notifications_dropped": Metric(
        "counter", "events", "for destinations that jobs name, of users whose jobs name too many of them"
    ),
    "notification_seconds": Metric("measured", "s", "one message that was taken", ("channel",)),
}
"""All that the server counts and measures; docs/metrics.md is made from it."""


class Series(msgspec.Struct, frozen=True):
    """One counter or one kind of measured value, since the server's start."""

    name: str
    labels: dict[str, str]
    count: int
    """Of a counter its value, else the number of measurements."""
    sum: float = 0.0
    """Of measured values, like the two that follow; 0 for a counter."""
    most: float = 0.0
    last: float = 0.0


class MemoryMetrics:
    """The `ports.Metrics` of a server: sums, no history."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._figures: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, float, float, float]] = {}

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        self._add(name, labels, by, None)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._add(name, labels, 1, value)

    def series(self) -> list[Series]:
        """Return all series, by name and labels."""
        with self._lock:
            kept = sorted(self._figures.items())
        return [Series(name, dict(labels), *values) for (name, labels), values in kept]

    def _add(self, name: str, labels: dict[str, str], by: int, value: float | None) -> None:
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            known = self._figures.get(key)
            if known is None and len(self._figures) >= SERIES_MAX:
                return
            count, total, most, last = known or (0, 0.0, 0.0, 0.0)
            if value is not None:
                total, most, last = total + value, max(most, value), value
            self._figures[key] = (count + by, total, most, last)
