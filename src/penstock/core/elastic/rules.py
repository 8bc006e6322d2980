"""The utilisation rules: when one job asks for twice as many replicas, or needs only half.

They need no speed model, only how busy the job is by its own metrics (`reported.py`). Live, `core/cycle/grow.py` asks
them which jobs need only half; `allocate` decides which of several jobs get idle devices.
"""

from typing import Literal

import msgspec

from penstock.core.elastic.speedup import SpeedCurve

Action = Literal["out", "in", "stay"]
Reason = Literal[
    "busy_and_queued",
    "idle",
    "cooling_down",
    "window_too_short",
    "at_maximum",
    "at_minimum",
    "no_further_gain",
    "within_band",
]


class ScalingRules(msgspec.Struct, frozen=True):
    """Thresholds of the rules; shares in thousandths."""

    out_above_milli: int = 900
    in_below_milli: int = 300
    queue_above: int = 100
    gain_min_milli: int = 100
    """Doubling must make the job at least this much faster: 100 = 10 %."""
    window_ms: int = 60_000
    """It must have been seen for at least this long: a spike is no trend."""
    out_cooldown_ms: int = 180_000
    in_cooldown_ms: int = 300_000
    """After any change of size; longer downwards, because a wrong shrink costs two restarts."""


class Utilisation(msgspec.Struct, frozen=True):
    """How busy one job was over a window that ends now."""

    busy_milli: int
    """Share of the time that its devices compute, 0 to 1000."""
    data_queue: int
    """Prepared inputs that wait for a device."""
    window_ms: int
    since_change_ms: int
    """Since its size last changed or it started."""


class Scaling(msgspec.Struct, frozen=True):
    action: Action
    replicas: int
    """The size that the job should have now."""
    reason: Reason


def scale(
    seen: Utilisation,
    *,
    replicas: int,
    minimum: int,
    maximum: int,
    curve: SpeedCurve,
    nodes: int = 1,
    nodes_doubled: int = 1,
    rules: ScalingRules | None = None,
) -> Scaling:
    """Return the size that the rules ask for: doubled up to `maximum`, halved down to `minimum`, or as it is.

    Args:
        seen: share of busy time, data queue and time since the last change.
        nodes, nodes_doubled: how many nodes it is on, and would be on at twice the size.
    Never outside the bounds: a job outside them is moved to the nearer one, even during a cool-down.
    Raises: ValueError when 1 <= minimum <= maximum does not hold.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"minimum, maximum: 1 <= {minimum} <= {maximum} must hold")
    if replicas > maximum:
        return Scaling("in", maximum, "at_maximum")
    if replicas < minimum:
        return Scaling("out", minimum, "at_minimum")
    rules = rules or ScalingRules()
    busy = seen.busy_milli > rules.out_above_milli and seen.data_queue > rules.queue_above
    idle = seen.busy_milli < rules.in_below_milli
    if not busy and not idle:
        return Scaling("stay", replicas, "within_band")
    if seen.window_ms < rules.window_ms:
        return Scaling("stay", replicas, "window_too_short")
    if seen.since_change_ms < (rules.out_cooldown_ms if busy else rules.in_cooldown_ms):
        return Scaling("stay", replicas, "cooling_down")
    if idle:
        halved = max(minimum, replicas // 2)
        return Scaling("in", halved, "idle") if halved < replicas else Scaling("stay", replicas, "at_minimum")
    doubled = min(maximum, 2 * replicas)
    if doubled == replicas:
        return Scaling("stay", replicas, "at_maximum")
    before, after = curve.speed_milli(replicas, nodes), curve.speed_milli(doubled, nodes_doubled)
    if after * 1000 < before * (1000 + rules.gain_min_milli):
        return Scaling("stay", replicas, "no_further_gain")
    return Scaling("out", doubled, "busy_and_queued")
