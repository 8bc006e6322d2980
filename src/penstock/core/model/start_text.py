"""When a waiting job starts, in one wording for every command."""

from penstock.core.model.quantities import format_duration

ASSUMED = (
    "if jobs keep to their time limits and take no time to start, none has to start again and no other job comes first"
)
"""Under which a latest start holds."""


def estimate_text(now_ms: int, early_ms: int, likely_ms: int, late_ms: int) -> str:
    """Return an estimate (unix ms; 0: unknown), such as `in about 2m 37s (8 of 10 such starts: in 20s to 1h 20m)`."""
    if not likely_ms:
        return "unknown"
    return f"in about {_left(likely_ms, now_ms)} (8 of 10 such starts: {interval_text(now_ms, early_ms, late_ms)})"


def interval_text(now_ms: int, early_ms: int, late_ms: int) -> str:
    """Return from when to when 8 of 10 such starts come, such as `in 20s to 1h 20m` or `within 1h 20m`."""
    if not late_ms:
        return f"in {_left(early_ms, now_ms)} or later"
    late = _left(late_ms, now_ms)
    return f"within {late}" if early_ms - now_ms < 1000 else f"in {_left(early_ms, now_ms)} to {late}"


def waits_text(now_ms: int, early_ms: int, likely_ms: int, late_ms: int) -> str:
    """Return the same as a sentence about a job that would wait."""
    return f"waits: starts {estimate_text(now_ms, early_ms, likely_ms, late_ms)}"


def latest_text(now_ms: int, by_ms: int) -> str:
    """Return an upper bound of a start (unix ms) with what it assumes."""
    when = f"in {_left(by_ms, now_ms)} at the latest" if by_ms > now_ms else "now at the latest"
    return f"{when}, {ASSUMED}"


def _left(time_ms: int, now_ms: int) -> str:
    return format_duration(max(0, time_ms - now_ms))
