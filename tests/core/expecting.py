"""Worlds in which urgent jobs come at the same hour of each day, and waited for their places or did not."""

from penstock.core.model.cluster import Queue
from penstock.core.model.expected import HOUR_MS
from penstock.testing.harness import World, cluster, finish

DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
AT_H = 14
"""The hour of the day at which they come."""
URGENT, PLAIN = 900, 500
MONDAY_MS = 20_000 * DAY_MS + 4 * DAY_MS
"""A Monday at 0:00 UTC; some day in 2024."""


def expecting(
    *,
    nodes: int = 2,
    days: int = 12,
    devices: int = 4,
    jobs: int = 1,
    waited_ms: int = 2 * HOUR_MS,
    after_ms: int = 0,
    **fields: object,
) -> World:
    """Return a world of nodes with 8 devices each, after so many days, at the beginning of the next.

    Args:
        devices: that each of some jobs asked for each day, `after_ms` into the hour; they waited for `waited_ms`.
    """
    queue = Queue("default", policy="priority", preemption="never")
    settings = {"predictive_share_milli": 500, "predictive_waiting_min": 2, "immediate_utilisation_milli": 0}
    w = cluster(nodes, 8, queues=(queue,), **(settings | fields))
    for day in range(days):
        w.now = MONDAY_MS + day * DAY_MS + AT_H * HOUR_MS + after_ms
        come_and_go(w, devices, waited_ms, jobs)
    w.now = MONDAY_MS + days * DAY_MS
    return w


def come_and_go(w: World, devices: int, waited_ms: int, jobs: int = 1) -> None:
    """Let urgent jobs come, wait, run for a minute and end."""
    came = [w.submit(devices, priority=URGENT) for _ in range(jobs)]
    w.now += waited_ms
    w.run(*came)
    w.now += MINUTE_MS
    for job in came:
        finish(w, job)


def at(w: World, hour: int, minute: int = 0) -> World:
    """Move on to a time of the day."""
    w.now += hour * HOUR_MS + minute * MINUTE_MS
    return w
