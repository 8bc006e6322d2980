"""Numbers and times as other programs write them; times come out as integer milliseconds."""

import math
from datetime import UTC, datetime, timedelta

from penstock.core.model.quantities import TIME_MAX_MS

RUN_MAX_MS = 100 * 366 * 86_400_000
"""A hundred years: a longer run time is a mistake."""
DIGITS_MAX = 18
"""More digits than any amount of a trace has: a longer text is refused before it is parsed as a number."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (times without an offset count as UTC)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def number(text: str) -> float:
    """Return a plain finite number such as `66.0`, `-1` or `1e+06`. Raises: ValueError for anything else."""
    if not text.isascii() or "_" in text or len(text) > 64:
        raise ValueError(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def whole_number(text: str) -> int:
    """Return a whole number, which may be written as `8.0`. Raises: ValueError for anything else."""
    if text.isdigit() and text.isascii() and len(text) <= DIGITS_MAX:
        return int(text)
    value = number(text)
    if value != int(value) or abs(value) >= 2**53:
        raise ValueError(text)
    return int(value)


def within(value: int, low: int, high: int) -> int:
    """Return `value`. Raises: ValueError when it is not from `low` to `high`."""
    if not low <= value <= high:
        raise ValueError(value)
    return value


def seconds_to_ms(text: str) -> int:
    """Return milliseconds for a number of seconds, which may be negative. Raises: ValueError for anything else."""
    if text.isdigit() and text.isascii() and len(text) <= DIGITS_MAX:
        return int(text) * 1000
    value = number(text)
    if abs(value) >= 2**53:
        raise ValueError(text)
    return round(value * 1000)


def moment_ms(text: str) -> int:
    """Return unix milliseconds for an ISO 8601 time (without an offset: UTC) or unix seconds.

    Raises: ValueError for anything else, and for times before 1970 or after 9999.
    """
    if "-" in text[1:]:
        when = datetime.fromisoformat(text)
        try:
            found = (when - (_EPOCH if when.tzinfo is None else _EPOCH_UTC)) // _MS
        except OverflowError:
            raise ValueError(text) from None
    else:
        found = seconds_to_ms(text)
    if not 0 <= found < TIME_MAX_MS:
        raise ValueError(text)
    return found
